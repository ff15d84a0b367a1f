package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
)

// Limits of what a grammar keeps while it is used.
const (
	maxThreads = 320 // of a state
	maxFrames  = 1 << 15
	maxMasks   = 128
)

// Grammar is a compiled form of outputs. It is safe for concurrent use.
type Grammar struct {
	vocab *Vocab
	insts []inst
	start int32

	mu     sync.Mutex
	frames map[frame]*stack
	named  uint32
	masks  map[string][]uint64
	work   [][]thread // scratch of one level of a walk each
	seen   map[visit]struct{}
}

// frame is a place to return to.
type frame struct {
	pc    int32
	below *stack
}

// stack is an interned list of frames; nil is the empty one.
type stack struct {
	frame
	depth int32
	id    uint32
}

// thread is one way to read what was read: the next instruction reads or is the end.
type thread struct {
	pc int32
	word
	stack *stack
}

type visit struct {
	pc    int32
	stack *stack
}

// Matcher follows one output. One goroutine uses it.
type Matcher struct {
	g     *Grammar
	state []thread // never changed in place: clones share it
	mask  []uint64 // of state, once asked
	ended bool
}

// Start returns the matcher of an output that has not begun.
func (g *Grammar) Start() *Matcher {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forget()
	state := g.close(nil, g.start, nil)
	return &Matcher{g: g, state: slices.Clone(state[:min(len(state), maxThreads)])}
}

// Clone returns a matcher in the same state that goes its own way.
func (m *Matcher) Clone() *Matcher {
	c := *m
	return &c
}

// Ended reports whether the end of the text was accepted.
func (m *Matcher) Ended() bool { return m.ended }

// Complete reports whether the text may end here.
func (m *Matcher) Complete() bool {
	return m.ended || slices.ContainsFunc(m.state, func(t thread) bool { return m.g.insts[t.pc].op == opEnd })
}

// Done reports whether nothing but the end of the text can follow.
func (m *Matcher) Done() bool {
	return m.ended || !slices.ContainsFunc(m.state, func(t thread) bool { return m.g.insts[t.pc].op != opEnd })
}

// Mask returns the set of the tokens that may come next, a bit for each id [Vocab.Words]. It is not empty before the end
// and must not be changed.
func (m *Matcher) Mask() []uint64 {
	if m.mask == nil {
		m.mask = m.g.maskOf(m.state, m.ended)
	}
	return m.mask
}

// Accept takes the next token. One that the mask does not allow is an error and changes nothing.
func (m *Matcher) Accept(id int32) error {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if id < 0 || int(id) >= g.vocab.size {
		return fmt.Errorf("token %d is not in the vocabulary", id)
	}
	state := m.state
	bytes := g.vocab.bytes[id]
	ended := false
	switch {
	case m.ended:
		state = nil
	case bytes != "":
		for i := 0; i < len(bytes) && len(state) > 0; i++ {
			state = g.step(nil, state, bytes[i])
		}
	default:
		state, ended = g.symbol(state, id)
	}
	if len(state) == 0 && !ended {
		return fmt.Errorf("token %d (%q) does not fit the form of the output", id, clip(bytes))
	}
	if len(state) > maxThreads {
		state = state[:maxThreads]
	}
	m.state, m.ended, m.mask = slices.Clone(state), ended, nil
	return nil
}

func clip(s string) string { return s[:min(len(s), 40)] }

// symbol reads a control token.
func (g *Grammar) symbol(state []thread, id int32) (out []thread, ended bool) {
	g.forget()
	for _, t := range state {
		switch x := &g.insts[t.pc]; {
		case x.op == opSymbol && x.symbol == id:
			out = g.close(out, x.next, t.stack)
		case x.op == opEnd && id == g.vocab.symbols.eos:
			ended = true
		}
	}
	return out, ended
}

// step appends the threads after a byte to out.
func (g *Grammar) step(out, state []thread, b byte) []thread {
	g.forget()
	for _, t := range state {
		x := &g.insts[t.pc]
		switch x.op {
		case opByte:
			if x.b == b {
				out = g.close(out, x.next, t.stack)
			}
		case opWord:
			if !t.word.step(x.dfa, b) {
				continue
			}
			out = append(out, t)
			if t.ends(x.dfa) {
				out = g.close(out, x.next, t.stack)
			}
		}
	}
	return out
}

// forget begins a new set of visited places.
func (g *Grammar) forget() {
	if len(g.seen) > 256 {
		g.seen = map[visit]struct{}{}
		return
	}
	clear(g.seen)
}

// close appends the threads at pc, or those that follow it without reading.
func (g *Grammar) close(out []thread, pc int32, s *stack) []thread {
	for {
		x := &g.insts[pc]
		depth := int32(0)
		if s != nil {
			depth = s.depth
		}
		if x.height == never || depth+x.height > MaxDepth {
			return out
		}
		v := visit{pc, s}
		if _, again := g.seen[v]; again {
			return out
		}
		g.seen[v] = struct{}{}
		switch x.op {
		case opSplit:
			if len(x.alt) == 0 {
				return out
			}
			for _, to := range x.alt[:len(x.alt)-1] {
				out = g.close(out, to, s)
			}
			pc = x.alt[len(x.alt)-1]
		case opCall:
			if g.insts[x.next].op != opReturn { // else the rule returns to where this one does
				s = g.push(x.next, s)
			}
			pc = x.alt[0]
		case opReturn:
			pc, s = s.pc, s.below
		case opWord:
			t := thread{pc, word{0, x.min, x.max}, s}
			out = append(out, t)
			if !t.ends(x.dfa) {
				return out
			}
			pc = x.next
		default:
			return append(out, thread{pc: pc, stack: s})
		}
	}
}

func (g *Grammar) push(pc int32, below *stack) *stack {
	f := frame{pc, below}
	if s, ok := g.frames[f]; ok {
		return s
	}
	if len(g.frames) >= maxFrames {
		clear(g.frames) // those in use stay; equal ones may come twice, which only costs time
	}
	g.named++
	s := &stack{frame: f, depth: 1, id: g.named}
	if below != nil {
		s.depth = below.depth + 1
	}
	g.frames[f] = s
	return s
}

func (g *Grammar) maskOf(state []thread, ended bool) []uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ended {
		return make([]uint64, g.vocab.Words())
	}
	key := g.key(state)
	if mask, ok := g.masks[key]; ok {
		return mask
	}
	if len(g.masks) >= maxMasks {
		clear(g.masks)
	}
	mask := g.compute(state)
	g.masks[key] = mask
	return mask
}

// key names a state; characters that no token can exhaust count as many.
func (g *Grammar) key(state []thread) string {
	most := int32(g.vocab.trie.most)
	key := make([]byte, 0, 20*len(state))
	for _, t := range state {
		id := uint32(0)
		if t.stack != nil {
			id = t.stack.id
		}
		if t.max >= most {
			t.max = -1
		}
		for _, x := range []uint32{uint32(t.pc), uint32(t.state), uint32(min(t.min, most)), uint32(t.max), id} {
			key = binary.LittleEndian.AppendUint32(key, x)
		}
	}
	return string(key)
}

func (g *Grammar) compute(state []thread) []uint64 {
	v := g.vocab
	mask := make([]uint64, v.Words())
	var bytes []thread
	for _, t := range state {
		x := &g.insts[t.pc]
		switch x.op {
		case opByte:
			bytes = append(bytes, t)
		case opWord:
			in := v.within(innerKey{x.dfa, t.state, t.min, t.max})
			for i, w := range in.mask {
				mask[i] |= w
			}
			if len(in.exits) == 0 {
				continue
			}
			g.forget()
			after := slices.Clone(g.close(nil, x.next, t.stack))
			if !slices.ContainsFunc(after, func(t thread) bool { return g.insts[t.pc].op <= opWord }) {
				continue
			}
			for _, node := range in.exits {
				g.walk(mask, after, node, 0)
			}
		case opSymbol:
			mask[x.symbol>>6] |= 1 << (x.symbol & 63)
		case opEnd:
			mask[v.symbols.eos>>6] |= 1 << (v.symbols.eos & 63)
		}
	}
	if len(bytes) > 0 {
		g.walk(mask, bytes, 0, 0)
	}
	return mask
}

// walk allows the tokens below a node that state can read.
func (g *Grammar) walk(mask []uint64, state []thread, node int32, level int) {
	t := &g.vocab.trie
	if level == len(g.work) {
		g.work = append(g.work, nil)
	}
	for c := node + 1; c < t.end[node]; c = t.end[c] {
		after := g.step(g.work[level][:0], state, t.b[c])
		g.work[level] = after
		if len(after) == 0 {
			continue
		}
		t.allow(mask, c)
		if c+1 < t.end[c] {
			g.walk(mask, after, c, level+1)
		}
	}
}
