package sample

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Vector instructions, where there are any, change no bit.
func TestWeighHasTheBitsOfWeight(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for n := range 70 {
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(30 - r.ExpFloat64()*math.Pow(10, float64(r.IntN(4))))
			if r.IntN(9) == 0 {
				logits[i] = []float32{30, -0, negInf, -math.MaxFloat32, 30 - 708, 30 - 708.0001, math.SmallestNonzeroFloat32}[r.IntN(7)]
			}
		}
		for _, scale := range []float64{1, 0.2, 1 / 0.7, 1e6} {
			got := make([]float64, n)
			weigh(got, logits, 30, scale)
			for i, l := range logits {
				if want := weight(l, 30, scale); math.Float64bits(got[i]) != math.Float64bits(want) {
					t.Fatalf("weigh of %v at scale %v gives %v, weight %v", l, scale, got[i], want)
				}
			}
		}
		top, usable := scan(logits)
		if want, ok := scanAll(logits, negInf); top != want || !usable || !ok {
			t.Fatalf("scan gives %v, %v for %v", top, usable, logits)
		}
		for i := range logits {
			for _, bad := range []float32{float32(math.NaN()), -float32(math.NaN()), float32(math.Inf(1))} {
				good := logits[i]
				logits[i] = bad
				if _, usable := scan(logits); usable {
					t.Fatalf("scan does not see %v at %d of %d", bad, i, n)
				}
				logits[i] = good
			}
		}
	}
}
