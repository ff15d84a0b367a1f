package model

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/plan"
)

// lapse is a step in which memory is short after so many calls of the stream.
type lapse struct {
	m           *Model
	after, seen int
	hit         bool
}

func (f *lapse) arm() {
	f.seen, f.hit = 0, false
	f.m.s.SetFault(func(string) error {
		if f.seen++; f.seen <= f.after {
			return nil
		}
		f.hit = true
		return &ced.Error{Code: ced.ENOMEM, What: "no memory"}
	})
}

// story feeds three sequences, of which two read their prompts in long spans that go round their windows, and a fourth
// that leaves, and returns the logits of those that stay, from the second step on. In that one memory is short.
func story(t *testing.T, m *Model, modes [2]Prefill, f *lapse) (rows [][]float32) {
	t.Helper()
	lengths := []int{9, 47, 38, 45}
	var qs []*Sequence
	for i, n := range lengths {
		mode := Exact
		if i == 1 || i == 2 {
			mode = modes[i-1]
		}
		qs = append(qs, sequence(t, m, mode, n, n+2))
	}
	at := func(i, n int) Span {
		q := qs[i]
		all := someIDs(m, lengths[i]+2, uint64(i))
		return Span{q, all[q.Pos() : q.Pos()+n], max(lengths[i]-1, q.Pos())}
	}
	feed(t, m, nil, at(0, 9), at(1, 11), at(2, 7), at(3, 5))
	stay, gone := []Span{at(0, 1), at(1, 36), at(2, 13)}, at(3, 40)
	if f != nil {
		all := append(slices.Clone(stay), gone)
		if err := m.Keep(stay); err != nil {
			t.Fatal(err)
		}
		f.arm()
		_, _, err := m.Forward(all, nil)
		m.s.SetFault(nil)
		if !f.hit {
			if err != nil {
				t.Fatal(err)
			}
			return nil
		}
		var native *ced.Error
		if !errors.As(err, &native) || native.Code != ced.ENOMEM {
			t.Fatalf("after %d calls: %v", f.after, err)
		}
		if err := m.Undo(stay); err != nil {
			t.Fatal(err)
		}
	}
	release(t, m, qs[3])
	read := func(spans ...Span) {
		a, n, err := m.Forward(spans, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			rows = append(rows, logitsRow(t, m, a, i))
		}
	}
	read(stay...)
	read(at(0, 1), at(1, 1), at(2, 18))
	read(at(1, 1), at(2, 1))
	release(t, m, qs[:3]...)
	return rows
}

// Whichever call of a step lacks memory: the sequences that stay have the bits of a run without such a step.
func checkRepeats(t *testing.T, m *Model, modes [2]Prefill, first, every int) {
	t.Helper()
	want, calls := story(t, m, modes, nil), 0
	for after := first; ; after += every {
		got := story(t, m, modes, &lapse{m: m, after: after})
		if got == nil {
			calls = after
			break
		}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("memory was short after %d calls: other logits", after)
		}
	}
	if len(want) < 5 || calls < 100 {
		t.Errorf("%d rows of logits, %d calls in a step", len(want), calls)
	}
}

func TestAStepThatLackedMemoryRunsAgain(t *testing.T) {
	first := 0
	for _, dir := range []string{"base", "edge"} {
		for _, o := range []Options{{}, {DraftRows: 3, Tails: true}} {
			for _, modes := range [][2]Prefill{{Exact, Replay}, {Replay, Cone}} {
				t.Run(fmt.Sprint(dir, o.DraftRows, modes), func(t *testing.T) {
					o.Slots, o.Context, o.StepRows = 4, 64, 96
					m := openModel(t, "mini/"+dir, checkpoint.Options{}, o)
					checkRepeats(t, m, modes, first, 13) // every call: 25 s
					first++
				})
			}
		}
	}
}

// Without Undo, what a failed step left in windows is seen.
func TestUndoIsNeeded(t *testing.T) {
	m := openModel(t, "mini/base", checkpoint.Options{}, Options{Slots: 2, Context: 64, StepRows: 96})
	logits := func(undo, lapse bool) []float32 {
		q := sequence(t, m, Exact, 47, 47)
		all := someIDs(m, 47, 1)
		feed(t, m, nil, Span{q, all[:11], 47})
		last := []Span{{q, all[11:], 46}}
		if err := m.Keep(last); err != nil {
			t.Fatal(err)
		}
		if lapse {
			m.s.SetFault(func(call string) error {
				if call == "greedy" || call == "row_gather" {
					return &ced.Error{Code: ced.ENOMEM}
				}
				return nil
			})
			_, _, err := m.Forward(last, nil)
			m.s.SetFault(nil)
			if err == nil {
				t.Fatal("the step did not fail")
			}
		}
		if undo {
			if err := m.Undo(last); err != nil {
				t.Fatal(err)
			}
		}
		row := logitsRow(t, m, feed(t, m, nil, last...), 0)
		release(t, m, q)
		return row
	}
	want := logits(false, false)
	if !slices.Equal(logits(true, true), want) {
		t.Error("after Undo: other logits")
	}
	if slices.Equal(logits(false, true), want) {
		t.Error("without Undo: the same logits")
	}
}

// What is planned for the copies of windows is what they take, but for rounding.
func TestKeptWindowsArePlanned(t *testing.T) {
	for _, mini := range []string{"calm", "base", "plain"} {
		c, err := config.Load("../../testdata/mini/" + mini + "/config.json")
		if err != nil {
			t.Fatal(err)
		}
		m := openModel(t, "mini/"+mini, checkpoint.Options{}, Options{Slots: 3, Context: 128, StepRows: 8, DraftRows: c.Draft.BlockSize})
		s, err := plan.Setup{Context: 128, Slots: 3}.Fill(m.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if planned := plan.CountBuffers(m.cfg, s, 1).Kept / 3; planned > int64(m.keptBytes()) || planned < int64(m.keptBytes()-64*len(m.windows(0))) {
			t.Errorf("%s: %d bytes of a sequence are planned, %d are kept", mini, planned, m.keptBytes())
		}
	}
}
