//go:build sim || cuda

package model

import (
	"slices"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/experts"
)

// needDevice skips a test where there is none.
func needDevice(t *testing.T) {
	t.Helper()
	s, err := ced.Open(ced.CUDA, 0, 0)
	if err != nil {
		t.Skip(err)
	}
	s.Close()
}

// decode reads a prompt, then one token after another, and returns the logits of every step.
func decode(t *testing.T, m *Model, prompt, text []int32) [][]byte {
	t.Helper()
	q := sequence(t, m, Exact, len(prompt), len(prompt)+len(text))
	var all [][]byte
	step := func(tokens []int32) {
		end := q.Pos() + len(tokens)
		at, n, err := m.Forward([]Span{{Seq: q, Tokens: tokens, Logits: end - 1}}, nil)
		if err != nil || n != 1 {
			t.Fatal(n, err)
		}
		row := make([]byte, 4*m.cfg.VocabSize)
		if err := m.s.Download(row, at); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	step(prompt)
	for i := range text {
		step(text[i : i+1])
	}
	if err := m.Release(q); err != nil {
		t.Fatal(err)
	}
	return all
}

// Experts that have no slot on the device are read from page-locked host memory, and others take slots while steps run: the
// logits of every step have the same bits whatever the device has room for.
func TestResidencyChangesNoBit(t *testing.T) {
	needDevice(t)
	const dir = "../../testdata/mini/calm"
	prompt, text := []int32{3, 5, 7, 11, 13, 17}, ids(10)
	open := func(t *testing.T, bytes int, order []experts.Key) *Model {
		return openModelOn(t, ced.CUDA, dir, checkpoint.Options{}, Options{
			Slots: 1, Context: 64, StepRows: 7, ExpertBytes: bytes, ExpertOrder: order, Graphs: true,
		})
	}
	m := open(t, 0, nil)
	want := decode(t, m, prompt, text)
	if m.Use().Slots != nil || len(m.pinned) > 0 {
		t.Error("a model without a budget has experts in host memory")
	}
	one, layers := slotBytes(m), m.cfg.Layers
	least, all := one*layers*m.cfg.ExpertsPerToken, one*layers*m.cfg.Experts
	var last []experts.Key // the highest numbers first, so that the fill is another one
	for e := range m.cfg.Experts {
		for l := range layers {
			last = append(last, experts.Key{Layer: l, Expert: m.cfg.Experts - 1 - e})
		}
	}
	for _, c := range []struct {
		name  string
		bytes int
		order []experts.Key
	}{
		{"minimum", least, nil}, {"minimum, other experts first", least, last}, {"minimum and one", least + one, nil},
		{"half", all / 2, nil}, {"all but a byte", all - 1, nil}, {"all", all, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := open(t, c.bytes, c.order)
			got := decode(t, m, prompt, text)
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Fatalf("step %d: the logits differ from those with all experts on the device", i)
				}
			}
			if c.bytes >= all {
				if m.Use().Slots != nil {
					t.Error("all experts have room, and have slots")
				}
				return
			}
			if err := m.slots.between(&m.meter); err != nil { // what the last step chose
				t.Fatal(err)
			}
			use := m.Use()
			if use.Slots == nil || use.Slots.Slots+2*use.Slots.Stream != c.bytes/one || use.Slots.Bytes != one {
				t.Fatalf("%+v with a budget of %d bytes", use.Slots, c.bytes)
			}
			if use.Graphs.Replayed == 0 {
				t.Error("no step was replayed")
			}
			var sum ExpertUse
			for _, l := range use.Experts {
				sum.Hit, sum.Missed, sum.Moved = sum.Hit+l.Hit, sum.Missed+l.Missed, sum.Moved+l.Moved
			}
			t.Logf("%d hits, %d misses, %d moved", sum.Hit, sum.Missed, sum.Moved)
			if decoded := uint64(len(text) * layers * m.cfg.ExpertsPerToken); sum.Hit+sum.Missed < decoded {
				t.Errorf("%d hits and %d misses in steps that chose %d", sum.Hit, sum.Missed, decoded)
			}
			if stream := use.Slots.Stream > 0; stream != (use.Slots.Streamed > 0) || stream != (c.bytes >= all/2) {
				t.Errorf("%+v after a prompt", use.Slots)
			}
			if c.bytes <= all/2 && sum.Moved == 0 {
				t.Error("no expert was brought to the device")
			}
		})
	}
}

// slotBytes is the size of a slot.
func slotBytes(m *Model) int { return shapeOf(m.cfg).bytes }
