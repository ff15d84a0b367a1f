//go:build sim || cuda

package model

import (
	"math/rand/v2"
	"slices"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
)

// Chunks, batches and prefill modes are as free on a device as on the CPU: each sequence has the bits that it has alone,
// its prompt read whole.
func TestADeviceGivesASequenceItsBitsInAnyChunksAndBatch(t *testing.T) {
	needDevice(t)
	for _, tc := range []struct {
		dir     string
		lengths []int
		modes   []Prefill
	}{{"mini/edge", []int{33, 9, 1}, []Prefill{Exact, Replay, Cone}}, {"mini/plain", []int{41, 9}, []Prefill{Exact}}} {
		t.Run(tc.dir, func(t *testing.T) {
			const decodes = 2
			m := openModelOn(t, ced.CUDA, "../../testdata/"+tc.dir, checkpoint.Options{}, Options{Slots: 3, Context: 64, StepRows: 48})
			for i, mode := range tc.modes {
				want := make([][][]float32, len(tc.lengths))
				prompts, forced := make([][]int32, len(tc.lengths)), make([][]int32, len(tc.lengths))
				for k, n := range tc.lengths {
					prompts[k], forced[k] = someIDs(m, n, uint64(k)), someIDs(m, decodes, uint64(10+k))
					q := sequence(t, m, mode, n, n+decodes)
					want[k] = feedTo(t, m, q, prompts[k], forced[k], n)
					release(t, m, q)
				}
				chunks := []int{5, 11, 15}[i]
				q := sequence(t, m, mode, len(prompts[0]), len(prompts[0])+decodes)
				got := [][][]float32{feedTo(t, m, q, prompts[0], forced[0], chunks)}
				release(t, m, q)
				got = append(got, feedRagged(t, m, mode, prompts, forced, uint64(i))...)
				for k, rows := range got {
					k = max(0, k-1)
					if len(rows) != len(want[k]) {
						t.Fatalf("%s: %d rows of logits, want %d", mode, len(rows), len(want[k]))
					}
					for j := range rows {
						if !slices.Equal(rows[j], want[k][j]) {
							t.Errorf("%s, prompt of %d: logits %d differ from those of the prompt alone and whole", mode, len(prompts[k]), j)
						}
					}
				}
			}
		})
	}
}

// feedRagged feeds sequences in common steps, of a random number of tokens each: some read their prompts while others
// decode. It returns what feedTo does, for each.
func feedRagged(t *testing.T, m *Model, mode Prefill, prompts, forced [][]int32, seed uint64) [][][]float32 {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	rows := make([][][]float32, len(prompts))
	qs := make([]*Sequence, len(prompts))
	for k, p := range prompts {
		qs[k] = sequence(t, m, mode, len(p), len(p)+len(forced[k]))
	}
	for {
		var spans []Span
		var who []int
		for k, q := range qs {
			all, n := slices.Concat(prompts[k], forced[k]), len(prompts[k])
			size := 1 + r.IntN(16)
			if left := n - q.Pos(); left > 0 {
				size = min(size, left)
			} else {
				size = min(1, len(all)-q.Pos())
			}
			if size == 0 {
				continue
			}
			spans = append(spans, Span{q, all[q.Pos() : q.Pos()+size], max(n-1, q.Pos())})
			who = append(who, k)
		}
		if len(spans) == 0 {
			break
		}
		ends := make([]int, len(spans))
		for i, s := range spans {
			ends[i] = s.Seq.Pos() + len(s.Tokens)
		}
		at, n, err := m.Forward(spans, nil)
		if err != nil {
			t.Fatal(err)
		}
		next := 0
		for i, k := range who {
			for range max(0, ends[i]-spans[i].Logits) {
				rows[k] = append(rows[k], logitsRow(t, m, at, next))
				next++
			}
		}
		if next != n {
			t.Fatalf("%d rows of logits, want %d", n, next)
		}
	}
	release(t, m, qs...)
	return rows
}

// As on the CPU, TestAStepThatLackedMemoryRunsAgain.
func TestADeviceRunsAStepThatLackedMemoryAgain(t *testing.T) {
	needDevice(t)
	m := openModelOn(t, ced.CUDA, "../../testdata/mini/base", checkpoint.Options{}, Options{Slots: 4, Context: 64, StepRows: 96, Graphs: true})
	checkRepeats(t, m, [2]Prefill{Exact, Replay}, 31, 200)
}
