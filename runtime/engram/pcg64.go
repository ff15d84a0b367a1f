package engram

import "math/bits"

// pcg64 reproduces numpy.random.default_rng(seed): PCG64 (XSL-RR 128/64) seeded through SeedSequence.
type pcg64 struct{ state, inc uint128 }

type uint128 struct{ hi, lo uint64 }

func (a uint128) add(b uint128) uint128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, _ := bits.Add64(a.hi, b.hi, carry)
	return uint128{hi, lo}
}

func (a uint128) mul(b uint128) uint128 {
	hi, lo := bits.Mul64(a.lo, b.lo)
	return uint128{hi + a.hi*b.lo + a.lo*b.hi, lo}
}

func newPCG64(seed uint64) *pcg64 {
	s := seedSequence(seed)
	inc := uint128{s[2]<<1 | s[3]>>63, s[3]<<1 | 1}
	g := &pcg64{inc: inc}
	g.step()
	g.state = g.state.add(uint128{s[0], s[1]})
	g.step()
	return g
}

func (g *pcg64) step() {
	g.state = g.state.mul(uint128{0x2360ED051FC65DA4, 0x4385DF649FCCF645}).add(g.inc)
}

func (g *pcg64) next() uint64 {
	g.step()
	return bits.RotateLeft64(g.state.hi^g.state.lo, -int(g.state.hi>>58))
}

// below draws from 0..n-1 as Generator.integers does for int64 when n exceeds 2^32 (Lemire's method on 64 bits) or is 1
// (nothing is drawn). Between these numpy draws 32 bits at a time; 2^30 classes at most keep n out of that range.
func (g *pcg64) below(n uint64) uint64 {
	if n == 1 {
		return 0
	}
	hi, lo := bits.Mul64(g.next(), n)
	if lo < n {
		for threshold := -n % n; lo < threshold; {
			hi, lo = bits.Mul64(g.next(), n)
		}
	}
	return hi
}

// seedSequence is numpy.random.SeedSequence(seed).generate_state(4, uint64).
func seedSequence(seed uint64) (state [4]uint64) {
	const (
		initA, multA = 0x43b0d7e5, 0x931e8875
		initB, multB = 0x8b51f9dd, 0x58f38ded
		mixL, mixR   = 0xca01f9dd, 0x4973f715
	)
	k := uint32(initA)
	hash := func(v uint32) uint32 {
		v ^= k
		k *= multA
		v *= k
		return v ^ v>>16
	}
	entropy := [4]uint32{uint32(seed), uint32(seed >> 32)} // absent words hash like zeros
	var pool [4]uint32
	for i, v := range entropy {
		pool[i] = hash(v)
	}
	for src := range pool {
		for dst := range pool {
			if src != dst {
				v := mixL*pool[dst] - mixR*hash(pool[src])
				pool[dst] = v ^ v>>16
			}
		}
	}
	k = initB
	for i := range 8 {
		v := pool[i%4] ^ k
		k *= multB
		v *= k
		v ^= v >> 16
		state[i/2] |= uint64(v) << (32 * (i % 2))
	}
	return state
}
