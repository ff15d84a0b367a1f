package load

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Turn is one request of a session.
type Turn struct {
	Messages  []json.RawMessage          // added to the conversation
	MaxTokens int                        // 0 = the server's own limit
	Think     time.Duration              // after the answer before, in a closed loop
	Due       time.Duration              // after the start, in an open loop
	Extra     map[string]json.RawMessage // further fields of the request
}

// Session is a conversation.
type Session []Turn

// Trace is what a run asks, session by session.
type Trace struct {
	Sessions  []Session
	Scheduled bool // turns say when they are due
}

// Requests counts the turns.
func (t *Trace) Requests() int {
	n := 0
	for _, s := range t.Sessions {
		n += len(s)
	}
	return n
}

// Limits of a trace file.
const (
	maxLine    = 16 << 20 // bytes
	maxSeconds = 30 * 24 * 3600
)

// line is a line of a trace file.
type line struct {
	Session   string                     `json:"session"`
	At        *float64                   `json:"at"`
	Think     float64                    `json:"think"`
	Messages  []json.RawMessage          `json:"messages"`
	MaxTokens int                        `json:"max_tokens"`
	Extra     map[string]json.RawMessage `json:"extra"`
}

// ReadTrace reads a trace: JSON objects, one a line and request, with the fields
//
//	messages    what is added to the conversation, as a chat completion takes it
//	session     lines of one session follow each other and share a conversation; without it a line is one of its own
//	max_tokens  of the answer
//	think       seconds after the session's answer before
//	at          seconds after the start; all lines have it or none
//	extra       further fields of the request
//
// Errors name the line.
func ReadTrace(r io.Reader) (*Trace, error) {
	t := &Trace{}
	sessions := map[string]int{}
	scheduled := 0
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		x, err := readLine(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		turn := Turn{Messages: x.Messages, MaxTokens: x.MaxTokens, Think: seconds(x.Think), Extra: x.Extra}
		if x.At != nil {
			turn.Due = seconds(*x.At)
			scheduled++
		}
		i, known := sessions[x.Session]
		if !known || x.Session == "" {
			i = len(t.Sessions)
			sessions[x.Session] = i
			t.Sessions = append(t.Sessions, nil)
		}
		if s := t.Sessions[i]; len(s) > 0 && turn.Due < s[len(s)-1].Due {
			return nil, fmt.Errorf("line %d: at %v is before the turn before it", n, *x.At)
		}
		t.Sessions[i] = append(t.Sessions[i], turn)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("a line is longer than %d MiB", maxLine>>20)
	} else if err != nil {
		return nil, err
	}
	switch total := t.Requests(); {
	case total == 0:
		return nil, errors.New("no requests in it")
	case scheduled != 0 && scheduled != total:
		return nil, fmt.Errorf(`%d of %d lines have "at": give it to all of them or to none`, scheduled, total)
	default:
		t.Scheduled = scheduled > 0
	}
	slices.SortStableFunc(t.Sessions, func(a, b Session) int { return cmp.Compare(a[0].Due, b[0].Due) })
	return t, nil
}

func readLine(text []byte) (x line, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&x); err != nil {
		return x, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return x, errors.New("more than one JSON object")
	}
	if len(x.Messages) == 0 {
		return x, errors.New(`no "messages"`)
	}
	for i, m := range x.Messages {
		var role struct{ Role string }
		if err := json.Unmarshal(m, &role); err != nil || role.Role == "" {
			return x, fmt.Errorf("messages[%d] is not an object with a role", i)
		}
	}
	for name, v := range map[string]float64{"at": deref(x.At), "think": x.Think} {
		if !(v >= 0 && v <= maxSeconds) {
			return x, fmt.Errorf("%s %v: use seconds from 0 to %d", name, v, maxSeconds)
		}
	}
	if x.MaxTokens < 0 {
		return x, fmt.Errorf("max_tokens %d: use 1 or more", x.MaxTokens)
	}
	return x, nil
}

func deref(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

func message(role, content string) json.RawMessage {
	b, err := json.Marshal(struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}{role, content})
	if err != nil {
		panic(err) // strings can always be written
	}
	return b
}
