package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// Shape says what a generated trace is like. Texts are measured in words: how many tokens those are is the server's.
type Shape struct {
	Seed      uint64
	Requests  int
	Systems   int           // different system prompts; sessions take them in turn
	System    int           // words of a system prompt; 0 = none
	Turns     int           // requests of a session
	User      int           // words of a turn on average: half to one and a half times as many
	MaxTokens int           // of an answer
	Think     time.Duration // between an answer and the next turn on average, in the same way
}

// maxWords bounds the words of a generated trace: some hundreds of megabytes, which are made before the first is sent.
const maxWords = 1e8

// Check refuses shapes whose trace would not fit into memory.
func (s Shape) Check() error {
	sessions := float64(s.Requests)/float64(max(1, s.Turns)) + float64(max(1, s.Systems))
	words := sessions*float64(s.System) + float64(s.Requests)*float64(max(20, s.User)) + 20*sessions // a message takes room too
	switch {
	case words > maxWords:
		return fmt.Errorf("so many requests have %.3g words, and at most %.0g are possible: give fewer requests, systems or words", words, maxWords)
	case s.Think.Seconds() > maxSeconds:
		return fmt.Errorf("a think time of %v: at most 30 days are possible", s.Think)
	}
	return nil
}

// Generate makes a trace: sessions of Turns requests each, the last one as long as Requests leaves. The same shape gives
// the same trace.
func Generate(s Shape) *Trace {
	t := &Trace{}
	systems := make([]string, max(1, s.Systems))
	for i := range systems {
		systems[i] = text(rand.New(rand.NewPCG(s.Seed, uint64(i))), s.System)
	}
	for left := s.Requests; left > 0; {
		n := len(t.Sessions)
		r := rand.New(rand.NewPCG(s.Seed, 1<<32+uint64(n)))
		session := make(Session, min(left, s.Turns))
		for i := range session {
			turn := Turn{MaxTokens: s.MaxTokens}
			if i == 0 && s.System > 0 {
				turn.Messages = append(turn.Messages, message("system", systems[n%len(systems)]))
			}
			if i > 0 {
				turn.Think = time.Duration((0.5 + r.Float64()) * float64(s.Think))
			}
			words := max(1, int(math.Round((0.5+r.Float64())*float64(s.User))))
			turn.Messages = append(turn.Messages, message("user", text(r, words)))
			session[i] = turn
		}
		t.Sessions = append(t.Sessions, session)
		left -= len(session)
	}
	return t
}

// Arrival is how due times of an open loop lie.
type Arrival string

// Ways of arrival.
const (
	Poisson  Arrival = "poisson"  // independent of each other, as from many users
	Constant Arrival = "constant" // equally far apart
)

// ParseArrival reads the name of an Arrival.
func ParseArrival(s string) (Arrival, error) {
	if a := Arrival(s); a == Poisson || a == Constant {
		return a, nil
	}
	return "", fmt.Errorf("%q: use %s or %s", s, Poisson, Constant)
}

// Schedule gives the trace's turns due times: rate of them a second. So many sessions live at a time that the turns of
// one are a think time apart on average, and the times of arrival do not depend on which session's turn it is.
func (t *Trace) Schedule(rate float64, a Arrival, think time.Duration, seed uint64) error {
	if !(rate > 0) || math.IsInf(rate, 0) {
		return fmt.Errorf("a rate of %v requests a second: use more than 0", rate)
	}
	total := t.Requests()
	if float64(total)/rate > maxSeconds {
		return errors.New("the requests would be due over more than 30 days")
	}
	r := rand.New(rand.NewPCG(seed, 1<<33))
	live := min(max(1, int(math.Ceil(rate*think.Seconds()))), len(t.Sessions))
	lanes := make([]struct{ session, turn int }, live)
	for i := range lanes {
		lanes[i].session = i
	}
	next, at := live, 0.
	for range total {
		for lanes[0].turn == len(t.Sessions[lanes[0].session]) { // over: the next session takes its place, or none
			if next < len(t.Sessions) {
				lanes[0].session, lanes[0].turn = next, 0
				next++
			} else {
				lanes = lanes[1:]
			}
		}
		l := lanes[0]
		t.Sessions[l.session][l.turn].Due = seconds(at)
		l.turn++
		lanes = append(lanes[1:], l)
		if a == Poisson {
			at += r.ExpFloat64() / rate
		} else {
			at += 1 / rate
		}
	}
	t.Scheduled = true
	return nil
}

// text is n words in sentences.
func text(r *rand.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		w := words[r.IntN(len(words))]
		if i%12 == 0 {
			if i > 0 {
				b.WriteString(". ")
			}
			w = strings.ToUpper(w[:1]) + w[1:]
		} else {
			b.WriteByte(' ')
		}
		b.WriteString(w)
	}
	if n > 0 {
		b.WriteByte('.')
	}
	return b.String()
}

var words = strings.Fields(`the of and to in that was he for it with as his on be at by this had not are but from or have an
they which one you were her all she there would their we him been has when who will more no if out so said what up its
about into than them can only other new some could time these two may then do first any my now such like our over man me
even most made after also did many before must through back years where much your way well down should because each just
those people how too little state good very make world still own see men work long get here between both life being under
never day same another know while last might us great old year off come since against go came right used take three
file line test name read list data code path page call word text part root open close find show move turn keep hold`)

// Extra reads further fields of all requests, a JSON object.
func Extra(s string) (fields map[string]json.RawMessage, err error) {
	if s == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(s), &fields); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	return fields, nil
}
