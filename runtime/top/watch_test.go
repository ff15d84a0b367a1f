package top

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"cedrun/runtime/telemetry"
)

// script is a source of made-up views.
type script struct {
	mu      sync.Mutex
	samples int
	steps   []int
}

func (s *script) Sample(context.Context) *View {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples++
	v := views()["model"]
	v.Snapshot.Model.Waiting = s.samples
	return v
}

func (s *script) Next(_ *View, step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, step)
}

// press feeds keys to a program and runs the samples that they ask for, but no timers.
func press(t *testing.T, p *program, keys ...string) (quit bool) {
	t.Helper()
	for _, k := range keys {
		msg := tea.KeyPressMsg{Text: k, Code: []rune(k)[0]}
		switch k {
		case "tab":
			msg = tea.KeyPressMsg{Code: tea.KeyTab}
		case "shift+tab":
			msg = tea.KeyPressMsg{Code: tea.KeyTab, Mod: tea.ModShift}
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "down":
			msg = tea.KeyPressMsg{Code: tea.KeyDown}
		}
		_, cmd := p.Update(msg)
		if cmd == nil {
			continue
		}
		switch m := cmd().(type) {
		case tea.QuitMsg:
			quit = true
		case sampled:
			p.Update(m)
		}
	}
	return quit
}

func TestKeysSteerTheView(t *testing.T) {
	s := &script{}
	p := &program{ctx: context.Background(), source: s, screen: Screen{Every: time.Second}}
	if got := p.View().Content; !strings.Contains(got, "reading") {
		t.Errorf("before the first sample: %q", got)
	}
	p.Update(p.Init()())
	p.Update(tea.WindowSizeMsg{Width: 80, Height: 30})
	show := func() string { return p.View().Content }
	if got := show(); !strings.Contains(got, "queue 1 ") || !p.View().AltScreen {
		t.Errorf("%s", got)
	}
	press(t, p, "?")
	if got := show(); !strings.Contains(got, "quit") || strings.Contains(got, "queue") {
		t.Errorf("help: %s", got)
	}
	press(t, p, "?", "p")
	if _, cmd := p.Update(due{p.timer}); !strings.Contains(show(), "PAUSED") || !strings.Contains(show(), "queue 1 ") || cmd == nil {
		t.Errorf("paused: %s", show())
	}
	press(t, p, "p")
	_, cmd := p.Update(due{p.timer})
	p.Update(cmd())
	if got := show(); !strings.Contains(got, "queue 2 ") || strings.Contains(got, "PAUSED") {
		t.Errorf("it goes on: %s", got)
	}
	if _, cmd := p.Update(due{p.timer - 1}); cmd != nil {
		t.Error("a timer of an earlier sample starts another one")
	}
	press(t, p, "tab", "tab", "shift+tab")
	if len(s.steps) != 3 || s.steps[0] != 1 || s.steps[2] != -1 {
		t.Errorf("steps between processes: %v", s.steps)
	}
	p.Update(tea.WindowSizeMsg{Width: 80, Height: 10})
	before := show()
	press(t, p, "down")
	if got := show(); got == before || len(strings.Split(got, "\n")) > 11 {
		t.Errorf("scrolled: %s", got)
	}
	for _, key := range []string{"q", "esc"} {
		if !press(t, p, key) {
			t.Errorf("%s does not quit", key)
		}
	}
}

func TestTheNextProcessIsChosenInTurn(t *testing.T) {
	dir := t.TempDir()
	s := NewSampler(dir, "")
	defer s.Close()
	v := s.Sample(context.Background())
	if v.Snapshot != nil || v.Note != "" || len(v.Processes) != 0 {
		t.Errorf("nobody publishes: %+v", v)
	}
	for range 2 { // two servers of this process
		srv, err := telemetry.Listen(dir, answers())
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
	}
	v = s.Sample(context.Background())
	if v.Snapshot == nil || v.Note != "" || len(v.Processes) != 2 {
		t.Fatalf("%+v", v)
	}
	first := s.chosen
	s.Next(v, 1)
	if s.Sample(context.Background()); s.chosen == first {
		t.Error("the same process")
	}
	s.Next(v, 1)
	if s.Sample(context.Background()); s.chosen != first {
		t.Error("not back at the first one")
	}
}

func TestAProcessThatEndsIsSaidSo(t *testing.T) {
	dir := t.TempDir()
	srv, err := telemetry.Listen(dir, answers())
	if err != nil {
		t.Fatal(err)
	}
	s := NewSampler(dir, srv.Path())
	defer s.Close()
	if err := s.Attached(context.Background()); err != nil {
		t.Fatal(err)
	}
	if v := s.Sample(context.Background()); v.Snapshot == nil || v.Note != "" {
		t.Errorf("%+v", v)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if v := s.Sample(context.Background()); v.Snapshot != nil || !strings.Contains(v.Note, "telemetry: ") {
			t.Errorf("after its end: %+v", v)
		}
	}
	if err := NewSampler(dir, srv.Path()).Attached(context.Background()); err == nil || !strings.Contains(err.Error(), "nobody listens") {
		t.Errorf("%v", err)
	}
}

// answers are those of an engine that does nothing.
func answers() map[string]telemetry.Answer {
	return map[string]telemetry.Answer{telemetry.WantSnapshot: func(context.Context, json.RawMessage) (any, error) {
		return telemetry.Snapshot{Version: telemetry.Version, Process: telemetry.Process{PID: 1}, Model: &telemetry.Model{}}, nil
	}}
}
