package sample

import "math"

const (
	expSteps    = 32
	stepsPerE   = 0x1.71547652b82fep+5  // 32/ln 2
	expStepHi   = 0x1.62e42fec00000p-6  // ln 2/32, its upper 31 bits, so that products with a step count are exact
	expStepLo   = 0x1.d1cf79abc9e3bp-37 // and the rest
	expSmallest = -708
)

// exp2Steps holds 2^(j/32), correctly rounded.
var exp2Steps = [expSteps]float64{
	0x1.0000000000000p+0, 0x1.059b0d3158574p+0, 0x1.0b5586cf9890fp+0, 0x1.11301d0125b51p+0,
	0x1.172b83c7d517bp+0, 0x1.1d4873168b9aap+0, 0x1.2387a6e756238p+0, 0x1.29e9df51fdee1p+0,
	0x1.306fe0a31b715p+0, 0x1.371a7373aa9cbp+0, 0x1.3dea64c123422p+0, 0x1.44e086061892dp+0,
	0x1.4bfdad5362a27p+0, 0x1.5342b569d4f82p+0, 0x1.5ab07dd485429p+0, 0x1.6247eb03a5585p+0,
	0x1.6a09e667f3bcdp+0, 0x1.71f75e8ec5f74p+0, 0x1.7a11473eb0187p+0, 0x1.82589994cce13p+0,
	0x1.8ace5422aa0dbp+0, 0x1.93737b0cdc5e5p+0, 0x1.9c49182a3f090p+0, 0x1.a5503b23e255dp+0,
	0x1.ae89f995ad3adp+0, 0x1.b7f76f2fb5e47p+0, 0x1.c199bdd85529cp+0, 0x1.cb720dcef9069p+0,
	0x1.d5818dcfba487p+0, 0x1.dfc97337b9b5fp+0, 0x1.ea4afa2a490dap+0, 0x1.f50765b6e4540p+0,
}

// weight returns exp((l - top) * scale) for l <= top within an ulp or so, and 0 below e^-708. Unlike math.Exp it has the
// same bits on every processor: the conversions keep products from being fused with sums. The logit comes as float32
// since converting it in the caller's loop would chain the calls through a register and cost four times as much.
func weight(l float32, top, scale float64) float64 {
	x := float64((float64(l) - top) * scale)
	if x < expSmallest {
		return 0
	}
	k := int(float64(x*stepsPerE) - 0.5) // rounds to nearest, as x <= 0
	r := x - float64(float64(k)*expStepHi) - float64(float64(k)*expStepLo)
	// |r| <= ln 2/64: the series to the 6th power is exact to 2^-58.
	p := 1.0/120 + float64(r*(1.0/720))
	p = 1.0/24 + float64(r*p)
	p = 1.0/6 + float64(r*p)
	p = 0.5 + float64(r*p)
	p = r + float64(float64(r*r)*p)
	t := exp2Steps[k&(expSteps-1)]
	power := math.Float64frombits(uint64(1023+k>>5) << 52)
	return (t + float64(t*p)) * power
}
