package sample

import "math/bits"

// Uniform returns the number in [0, 1) that belongs to a seed, a choice (the request's n-th answer) and the position of
// the token to be sampled: the upper 53 bits of Philox4x32-10 with the seed as key and (position, choice, 0) as counter.
func Uniform(seed uint64, choice, position int) float64 {
	x := philox([4]uint32{uint32(position), uint32(uint64(position) >> 32), uint32(choice), 0}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64((uint64(x[1])<<32|uint64(x[0]))>>11) / (1 << 53)
}

// philox is Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		hi0, lo0 := bits.Mul32(0xD2511F53, counter[0])
		hi1, lo1 := bits.Mul32(0xCD9E8D57, counter[2])
		counter = [4]uint32{hi1 ^ counter[1] ^ key[0], lo1, hi0 ^ counter[3] ^ key[1], lo0}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return counter
}
