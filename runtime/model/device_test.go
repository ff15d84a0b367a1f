//go:build sim || cuda

package model

import (
	"fmt"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
)

// Experts that stay in page-locked host memory are read from there: the logits have the same bits whatever a device holds.
func TestResidencyChangesNoBit(t *testing.T) {
	if s, err := ced.Open(ced.CUDA, 0, 0); err != nil {
		t.Skip(err)
	} else {
		s.Close()
	}
	const dir = "../../testdata/mini/calm"
	prompt := []int32{3, 5, 7, 11, 13, 17}
	var want []byte
	experts := 0 // bytes of one, of all
	all := 0
	for _, budget := range []func() int{
		func() int { return 0 }, func() int { return 1 }, func() int { return experts * 2 }, func() int { return all / 2 },
		func() int { return all - 1 }, func() int { return all },
	} {
		t.Run(fmt.Sprint(budget()), func(t *testing.T) {
			m := openModelOn(t, ced.CUDA, dir, checkpoint.Options{}, Options{Slots: 1, Context: 64, StepRows: 8, ExpertBytes: budget()})
			if want == nil {
				for _, n := range expertTensors {
					b, err := m.ck.Bytes("layers.0.ffn.experts.0." + n)
					if err != nil {
						t.Fatal(err)
					}
					experts += len(b)
				}
				all = experts * m.cfg.Experts * m.cfg.Layers
			}
			if stays := budget() > 0 && budget() < all; stays != (len(m.pinned) > 0) {
				t.Errorf("%d pieces of host memory with a budget of %d of %d bytes", len(m.pinned), budget(), all)
			}
			q := sequence(t, m, Exact, len(prompt), len(prompt))
			at, n, err := m.Forward([]Span{{Seq: q, Tokens: prompt, Logits: len(prompt) - 1}}, nil)
			if err != nil || n != 1 {
				t.Fatal(n, err)
			}
			got := make([]byte, 4*m.cfg.VocabSize)
			if err := m.s.Download(got, at); err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			} else if string(got) != string(want) {
				t.Error("the logits differ from those with all experts on the device")
			}
		})
	}
}
