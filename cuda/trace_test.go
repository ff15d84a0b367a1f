package ced

import (
	"testing"
	"time"
)

func open(t testing.TB) (*Stream, Addr) {
	t.Helper()
	s, err := Open(CPU, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Free(a)
		s.Close()
	})
	return s, a
}

func TestATraceTilesTimeWithSections(t *testing.T) {
	s, a := open(t)
	trace := NewTrace(16)
	s.SetTrace(trace)
	s.Mark("router", 3)
	for range 2 {
		if err := s.Fill(a, 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	s.Mark("sampling", -1)
	time.Sleep(time.Millisecond)
	if err := s.Download(make([]byte, 8), a); err != nil {
		t.Fatal(err)
	}
	s.EndSection()
	s.EndSection() // nothing is open
	var sections []Event
	for _, e := range trace.Events() {
		if e.Took < 0 {
			t.Errorf("%+v took less than nothing", e)
		}
		if e.Kernel == "" {
			sections = append(sections, e)
			continue
		}
		want := Event{Kernel: "fill", Part: "router", Layer: 3}
		if len(sections) > 0 {
			want = Event{Kernel: "download", Part: "sampling", Layer: -1}
		}
		if e.Kernel != want.Kernel || e.Part != want.Part || e.Layer != want.Layer {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	if len(trace.Events()) != 5 || len(sections) != 2 {
		t.Fatalf("%+v: want three calls and two sections", trace.Events())
	}
	if x, y := sections[0], sections[1]; x.Start+x.Took != y.Start || y.Took < time.Millisecond {
		t.Errorf("sections %+v and %+v do not follow each other", x, y)
	}
}

func TestAFullTraceCountsWhatItDrops(t *testing.T) {
	s, a := open(t)
	trace := NewTrace(3)
	s.SetTrace(trace)
	for range 5 {
		if err := s.Fill(a, 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	if len(trace.Events()) != 3 || trace.Dropped() != 2 {
		t.Errorf("%d events, %d dropped", len(trace.Events()), trace.Dropped())
	}
	trace.Reset()
	if len(trace.Events()) != 0 || trace.Dropped() != 0 {
		t.Error("events are left after Reset")
	}
	if allocs := testing.AllocsPerRun(10, func() {
		trace.Reset()
		s.Mark("head", -1)
		if err := s.Fill(a, 0, 64); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("tracing allocates %v times a call", allocs)
	}
}

func TestAnUntracedStreamRecordsNothing(t *testing.T) {
	s, a := open(t)
	trace := NewTrace(4)
	s.SetTrace(trace)
	s.SetTrace(nil)
	s.Mark("head", -1)
	if err := s.Fill(a, 0, 64); err != nil {
		t.Fatal(err)
	}
	if len(trace.Events()) != 0 {
		t.Errorf("%+v", trace.Events())
	}
}

func TestAPausedTraceRecordsNothingAndGoesOn(t *testing.T) {
	s, a := open(t)
	trace := NewTrace(16)
	s.SetTrace(trace)
	fill := func() {
		if err := s.Fill(a, 0, 64); err != nil {
			t.Fatal(err)
		}
	}
	trace.Pause(true)
	s.Mark("router", 1)
	fill()
	s.EndSection()
	if n := len(trace.Events()); n != 0 {
		t.Fatalf("%d events of a paused trace", n)
	}
	trace.Pause(false)
	s.Mark("router", 2)
	fill()
	trace.Pause(true)
	fill()
	s.Mark("head", -1) // ends the section, begins none
	trace.Pause(false)
	s.EndSection()
	e := trace.Events()
	if len(e) != 2 || e[0].Kernel != "fill" || e[1].Kernel != "" || e[1].Layer != 2 {
		t.Errorf("%+v: want a call of layer 2 and its section", e)
	}
}

func BenchmarkFill(b *testing.B) {
	paused := NewTrace(1 << 10)
	paused.Pause(true)
	for name, trace := range map[string]*Trace{"untraced": nil, "traced": NewTrace(1 << 10), "paused": paused} {
		b.Run(name, func(b *testing.B) {
			s, a := open(b)
			s.SetTrace(trace)
			for b.Loop() {
				if trace != nil {
					trace.Reset()
				}
				if err := s.Fill(a, 0, 64); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
