package sample

import "math"

// stride is how many tokens are weighed at a time: their weights stay in the innermost cache.
const stride = 256

// weighAll is weigh without vector instructions.
func weighAll(out []float64, logits []float32, top, scale float64) {
	for i, l := range logits {
		out[i] = weight(l, top, scale)
	}
}

// scanAll is scan without vector instructions.
func scanAll(logits []float32, top float32) (float32, bool) {
	usable := true
	for _, l := range logits {
		usable = usable && l <= math.MaxFloat32 // not NaN either
		if l > top {
			top = l
		}
	}
	return top, usable
}
