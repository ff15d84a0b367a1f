package tokenizer

import "hash/maphash"

// Options of Encode. The zero value is for text that is not trusted.
type Options struct {
	// AddedTokens recognises the spellings of added tokens in the text as these tokens.
	AddedTokens bool
}

// Encode returns the token ids of text. It adds no BOS or other token of its own.
func (t *Tokenizer) Encode(text string, o Options) []int32 { return t.AppendEncode(nil, text, o) }

// AppendEncode appends the token ids of text to ids.
func (t *Tokenizer) AppendEncode(ids []int32, text string, o Options) []int32 {
	e := t.pool.Get().(*encoder)
	e.ids = ids
	if o.AddedTokens {
		e.added(text, &t.raw, func(gap string) { e.added(gap, &t.late, e.plain) })
	} else {
		e.plain(text)
	}
	ids, e.ids = e.ids, nil
	t.pool.Put(e)
	return ids
}

// encoder is the state of one Encode call, with the words that earlier calls met.
type encoder struct {
	t     *Tokenizer
	scan  scanner
	word  func(string)
	ids   []int32
	seed  maphash.Seed
	cache []cachedWord
}

const (
	cacheSize  = 1 << 14
	cacheWord  = 30
	cacheTotal = 8
)

// cachedWord is one slot of a direct-mapped cache, 64 bytes.
type cachedWord struct {
	length, count uint8 // count 0: free
	word          [cacheWord]byte
	ids           [cacheTotal]int32
}

func newEncoder(t *Tokenizer) *encoder {
	e := &encoder{t: t, scan: scanner{classTable()}, seed: maphash.MakeSeed(), cache: make([]cachedWord, cacheSize)}
	e.word = e.encodeWord
	return e
}

// added appends the ids of s, in which the tokens of tr are matched leftmost-longest; gap handles the text between.
func (e *encoder) added(s string, tr *trie, gap func(string)) {
	start := 0
	for i := 0; i < len(s); {
		if !tr.first[s[i]] {
			i++
			continue
		}
		id, n := tr.longest(s[i:])
		if n == 0 {
			i++
			continue
		}
		if start < i {
			gap(s[start:i])
		}
		e.ids = append(e.ids, id)
		i += n
		start = i
	}
	if start < len(s) {
		gap(s[start:])
	}
}

func (e *encoder) plain(s string) { e.scan.split(s, e.word) }

func (e *encoder) encodeWord(w string) {
	if len(w) > cacheWord {
		e.ids = e.t.merge(e.ids, w)
		return
	}
	c := &e.cache[maphash.String(e.seed, w)%cacheSize]
	if c.count > 0 && string(c.word[:c.length]) == w {
		e.ids = append(e.ids, c.ids[:c.count]...)
		return
	}
	start := len(e.ids)
	e.ids = e.t.merge(e.ids, w)
	if n := len(e.ids) - start; n <= cacheTotal {
		c.length, c.count = uint8(copy(c.word[:], w)), uint8(copy(c.ids[:], e.ids[start:]))
	}
}

// trie finds added tokens. Nodes are numbered from 1; edges are keyed by node and byte.
type trie struct {
	first [256]bool
	edges map[uint32]uint32
	ids   map[uint32]int32 // of the nodes where a token ends
}

func newTrie() trie { return trie{edges: map[uint32]uint32{}, ids: map[uint32]int32{}} }

func (tr *trie) add(s string, id int32) {
	tr.first[s[0]] = true
	node := uint32(0)
	for i := range len(s) {
		key := node<<8 | uint32(s[i])
		next, ok := tr.edges[key]
		if !ok {
			next = uint32(len(tr.edges) + 1)
			tr.edges[key] = next
		}
		node = next
	}
	tr.ids[node] = id
}

// longest returns the longest token that s starts with, and its length; 0 when there is none.
func (tr *trie) longest(s string) (id int32, n int) {
	node := uint32(0)
	for i := range len(s) {
		next, ok := tr.edges[node<<8|uint32(s[i])]
		if !ok {
			break
		}
		node = next
		if v, ok := tr.ids[node]; ok {
			id, n = v, i+1
		}
	}
	return id, n
}
