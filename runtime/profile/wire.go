package profile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	ced "cedrun/cuda"
)

// Want is the question that asks a process for a recording of its own; Ask are its arguments, Reply is the answer.
const Want = "profile"

// Ask says how long to record.
type Ask struct {
	Seconds float64 `json:"seconds"`
}

// MaxSpan is the longest recording that a process makes for another.
const MaxSpan = 10 * time.Minute

// Check refuses times that no process records for.
func (a Ask) Check() error {
	if !(a.Seconds > 0 && a.Seconds <= MaxSpan.Seconds()) {
		return fmt.Errorf("%g seconds: use more than 0 and at most %g", a.Seconds, MaxSpan.Seconds())
	}
	return nil
}

// Reply is what a process recorded of itself.
type Reply struct {
	Subject   Subject         `json:"subject"`
	Config    json.RawMessage `json:"config,omitempty"` // config.json of the model
	Recording *Recording      `json:"recording"`
}

// Answer answers Want. about says what the process runs; an error of it is the answer.
func (r *Recorder) Answer(about func() (Subject, json.RawMessage, error)) func(context.Context, json.RawMessage) (any, error) {
	return func(ctx context.Context, args json.RawMessage) (any, error) {
		var a Ask
		if err := json.Unmarshal(args, &a); err != nil {
			return nil, fmt.Errorf("profile: arguments: %w", err)
		}
		if err := a.Check(); err != nil {
			return nil, fmt.Errorf("profile: %w", err)
		}
		s, config, err := about()
		if err != nil {
			return nil, err
		}
		rec, err := r.For(ctx, time.Duration(a.Seconds*float64(time.Second)))
		if err != nil {
			return nil, err
		}
		return Reply{s, config, rec}, nil
	}
}

// wire is a Recording's JSON. Events are five numbers each: kernel and part by their place in Names, layer, start after
// its step's begin, and length, both in nanoseconds.
type wire struct {
	Names   []string   `json:"names"`
	Steps   []wireStep `json:"steps"`
	Dropped int        `json:"dropped_events"`
	LeftOut int        `json:"left_out_steps"`
	Used    Used       `json:"process"`
}

type wireStep struct {
	Prefill int     `json:"prefill"`
	Decode  int     `json:"decode"`
	Depth   int     `json:"depth,omitempty"`
	Began   int64   `json:"began_ns"`
	Took    int64   `json:"took_ns"`
	Events  []int64 `json:"events"`
}

const eventNumbers = 5

// MarshalJSON writes a recording compactly.
func (r *Recording) MarshalJSON() ([]byte, error) {
	w := wire{Names: []string{}, Steps: make([]wireStep, 0, len(r.Steps)), Dropped: r.Dropped, LeftOut: r.LeftOut, Used: r.Used}
	known := map[string]int64{}
	number := func(name string) int64 {
		n, ok := known[name]
		if !ok {
			n = int64(len(w.Names))
			known[name] = n
			w.Names = append(w.Names, name)
		}
		return n
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		events := make([]int64, 0, eventNumbers*len(s.Events))
		for _, e := range s.Events {
			events = append(events, number(e.Kernel), number(e.Part), int64(e.Layer), int64(e.Start-s.Began), int64(e.Took))
		}
		w.Steps = append(w.Steps, wireStep{s.Prefill, s.Decode, s.Depth, int64(s.Began), int64(s.Took), events})
	}
	return json.Marshal(w)
}

const (
	maxLayers = 4096
	maxTime   = int64(30 * 24 * time.Hour)
	maxRows   = 1 << 24
)

// UnmarshalJSON reads what another process wrote, and refuses what no recording is.
func (r *Recording) UnmarshalJSON(data []byte) error {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	for i, name := range w.Names {
		w.Names[i] = printable(name)
	}
	out := Recording{Dropped: w.Dropped, LeftOut: w.LeftOut, Used: w.Used}
	if u := w.Used; min(w.Dropped, w.LeftOut) < 0 || min(u.Wall, u.CPU) < 0 || u.Faults < 0 {
		return errors.New("recording: a negative count")
	}
	end := int64(0)
	for i, s := range w.Steps {
		if s.Began < end || s.Began > maxTime || s.Took < 0 || s.Took > maxTime {
			return fmt.Errorf("recording: step %d lasts %d ns from %d on, the one before ends at %d", i, s.Took, s.Began, end)
		}
		if min(s.Prefill, s.Decode, s.Depth) < 0 || max(s.Prefill, s.Decode, s.Depth) > maxRows {
			return fmt.Errorf("recording: step %d of %d and %d rows at depth %d", i, s.Prefill, s.Decode, s.Depth)
		}
		end = s.Began + s.Took
		step := Step{Prefill: s.Prefill, Decode: s.Decode, Depth: s.Depth, Began: time.Duration(s.Began), Took: time.Duration(s.Took)}
		var err error
		if step.Events, err = w.events(&step, s.Events); err != nil {
			return fmt.Errorf("recording: step %d: %w", i, err)
		}
		out.Steps = append(out.Steps, step)
	}
	*r = out
	return nil
}

func (w *wire) events(s *Step, v []int64) ([]ced.Event, error) {
	if len(v)%eventNumbers != 0 {
		return nil, fmt.Errorf("%d numbers of events, which have %d each", len(v), eventNumbers)
	}
	out := make([]ced.Event, 0, len(v)/eventNumbers)
	for ; len(v) > 0; v = v[eventNumbers:] {
		kernel, part, layer, start, took := v[0], v[1], v[2], v[3], v[4]
		if n := int64(len(w.Names)); min(kernel, part) < 0 || max(kernel, part) >= n || layer < -1 || layer >= maxLayers {
			return nil, fmt.Errorf("an event of name %d, part %d, layer %d among %d names", kernel, part, layer, n)
		}
		if start < 0 || took < 0 || start > int64(s.Took) || took > int64(s.Took)-start {
			return nil, fmt.Errorf("an event of %d ns at %d in a step of %d", took, start, int64(s.Took))
		}
		out = append(out, ced.Event{
			Kernel: w.Names[kernel], Part: w.Names[part], Layer: int(layer), Start: s.Began + time.Duration(start), Took: time.Duration(took),
		})
	}
	return out, nil
}

// printable makes a text safe for a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// DecodeReply reads an answer to Want.
func DecodeReply(data []byte) (*Reply, error) {
	var r Reply
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("profile: not an answer: %w", err)
	}
	if r.Recording == nil {
		return nil, errors.New("profile: an answer without a recording")
	}
	s := &r.Subject
	for _, text := range []*string{&s.Model, &s.Backend, &s.Device, &s.ISA, &s.Mode} {
		*text = printable(*text)
	}
	return &r, nil
}
