package engram

import "fmt"

// Dead is the compressed id of a position that n-grams must not reach: a position of an image span, or none at all.
const Dead int32 = -1

// Hasher maps token histories to table rows. It is immutable and safe for concurrent use.
type Hasher struct {
	tokenMap []int32
	pad      int64
	orders   int
	heads    int
	layers   []Layer
	byID     map[int]int
}

// NewHasher combines the constants of p with a token map. The map must have exactly p.Classes compressed ids, since the
// multipliers depend on their number.
func NewHasher(p Params, tokenMap []int32) (*Hasher, error) {
	layers, err := Derive(p)
	if err != nil {
		return nil, err
	}
	if err := checkMap(tokenMap, p.Classes); err != nil {
		return nil, err
	}
	if p.PadToken < 0 || p.PadToken >= len(tokenMap) {
		return nil, fmt.Errorf("engram: the pad token %d is outside the vocabulary of %d", p.PadToken, len(tokenMap))
	}
	h := &Hasher{
		tokenMap: tokenMap, pad: int64(tokenMap[p.PadToken]), orders: p.MaxNgram - 1, heads: p.Heads,
		layers: layers, byID: make(map[int]int, len(layers)),
	}
	for i, l := range layers {
		h.byID[l.ID] = i
	}
	return h, nil
}

// checkMap requires compressed ids numbered by first appearance, classes of them.
func checkMap(tokenMap []int32, classes int) error {
	next := int32(0)
	for id, c := range tokenMap {
		if c < 0 || c > next {
			return fmt.Errorf("engram: token_map[%d] is %d, but compressed ids are numbered by first appearance and the next one is %d", id, c, next)
		}
		if c == next {
			next++
		}
	}
	if int(next) != classes {
		return fmt.Errorf("engram: the token map has %d compressed ids, but the configuration says %d: the tokenizer is not the one that the model was trained with", next, classes)
	}
	return nil
}

// Layers returns the constants in configuration order. They must not be changed.
func (h *Hasher) Layers() []Layer { return h.layers }

// Columns returns the number of rows that one position looks up in one layer.
func (h *Hasher) Columns() int { return h.orders * h.heads }

// Lookback returns how many positions before the current one matter.
func (h *Hasher) Lookback() int { return h.orders }

// VocabSize returns the number of token ids that Compress takes.
func (h *Hasher) VocabSize() int { return len(h.tokenMap) }

// Compress appends the compressed ids of ids to dst. Positions where dead is set become Dead, whatever their id; a nil
// dead means none. An id outside the vocabulary becomes Dead too: it has no n-grams.
func (h *Hasher) Compress(dst, ids []int32, dead []bool) []int32 {
	for i, id := range ids {
		if dead != nil && dead[i] || id < 0 || int(id) >= len(h.tokenMap) {
			dst = append(dst, Dead)
			continue
		}
		dst = append(dst, h.tokenMap[id])
	}
	return dst
}

// Rows returns the table rows [Columns] of position pos in a layer; history holds the compressed ids from position 0 on.
// It returns nil for a layer without Engram.
func (h *Hasher) Rows(layer int, history []int32, pos int) []int64 {
	return h.AppendRows(nil, layer, history[:pos], history[pos:pos+1])
}

// AppendRows appends the rows [len(ids)][Columns] of consecutive positions to dst. ids are their compressed ids, before
// those of the positions in front of the first, in order; what is missing there (fewer than Lookback, or Dead) blocks.
func (h *Hasher) AppendRows(dst []int64, layer int, before, ids []int32) []int64 {
	i, ok := h.byID[layer]
	if !ok {
		return dst
	}
	l := &h.layers[i]
	at := func(pos int) int32 { // pos counts from the first of ids
		switch {
		case pos >= 0:
			return ids[pos]
		case pos+len(before) >= 0:
			return before[pos+len(before)]
		}
		return Dead
	}
	for pos := range ids {
		blocked := false
		term := func(s int) int64 {
			t := Dead
			if !blocked {
				t = at(pos - s)
			}
			if t == Dead {
				blocked = true
				return h.pad * l.Multipliers[s]
			}
			return int64(t) * l.Multipliers[s]
		}
		mix := term(0)
		for s := 1; s <= h.orders; s++ {
			mix ^= term(s)
			for c := (s - 1) * h.heads; c < s*h.heads; c++ {
				dst = append(dst, int64(uint64(mix)%uint64(l.Primes[c]))+l.Offsets[c])
			}
		}
	}
	return dst
}
