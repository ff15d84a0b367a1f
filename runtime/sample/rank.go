package sample

import (
	"iter"
	"math"
	"math/bits"
	"slices"
)

// Tokens are ranked by (logit descending, id ascending). Sorting a large vocabulary for each token would cost more than
// all else, so tokens are first put in bins by the distance of their logit from the largest, and only the bin in which a
// filter cuts is sorted.
const (
	binsPerUnit = 64
	binCount    = 64*binsPerUnit + 1 // the last bin takes all that is further away
)

type bin struct {
	count int
	mass  float64
}

// bins knows which of its bins are in use, so that a small vocabulary does not pay for all of them.
type bins struct {
	all  [binCount]bin
	used [(binCount + 63) / 64]uint64
}

func (b *bins) at(i int) *bin {
	b.used[i>>6] |= 1 << (i & 63)
	return &b.all[i]
}

func (b *bins) reset() {
	for i := range b.nearest() {
		b.all[i] = bin{}
	}
	clear(b.used[:])
}

// nearest are the bins in use, the one of the largest logit first.
func (b *bins) nearest() iter.Seq[int] {
	return func(yield func(int) bool) {
		for word, set := range b.used {
			for ; set != 0; set &= set - 1 {
				if !yield(word<<6 + bits.TrailingZeros64(set)) {
					return
				}
			}
		}
	}
}

func binOf(top, l float32) int {
	d := float64(top) - float64(l)
	if d >= (binCount-1)/binsPerUnit {
		return binCount - 1
	}
	return int(d * binsPerUnit)
}

// cut is the last token in rank that the filters keep.
type cut struct {
	logit float32
	id    int
}

// lastKept applies top_k, then top_p.
func (w *workspace) lastKept(p *Params, top float32) cut {
	largest, scale := float64(top), 1/p.Temperature
	switch {
	case p.TopK > 0 && p.TopK < len(w.logits):
		ranked := w.first(p.TopK, top)
		if p.TopP < 1 {
			total := 0.0
			for _, k := range ranked {
				total += weight(w.logits[keyID(k)], largest, scale)
			}
			ranked = w.share(ranked, p.TopP*total, largest, scale)
		}
		return w.cutAfter(ranked)
	case p.TopP < 1:
		return w.cutAfter(w.nucleusEnd(p.TopP, top, scale))
	}
	return cut{float32(math.Inf(-1)), len(w.logits)} // all stay
}

// first returns the keys of the n highest tokens above -Inf, ranked; fewer when there are not as many.
func (w *workspace) first(n int, top float32) []uint64 {
	w.bins.reset()
	for _, l := range w.logits {
		w.bins.at(binOf(top, l)).count++
	}
	last, count := 0, 0
	for last = range w.bins.nearest() {
		if count += w.bins.all[last].count; count >= n {
			break
		}
	}
	ranked := w.rank(top, 0, last)
	return ranked[:min(n, len(ranked))]
}

// nucleusEnd returns the keys of one bin, ranked, up to the token at which the total weight of it and all before reaches
// the share p of all.
func (w *workspace) nucleusEnd(p float64, top float32, scale float64) []uint64 {
	largest := float64(top)
	w.bins.reset()
	for part := range slices.Chunk(w.logits, stride) {
		weigh(w.weights[:], part, largest, scale)
		for i, l := range part {
			w.bins.at(binOf(top, l)).mass += w.weights[i]
		}
	}
	total := 0.0
	for i := range w.bins.nearest() {
		total += w.bins.all[i].mass
	}
	last, sum := 0, 0.0
	for last = range w.bins.nearest() {
		if sum+w.bins.all[last].mass >= p*total {
			break
		}
		sum += w.bins.all[last].mass
	}
	return w.share(w.rank(top, last, last), p*total-sum, largest, scale)
}

// share returns the shortest prefix of ranked tokens that weighs at least want, or all of them when rounding leaves their
// sum short of it.
func (w *workspace) share(ranked []uint64, want, largest, scale float64) []uint64 {
	sum := 0.0
	for i, k := range ranked {
		if sum += weight(w.logits[keyID(k)], largest, scale); sum >= want {
			return ranked[:i+1]
		}
	}
	return ranked
}

func (w *workspace) cutAfter(ranked []uint64) cut {
	id := keyID(ranked[len(ranked)-1])
	return cut{w.logits[id], id}
}

// rank returns the keys of the tokens above -Inf in the bins from..to, ascending.
func (w *workspace) rank(top float32, from, to int) []uint64 {
	w.ranked = w.ranked[:0]
	for id, l := range w.logits {
		if b := binOf(top, l); b >= from && b <= to && l >= -math.MaxFloat32 {
			w.ranked = append(w.ranked, rankKey(l, id))
		}
	}
	slices.Sort(w.ranked)
	return w.ranked
}

// rankKey orders tokens by rank.
func rankKey(l float32, id int) uint64 {
	if l == 0 {
		l = 0 // -0 and +0 are equal
	}
	b := math.Float32bits(l)
	if b>>31 == 0 {
		b ^= 1<<31 - 1 // larger positive numbers first
	}
	return uint64(b)<<32 | uint64(uint32(id))
}

func keyID(key uint64) int { return int(uint32(key)) }
