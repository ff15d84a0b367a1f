package engram

import (
	"fmt"
	"math"
	"math/big"
)

// Params are the configuration values that determine the hash.
type Params struct {
	Layers   []int // layers that have an Engram module, in configuration order
	MaxNgram int   // largest n-gram order; orders 2 to MaxNgram are hashed
	Bucket   int   // least size of one head's table
	Heads    int   // hash heads per order
	Classes  int   // number of compressed ids
	PadToken int   // token whose compressed id stands for what is not there
}

func (p Params) validate() error {
	switch {
	case len(p.Layers) == 0:
		return fmt.Errorf("engram: no layers are given")
	case p.MaxNgram < 2 || p.MaxNgram > 16:
		return fmt.Errorf("engram: the largest n-gram order is %d, want 2 to 16", p.MaxNgram)
	case p.Bucket < 1 || p.Bucket > 1<<40:
		return fmt.Errorf("engram: the bucket size is %d, want 1 to 2^40", p.Bucket)
	case p.Heads < 1 || p.Heads > 256:
		return fmt.Errorf("engram: the number of heads is %d, want 1 to 256", p.Heads)
	case p.Classes < 1 || p.Classes > 1<<30:
		return fmt.Errorf("engram: the number of compressed ids is %d, want 1 to 2^30", p.Classes)
	}
	seen := make(map[int]bool)
	for _, l := range p.Layers {
		if l < 0 || l > math.MaxInt32/layerSeed {
			return fmt.Errorf("engram: layer %d is out of range", l)
		}
		if seen[l] {
			return fmt.Errorf("engram: layer %d appears twice", l)
		}
		seen[l] = true
	}
	return nil
}

// Layer holds the hash constants of one layer. Column c = (order-2)*heads + head.
type Layer struct {
	ID          int
	Multipliers []int64 // MaxNgram factors, the current token's first; a factor times a compressed id stays below 2^63
	Primes      []int64 // by column: rows of the head's table
	Offsets     []int64 // by column: first row of the head's table
	Rows        int64   // of the layer's table, the sum of Primes
}

// layerSeed times the layer's number seeds the generator of its multipliers.
const layerSeed = 10007

// Derive computes the constants of every layer of p, in the order of p.Layers.
func Derive(p Params) ([]Layer, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	bound := max(1, math.MaxInt64/uint64(p.Classes)/2)
	used := make(map[int64]bool) // primes are distinct over all layers
	layers := make([]Layer, len(p.Layers))
	for i, id := range p.Layers {
		l := Layer{ID: id}
		g := newPCG64(uint64(layerSeed * id))
		for range p.MaxNgram {
			l.Multipliers = append(l.Multipliers, int64(2*g.below(bound)+1))
		}
		for range p.MaxNgram - 1 {
			n := int64(p.Bucket)
			for range p.Heads {
				for used[n] || !big.NewInt(n).ProbablyPrime(0) { // exact below 2^64
					n++
				}
				used[n] = true
				l.Primes = append(l.Primes, n)
				l.Offsets = append(l.Offsets, l.Rows)
				l.Rows += n
			}
		}
		layers[i] = l
	}
	return layers, nil
}
