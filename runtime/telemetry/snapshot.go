package telemetry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode"
)

// Version is that of Snapshot's JSON. It changes when a field changes its meaning.
const Version = 1

// Snapshot is what a process says about itself at one moment.
type Snapshot struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	Process Process   `json:"process"`
	Model   *Model    `json:"model"` // nil while it is being loaded
}

// Process is who publishes.
type Process struct {
	PID     int       `json:"pid"`
	Command string    `json:"command"` // serve, generate, chat
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Address string    `json:"address,omitempty"` // where a server listens
}

// Model is a running engine.
type Model struct {
	Name    string `json:"name"`
	Backend string `json:"backend"`
	Threads int    `json:"threads"`
	Layers  int    `json:"layers"`
	Context int    `json:"context"` // tokens that a sequence may have
	Slots   int    `json:"slots"`   // sequences at a time

	Prefill Phase `json:"prefill"`
	Decode  Phase `json:"decode"`
	Batch   int   `json:"batch"`   // sequences that decoded in the last step
	Depth   int   `json:"depth"`   // their mean position
	Running int   `json:"running"` // requests
	Waiting int   `json:"waiting"`

	KV      []Tier   `json:"kv"`
	Prefix  *Prefix  `json:"prefix"`
	Experts *Experts `json:"experts"`
	Graphs  *Graphs  `json:"graphs,omitempty"` // of a GPU that captures decode steps
	Engram  *Engram  `json:"engram"`
	Limit   *Limit   `json:"limit"`
}

// Phase counts prefill or decode since the engine started.
type Phase struct {
	Tokens  uint64  `json:"tokens"`
	Steps   uint64  `json:"steps"`
	Seconds float64 `json:"seconds"`           // of steps that had any of it, each counted whole
	Active  int64   `json:"active_parameters"` // per token; of prefill as in the last prompt
}

// Tier is a place for pages of the KV cache.
type Tier struct {
	Name   string `json:"name"`   // device, host, disk; snapshots: of what sequences keep beside pages
	Tokens int    `json:"tokens"` // of a page
	Pages  int    `json:"pages"`  // at most; 0 where bytes are the limit
	Used   int    `json:"used"`
	Cached int    `json:"cached"` // of the used ones: held by the prefix cache alone
	Bytes  int64  `json:"bytes,omitempty"`
	Most   int64  `json:"max_bytes,omitempty"`
	State  string `json:"state,omitempty"` // of the tier on disk: on, full, paused, off; and why
}

// Prefix counts what prompts found in caches.
type Prefix struct {
	Requests uint64 `json:"requests"`
	Hits     uint64 `json:"hits"` // requests that found something
	Prompt   uint64 `json:"prompt_tokens"`
	Found    uint64 `json:"hit_tokens"`
	Replayed uint64 `json:"replayed_tokens"` // of those found: run again to fill the windows
	Loaded   uint64 `json:"loaded_tokens"`   // of those found: read from disk
}

// Experts counts, for every layer, the experts that the router chose, and those that were not in memory then. The
// counts are lists of the same length.
type Experts struct {
	Chosen []uint64 `json:"chosen"`
	Missed []uint64 `json:"missed"`
	// On a device with room for a part of them: bytes that were brought there between steps.
	Moved uint64 `json:"moved_bytes,omitempty"`
	// There are so many experts, and so many have a place on the device; zero where all have one. ByCPU: the CPU computes
	// the others, which it has where the checkpoint is.
	Count    int  `json:"count,omitempty"`
	OnDevice int  `json:"on_device,omitempty"`
	ByCPU    bool `json:"by_cpu,omitempty"`
}

// Graphs counts decode steps of a GPU: replayed by one launch or run kernel by kernel, and batch sizes that were captured.
type Graphs struct {
	Captured uint64 `json:"captured"`
	Replayed uint64 `json:"replayed"`
	Plain    uint64 `json:"plain"`
	Failed   uint64 `json:"failed"` // captures and launches that the GPU refused
}

// Engram counts rows of the n-gram tables.
type Engram struct {
	Rows uint64 `json:"rows"`
}

// Limit is what this machine can do, measured on the engine's threads, and what the work needs of it.
type Limit struct {
	Read     float64 `json:"read_bps"`       // bytes per second from memory
	Multiply float64 `json:"multiply_flops"` // per second
	// Bytes are read in a decode step of the current batch and depth; Step is the least time it takes, seconds, and Prompt
	// that of a prompt token as in the last prompt.
	Bytes  float64 `json:"decode_step_bytes"`
	Step   float64 `json:"decode_step_seconds"`
	Prompt float64 `json:"prompt_token_seconds"`
}

// maxLayers bounds the lists of a snapshot.
const maxLayers = 4096

// Decode reads a snapshot's JSON and checks it: it may come from another version, or from no cedrun at all.
func Decode(data []byte) (*Snapshot, error) {
	var s Snapshot
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&s); err != nil {
		return nil, fmt.Errorf("telemetry: not a snapshot: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("telemetry: something follows the snapshot")
	}
	if s.Version != Version {
		return nil, fmt.Errorf("telemetry: snapshot of version %d where this cedrun reads %d: use the cedrun that runs there", s.Version, Version)
	}
	for _, text := range s.texts() {
		*text = printable(*text)
	}
	if m := s.Model; m != nil {
		if err := m.check(); err != nil {
			return nil, fmt.Errorf("telemetry: model: %w", err)
		}
	}
	return &s, nil
}

func (s *Snapshot) texts() []*string {
	out := []*string{&s.Process.Command, &s.Process.Version, &s.Process.Address}
	if m := s.Model; m != nil {
		out = append(out, &m.Name, &m.Backend)
		for i := range m.KV {
			out = append(out, &m.KV[i].Name, &m.KV[i].State)
		}
	}
	return out
}

func (m *Model) check() error {
	counts := []int{m.Threads, m.Layers, m.Context, m.Slots, m.Batch, m.Depth, m.Running, m.Waiting, int(min(m.Prefill.Active, m.Decode.Active, 0))}
	for _, t := range m.KV {
		counts = append(counts, t.Tokens, t.Pages, t.Used, t.Cached, int(min(t.Bytes, t.Most, 0)))
	}
	for _, n := range counts {
		if n < 0 {
			return fmt.Errorf("a count of %d", n)
		}
	}
	rates := []float64{m.Prefill.Seconds, m.Decode.Seconds}
	if l := m.Limit; l != nil {
		rates = append(rates, l.Read, l.Multiply, l.Bytes, l.Step, l.Prompt)
	}
	for _, v := range rates {
		if v < 0 || math.IsInf(v, 0) || math.IsNaN(v) {
			return fmt.Errorf("a figure of %v", v)
		}
	}
	if m.Layers > maxLayers || len(m.KV) > maxLayers {
		return fmt.Errorf("more than %d layers", maxLayers)
	}
	if e := m.Experts; e != nil && (len(e.Chosen) > maxLayers || len(e.Chosen) != len(e.Missed)) {
		return fmt.Errorf("experts chosen in %d layers, missed in %d", len(e.Chosen), len(e.Missed))
	}
	return nil
}

// printable is a text of another process as it may end up on a terminal: on one line, without escape sequences.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
