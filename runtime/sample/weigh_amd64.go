package sample

import (
	"math"

	"golang.org/x/sys/cpu"
)

var vectors = cpu.X86.HasAVX2

// weigh sets out[i] = weight(logits[i], top, scale), with the same bits whether or not there are vector instructions.
func weigh(out []float64, logits []float32, top, scale float64) {
	n := 0
	if vectors && len(logits) >= 4 {
		n = len(logits) &^ 3
		weighAVX2(&out[:n][0], &logits[0], n, top, scale)
	}
	weighAll(out[n:len(logits)], logits[n:], top, scale)
}

// scan returns the largest logit, or -Inf, and whether none is NaN or +Inf.
func scan(logits []float32) (top float32, usable bool) {
	n, largest := 0, [8]float32{}
	none := float32(math.Inf(-1))
	if !vectors || len(logits) < 8 {
		return scanAll(logits, none)
	}
	n = len(logits) &^ 7
	bad := scanAVX2(&logits[0], n, &largest)
	top, _ = scanAll(largest[:], none)
	top, usable = scanAll(logits[n:], top)
	return top, usable && !bad
}

// weighAVX2 is weigh for a multiple of 4 logits.
//
//go:noescape
func weighAVX2(out *float64, logits *float32, n int, top, scale float64)

// scanAVX2 finds the largest of each eighth logit; bad: one of the n, a multiple of 8, is NaN or +Inf.
//
//go:noescape
func scanAVX2(logits *float32, n int, largest *[8]float32) (bad bool)
