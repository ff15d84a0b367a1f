package tokenizer

// pairValue is what a pair of neighbouring tokens becomes, and how early.
type pairValue struct{ rank, id int32 }

// pairTable maps (left, right) to a pairValue by open addressing.
type pairTable struct {
	mask  uint64
	slots []pairSlot
}

type pairSlot struct {
	key   uint64 // 0: free
	value pairValue
}

func newPairTable(n int) *pairTable {
	size := 8
	for size < n*2 {
		size <<= 1
	}
	return &pairTable{mask: uint64(size - 1), slots: make([]pairSlot, size)}
}

// The key of a used slot is not 0: the lower half is one more than an id below 2^31.
func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)+1) }

func (t *pairTable) slot(key uint64) uint64 { return (key * 0x9E3779B97F4A7C15) >> 32 & t.mask }

// put enters a pair; a later entry for the same pair replaces the earlier one.
func (t *pairTable) put(left, right int32, v pairValue) {
	key := pairKey(left, right)
	i := t.slot(key)
	for t.slots[i].key != 0 && t.slots[i].key != key {
		i = (i + 1) & t.mask
	}
	t.slots[i] = pairSlot{key, v}
}

func (t *pairTable) get(left, right int32) (pairValue, bool) {
	key := pairKey(left, right)
	for i := t.slot(key); ; i = (i + 1) & t.mask {
		switch t.slots[i].key {
		case key:
			return t.slots[i].value, true
		case 0:
			return pairValue{}, false
		}
	}
}

// shortWord is the longest word, in bytes, that is merged by scanning; above it the quadratic cost would show.
const shortWord = 96

const noRank = int32(1<<31 - 1)

// merge appends the tokens of one word: the pair of the lowest rank is merged first, the leftmost of equals.
func (t *Tokenizer) merge(ids []int32, word string) []int32 {
	if len(word) > shortWord {
		return t.mergeLong(ids, word)
	}
	var parts [shortWord]int32
	var joined [shortWord]pairValue // of parts[i] and parts[i+1]
	n := len(word)
	for i := range n {
		parts[i] = t.byteID[word[i]]
	}
	look := func(i int) {
		v, ok := t.pairs.get(parts[i], parts[i+1])
		if !ok {
			v.rank = noRank
		}
		joined[i] = v
	}
	for i := range n - 1 {
		look(i)
	}
	for n > 1 {
		best, at := noRank, -1
		for i := range n - 1 {
			if joined[i].rank < best {
				best, at = joined[i].rank, i
			}
		}
		if at < 0 {
			break
		}
		parts[at] = joined[at].id
		copy(parts[at+1:n-1], parts[at+2:n])
		copy(joined[at:n-2], joined[at+1:n-1])
		n--
		if at > 0 {
			look(at - 1)
		}
		if at+1 < n {
			look(at)
		}
	}
	return append(ids, parts[:n]...)
}

// mergeItem is a possible merge of the part at pos with its successor, as they were when it was queued.
type mergeItem struct {
	rank, pos   int32
	left, right int32
}

func (a mergeItem) before(b mergeItem) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

// mergeLong is merge for long words, in O(n log n).
func (t *Tokenizer) mergeLong(ids []int32, word string) []int32 {
	n := len(word)
	type part struct{ id, prev, next int32 }
	parts := make([]part, n)
	for i := range parts {
		parts[i] = part{t.byteID[word[i]], int32(i - 1), int32(i + 1)}
	}
	parts[n-1].next = -1

	queue := make(mergeQueue, 0, n)
	look := func(i int32) {
		if i < 0 || parts[i].next < 0 {
			return
		}
		left, right := parts[i].id, parts[parts[i].next].id
		if v, ok := t.pairs.get(left, right); ok {
			queue.push(mergeItem{v.rank, i, left, right})
		}
	}
	for i := range parts {
		look(int32(i))
	}
	for len(queue) > 0 {
		x := queue.pop()
		p := &parts[x.pos]
		if p.id != x.left || p.next < 0 || parts[p.next].id != x.right {
			continue
		}
		v, _ := t.pairs.get(x.left, x.right)
		p.id = v.id
		gone := &parts[p.next]
		gone.id = -1
		p.next = gone.next
		if p.next >= 0 {
			parts[p.next].prev = x.pos
		}
		look(p.prev)
		look(x.pos)
	}
	for i := int32(0); i >= 0; i = parts[i].next {
		ids = append(ids, parts[i].id)
	}
	return ids
}

// mergeQueue is a binary heap, the first item to merge on top.
type mergeQueue []mergeItem

func (q *mergeQueue) push(x mergeItem) {
	h := append(*q, x)
	*q = h
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !x.before(h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = x
}

func (q *mergeQueue) pop() mergeItem {
	h := *q
	top, x := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	*q = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].before(h[down]) {
			down++
		}
		if !h[down].before(x) {
			break
		}
		h[i] = h[down]
		i = down
	}
	h[i] = x
	return top
}
