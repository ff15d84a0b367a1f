package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
)

const (
	maxEvent  = 16 << 20 // bytes of a line of a stream
	maxTokens = 1 << 40  // of a usage
)

// chunk is an event of a stream, or a whole answer, as far as it is measured.
type chunk struct {
	Choices []struct {
		Text         string `json:"text"`
		Delta        piece  `json:"delta"`
		Message      piece  `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage          `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type piece struct {
	Content          string            `json:"content"`
	ReasoningContent string            `json:"reasoning_content"`
	Reasoning        string            `json:"reasoning"`
	ToolCalls        []json.RawMessage `json:"tool_calls"`
}

func (p *piece) empty() bool {
	return p.Content == "" && p.ReasoningContent == "" && p.Reasoning == "" && len(p.ToolCalls) == 0
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	Details          *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// answer is what was seen of an answer.
type answer struct {
	content strings.Builder
	pieces  []time.Time // when text came
	usage   *usage
	finish  string
	done    bool // the stream was complete
	choice  bool // an event had one
}

// errStream is an error that the server sent within a stream.
type errStream struct{ message string }

func (e *errStream) Error() string { return e.message }

// readStream reads server-sent events up to [DONE] or their end; now is asked when a line has come.
func (a *answer) readStream(r io.Reader, now func() time.Time) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 4096), maxEvent)
	var data []byte
	any := false
	for lines.Scan() {
		text := lines.Bytes()
		switch {
		case len(text) == 0:
			if any {
				if err := a.event(data, now); err != nil || a.done {
					return err
				}
			}
			data, any = data[:0], false
		case bytes.HasPrefix(text, []byte("data:")):
			if any {
				data = append(data, '\n')
			}
			data, any = append(data, bytes.TrimPrefix(text[5:], []byte(" "))...), true
			if len(data) > maxEvent {
				return errLong
			}
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return errLong
	} else if err != nil {
		return err
	}
	if any {
		if err := a.event(data, now); !errors.Is(err, errMalformed) {
			return err
		}
		return errors.New("the stream ended within an event")
	}
	return nil
}

func (a *answer) event(data []byte, now func() time.Time) error {
	if string(data) == "[DONE]" {
		a.done = true
		return nil
	}
	return a.add(data, now())
}

// add takes in a chunk that came at a time.
func (a *answer) add(data []byte, at time.Time) error {
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return &errStream{errorText(data)}
	}
	if c.Usage != nil {
		if err := c.Usage.check(); err != nil {
			return err
		}
		a.usage = c.Usage
	}
	if len(c.Choices) == 0 {
		return nil
	}
	a.choice = true
	x := &c.Choices[0]
	if x.FinishReason != "" {
		a.finish = x.FinishReason
	}
	if x.Text != "" || !x.Delta.empty() || !x.Message.empty() {
		a.pieces = append(a.pieces, at)
		a.content.WriteString(x.Text + x.Delta.Content + x.Message.Content)
	}
	return nil
}

// check refuses counts that would make nonsense of sums.
func (u *usage) check() error {
	cached := 0
	if u.Details != nil {
		cached = u.Details.Cached
	}
	for _, n := range []int{u.PromptTokens, u.CompletionTokens, cached} {
		if n < 0 || n > maxTokens {
			return fmt.Errorf("%w: usage of %d tokens", errMalformed, n)
		}
	}
	return nil
}

var (
	errMalformed = errors.New("not an answer of a chat completion")
	errLong      = fmt.Errorf("%w: an event of more than %d MiB", errMalformed, maxEvent>>20)
	errNoChoice  = fmt.Errorf("%w: it has no choices", errMalformed)
)

// errorText is the message of an error body, or its beginning.
func errorText(body []byte) string {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &e) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		var text string
		switch {
		case json.Unmarshal(e.Error, &inner) == nil && inner.Message != "":
			return short(inner.Message)
		case json.Unmarshal(e.Error, &text) == nil && text != "":
			return short(text)
		case e.Message != "":
			return short(e.Message)
		}
	}
	return short(string(body))
}

// short is the beginning of a text, on one line and without control characters: a server's words go to a terminal.
func short(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "..."
	}
	return s
}
