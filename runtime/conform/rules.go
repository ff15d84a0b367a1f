package conform

import (
	"fmt"
	"math"
	"strings"
)

// rule judges a tensor of rows x width values against a golden. why is empty when it holds.
type rule struct {
	name  string
	judge func(got, want []float32, width int) (why string)
}

var bitEqual = rule{"bit-equal", func(got, want []float32, _ int) string {
	if n := different(got, want); n > 0 {
		return fmt.Sprintf("%d of %d elements differ", n, len(want))
	}
	return ""
}}

// different counts elements that are not equal bit for bit; the two zeros count as equal, as in the goldens' own check.
func different(got, want []float32) int {
	n := 0
	for i := range want {
		if got[i] != want[i] && !(got[i] != got[i] && want[i] != want[i]) {
			n++
		}
	}
	return n
}

// ulp is the distance between neighbouring bf16 values at |x|.
func ulp(x float64) float64 {
	if x == 0 {
		return math.Ldexp(1, -133)
	}
	_, e := math.Frexp(math.Abs(x))
	return math.Ldexp(1, max(e-8, -133))
}

func rms(row []float32) float64 {
	s := 0.0
	for _, v := range row {
		s += float64(v) * float64(v)
	}
	return math.Sqrt(s / float64(max(len(row), 1)))
}

// within holds a fraction of the elements to `near` and all of them to `bound`, both given the golden and its row's rms.
func within(name string, fraction float64, near, bound func(want, rms float64) float64) rule {
	return rule{name, func(got, want []float32, width int) string {
		far, worst := 0, 0.0
		for r := 0; r+width <= len(want); r += width {
			m := rms(want[r : r+width])
			for i := r; i < r+width; i++ {
				if got[i] == want[i] {
					continue
				}
				d := math.Abs(float64(got[i]) - float64(want[i]))
				if !(d <= near(float64(want[i]), m)) {
					far++
				}
				if b := bound(float64(want[i]), m); !(d <= b) {
					return fmt.Sprintf("element %d: got %g, want %g, allowed difference %.3g", i, got[i], want[i], b)
				}
				worst = max(worst, d)
			}
		}
		if float64(far) > (1-fraction)*float64(len(want)) {
			return fmt.Sprintf("%d of %d elements beyond the near bound, %.3g allowed (largest difference %.3g)", far, len(want), (1-fraction)*float64(len(want)), worst)
		}
		return ""
	}}
}

func exact(_, _ float64) float64        { return 0 }
func oneULP(want, rms float64) float64  { return ulp(max(math.Abs(want), rms)) }
func fivePct(want, rms float64) float64 { return 0.05 * rms }
func relative(r, abs float64) func(want, rms float64) float64 {
	return func(want, _ float64) float64 { return max(r*math.Abs(want), abs) }
}

// Tolerances of conformance README section 5.
var (
	linearRule = within(">=99% equal, rest 1 bf16 ulp", 0.99, exact, oneULP)
	stageRule  = within(">=97% within 1 bf16 ulp, all within 5% of rms", 0.97, oneULP, fivePct)
	mixRule    = within("relative 1e-5", 1, relative(1e-5, 1e-7), relative(1e-5, 1e-7))
	// the FFN's mixes see streams that were recomputed from the golden attention output
	ffnMixRule = within("relative 1e-3, streams recomputed", 1, relative(1e-3, 1e-7), relative(1e-3, 1e-7))
	routeRule  = within("relative 1e-4 or absolute 1e-5", 1, relative(1e-4, 1e-5), relative(1e-4, 1e-5))
	logitsRule = within("1e-4 of row rms", 1, rowRMS, rowRMS)
	scoreRule  = rule{">=99% equal, rest 1 bf16 ulp of the row's largest", judgeScores}
	codeRule   = within(">=99% equal, rest one code step", 0.99, exact, func(want, rms float64) float64 { return max(math.Abs(want), rms) })
)

func rowRMS(want, rms float64) float64 { return 1e-4 * max(rms, math.Abs(want)) }

// judgeScores: masked entries (-inf) must agree exactly.
func judgeScores(got, want []float32, width int) string {
	far := 0
	for r := 0; r+width <= len(want); r += width {
		top := 0.0
		for _, v := range want[r : r+width] {
			if !math.IsInf(float64(v), 0) {
				top = max(top, math.Abs(float64(v)))
			}
		}
		for i := r; i < r+width; i++ {
			if got[i] == want[i] {
				continue
			}
			far++
			if !(math.Abs(float64(got[i])-float64(want[i])) <= ulp(top)) {
				return fmt.Sprintf("score %d: got %g, want %g", i, got[i], want[i])
			}
		}
	}
	if far*100 > len(want) {
		return fmt.Sprintf("%d of %d scores differ", far, len(want))
	}
	return ""
}

// subLayerRule is the R2 rule of a sub-layer tensor by the last part of its name.
func subLayerRule(name string) rule {
	kind := name[strings.LastIndexByte(name, '.')+1:]
	switch kind {
	case "engram_h", "attn_in", "qr", "latent", "ffn_in", "h_out", "main_hidden":
		return linearRule
	case "attn_out", "ffn_out":
		return stageRule
	case "hc_attn_pre", "hc_attn_post", "hc_attn_comb":
		return mixRule
	case "hc_ffn_pre", "hc_ffn_post", "hc_ffn_comb", "pre_out":
		return ffnMixRule
	case "route_w":
		return routeRule
	case "logits":
		return logitsRule
	case "index_score":
		return scoreRule
	case "compress_kv", "index_k", "window_ring":
		return codeRule
	}
	return bitEqual
}
