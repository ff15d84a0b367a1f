package config

import "math"

// RopeFreqs returns the float32 frequencies [RopeDim/2] of a rotary table: base compress_rope_theta with
// YaRN if compressed, else base rope_theta. Canonical arithmetic of spec model.md section 3.7: the power
// in f64 rounded to f32, everything after it one f32 operation at a time.
func (c *Config) RopeFreqs(compressed bool) []float32 {
	base := c.RopeTheta
	if compressed {
		base = c.CompressRopeTheta
	}
	freqs := make([]float32, c.RopeDim/2)
	for i := range freqs {
		exponent := float32(2*i) / float32(c.RopeDim)
		freqs[i] = 1 / float32(math.Pow(base, float64(exponent)))
	}
	if compressed && c.Yarn.Original > 0 {
		c.interpolate(freqs, base)
	}
	return freqs
}

// interpolate divides frequencies that turn less than BetaSlow times within the original context by the
// YaRN factor, keeps those that turn more than BetaFast times, and blends linearly in between.
func (c *Config) interpolate(freqs []float32, base float64) {
	channel := func(turns float64) float64 {
		return float64(c.RopeDim) * math.Log(float64(c.Yarn.Original)/(turns*2*math.Pi)) / (2 * math.Log(base))
	}
	low := max(math.Floor(channel(c.Yarn.BetaFast)), 0)
	high := min(math.Ceil(channel(c.Yarn.BetaSlow)), float64(c.RopeDim-1))
	span := float32(max(high-low, 1e-3))
	for i, f := range freqs {
		ramp := min(max((float32(i)-float32(low))/span, 0), 1)
		keep := 1 - ramp
		// The conversions forbid fused multiply-add.
		freqs[i] = float32(f/float32(c.Yarn.Factor)*(1-keep)) + float32(f*keep)
	}
}
