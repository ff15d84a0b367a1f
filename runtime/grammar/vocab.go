package grammar

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"cedrun/runtime/prompt"
)

// Tokenizer is what a Vocab needs of one. *tokenizer.Tokenizer has it.
type Tokenizer interface {
	VocabSize() int
	ID(spelling string) (id int, ok bool)
	Token(id int) string // its bytes
	IsAdded(id int) bool // a control token, which plain text never gives
}

// Vocab is a tokenizer's vocabulary as grammars need it. It is safe for concurrent use.
type Vocab struct {
	size    int
	bytes   []string // of a plain token; "" for others
	trie    trie
	symbols symbols

	json, space     *dfa // strings and whitespace in content
	number, integer *dfa // any
	args            *dfa // strings in the JSON of tool arguments
	name            *dfa // names of parameters, without quotes
	raw, free, mind *dfa // text: tool arguments as is, content before calls, reasoning

	mu      sync.Mutex
	inner   map[innerKey]*inner
	formats map[formatKey]*dfa
}

// formatKey names the automaton of a format.
type formatKey struct {
	format    string
	raw, args bool
}

// symbols are the ids of control tokens; -1 where the vocabulary lacks one.
type symbols struct{ eos, dsml, thinkEnd int32 }

// Spellings that the reader of an output would take for control tokens: in content, and in the values of tool calls.
var (
	contentMarkers = []string{prompt.EOS, prompt.DSML, prompt.ThinkStart, prompt.ThinkEnd}
	valueMarkers   = []string{prompt.EOS, prompt.DSML}
)

// rawFollow is what comes after text in tool calls.
const rawFollow = "<"

// NewVocab prepares the vocabulary, which takes some tenths of a second for a large one.
func NewVocab(t Tokenizer) (*Vocab, error) {
	v := &Vocab{size: t.VocabSize(), bytes: make([]string, t.VocabSize()), inner: map[innerKey]*inner{}, formats: map[formatKey]*dfa{}}
	single := 0
	for id := range v.bytes {
		if t.IsAdded(id) {
			continue
		}
		v.bytes[id] = t.Token(id)
		if len(v.bytes[id]) == 1 {
			single++
		}
	}
	if single < 256 {
		return nil, fmt.Errorf("the vocabulary has tokens of %d single bytes; constrained output needs all 256", single)
	}
	id := func(spelling string) int32 {
		if n, ok := t.ID(spelling); ok {
			return int32(n)
		}
		return -1
	}
	v.symbols = symbols{eos: id(prompt.EOS), dsml: id(prompt.DSML), thinkEnd: id(prompt.ThinkEnd)}
	if v.symbols.eos < 0 {
		return nil, fmt.Errorf("the vocabulary has no token %s; constrained output needs it", prompt.EOS)
	}
	v.trie = newTrie(v.bytes)
	v.json, v.args, v.space = stringDFA(contentMarkers), stringDFA(valueMarkers), spaceDFA()
	v.name, _ = (&stringForm{pattern: `^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`, max: -1, without: valueMarkers, raw: true}).dfa(nil)
	v.name.follow = nil
	v.number, _ = (&numberRange{digits: maxFraction}).dfa(nil) // far below the limit, like the next
	v.integer, _ = (&numberRange{integer: true}).dfa(nil)
	v.raw = plainDFA(valueMarkers, rawFollow)
	v.free, v.mind = plainDFA(contentMarkers, rawFollow), plainDFA(contentMarkers, "")
	return v, nil
}

// Words is how many uint64 a mask has: one bit per token.
func (v *Vocab) Words() int { return (v.size + 63) / 64 }

// trie holds the plain tokens in preorder.
type trie struct {
	b     []byte  // the last byte of a node's path; node 0 is the root
	end   []int32 // first node behind the subtree
	depth []uint16
	first []int32 // into ids: tokens of node n are ids[first[n]:first[n+1]]
	ids   []int32
	most  int // bytes of the longest token, plus one
}

func newTrie(tokens []string) trie {
	order := make([]int32, 0, len(tokens))
	for id, s := range tokens {
		if s != "" {
			order = append(order, int32(id))
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(tokens[a], tokens[b]), cmp.Compare(a, b)) })
	t := trie{b: []byte{0}, end: []int32{0}, depth: []uint16{0}, first: []int32{0}}
	path := []int32{0} // nodes of the token before
	last := ""
	for _, id := range order {
		s := tokens[id]
		n := 0
		for n < len(s) && n < len(last) && s[n] == last[n] {
			n++
		}
		for _, node := range path[n+1:] {
			t.end[node] = int32(len(t.b))
		}
		path = path[:n+1]
		for ; n < len(s); n++ {
			path = append(path, int32(len(t.b)))
			t.b, t.end, t.depth = append(t.b, s[n]), append(t.end, 0), append(t.depth, uint16(n+1))
			t.first = append(t.first, int32(len(t.ids)))
		}
		t.ids = append(t.ids, id)
		last = s
	}
	for _, node := range path {
		t.end[node] = int32(len(t.b))
	}
	t.first = append(t.first, int32(len(t.ids)))
	t.most = int(slices.Max(t.depth)) + 1
	return t
}

// allow sets the bits of a node's tokens.
func (t *trie) allow(mask []uint64, node int32) {
	for _, id := range t.ids[t.first[node]:t.first[node+1]] {
		mask[id>>6] |= 1 << (id & 63)
	}
}

// inner is what an automaton alone says about the tokens that may come next.
type inner struct {
	mask  []uint64
	exits []int32 // nodes where the automaton may end and that have children that may follow
}

// innerKey is a state of an automaton and how many characters it still must and may read.
type innerKey struct {
	dfa      *dfa
	state    int32
	min, max int32
}

// maxInner bounds the cache; an entry for the released model takes about 16 KB.
const maxInner = 1024

func (v *Vocab) within(k innerKey) *inner {
	most := int32(v.trie.most)
	k.min = min(k.min, most)
	if k.max >= most {
		k.max = -1 // no token is so long
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if in, ok := v.inner[k]; ok {
		return in
	}
	if len(v.inner) >= maxInner {
		clear(v.inner)
	}
	in := v.walk(k)
	v.inner[k] = in
	return in
}

func (v *Vocab) walk(k innerKey) *inner {
	t := &v.trie
	in := &inner{mask: make([]uint64, v.Words())}
	stack := make([]word, t.most+1)
	stack[0] = word{k.state, k.min, k.max}
	n := int32(len(t.b))
	for node := int32(1); node < n; {
		w := stack[t.depth[node]-1]
		if !w.step(k.dfa, t.b[node]) {
			node = t.end[node]
			continue
		}
		stack[t.depth[node]] = w
		t.allow(in.mask, node)
		if w.ends(k.dfa) && t.leads(node, k.dfa.follow) {
			in.exits = append(in.exits, node)
		}
		node++
	}
	return in
}

// leads reports whether a node has a child that may follow.
func (t *trie) leads(node int32, follow *[256]bool) bool {
	for c := node + 1; c < t.end[node]; c = t.end[c] {
		if follow == nil || follow[t.b[c]] {
			return true
		}
	}
	return false
}

// word is a place in the text that an automaton reads.
type word struct{ state, min, max int32 }

// step reads a byte.
func (w *word) step(d *dfa, b byte) bool {
	to := d.step(w.state, b)
	if to < 0 {
		return false
	}
	w.state = to
	f := d.flags[to]
	switch {
	case f&(unit|within) != 0:
		if w.max == 0 {
			return false
		}
		if f&unit != 0 {
			w.min = max(w.min-1, 0)
			w.max = max(w.max-1, -1) // -1 stays
		}
	case f&accepts != 0 && w.min > 0:
		return false // a closing quote too early
	}
	return true
}

// ends reports whether the word may end here.
func (w *word) ends(d *dfa) bool { return w.min == 0 && d.flags[w.state]&accepts != 0 }
