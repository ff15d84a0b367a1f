package grammar

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Limits of a pattern.
const (
	maxPattern      = 4096 // bytes
	maxPatternInsts = 20000
)

// stringForm is a string with a pattern, a limited length, or both.
type stringForm struct {
	pattern  string // RE2, found anywhere; "" with none
	min, max int    // characters; max -1: any
	without  []string
	raw      bool // no quotes and no escapes
}

// dfa is nil if no string has the form.
func (f *stringForm) dfa(left *budget) (*dfa, error) {
	p, err := newPattern(f.pattern)
	if err != nil {
		return nil, err
	}
	start := p.begin()
	w := patternWalk{p: p, form: f, finder: newFinder(f.without)}
	first := patternState{phase: opening, set: start}
	if f.raw {
		first.phase = opened
	}
	d, err := explore(left, first, w.step, w.flags)
	if err == nil {
		err = p.err
	}
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", f.pattern, err)
	}
	if f.raw {
		d = d.followedBy(rawFollow)
	}
	return d, nil
}

// pattern is a regular expression that is made deterministic over characters as far as it is needed.
type pattern struct {
	prog *syntax.Prog
	ids  map[string]int32
	sets []patternSet
	err  error
}

// patternSet is a set of instructions.
type patternSet struct {
	insts []uint32
	start bool // nothing was read yet
	found bool // matched already: whatever follows
	end   bool // matches if the text ends here
	cuts  []rune
	to    []int32 // target of the characters from cuts[i] on; -1: none
}

func newPattern(expr string) (*pattern, error) {
	if len(expr) > maxPattern {
		return nil, fmt.Errorf("pattern: is longer than %d bytes", maxPattern)
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		var e *syntax.Error
		if errors.As(err, &e) {
			return nil, fmt.Errorf("pattern %q: %s: %q (patterns have RE2 syntax)", expr, e.Code, e.Expr)
		}
		return nil, fmt.Errorf("pattern %q: %w", expr, err)
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", expr, err)
	}
	if len(prog.Inst) > maxPatternInsts {
		return nil, fmt.Errorf("pattern %q: is too large: shorten its repetitions", expr)
	}
	for _, i := range prog.Inst {
		if i.Op == syntax.InstEmptyWidth && syntax.EmptyOp(i.Arg)&(syntax.EmptyWordBoundary|syntax.EmptyNoWordBoundary) != 0 {
			return nil, fmt.Errorf("pattern %q: word boundaries (\\b, \\B) are not supported", expr)
		}
	}
	return &pattern{prog: prog, ids: map[string]int32{}}, nil
}

func (p *pattern) begin() int32 { return p.intern([]uint32{uint32(p.prog.Start)}, true) }

// intern closes a list of instructions over empty ones and names the set.
func (p *pattern) intern(from []uint32, start bool) int32 {
	s := patternSet{start: start}
	seen := make([]bool, len(p.prog.Inst))
	for _, pc := range from {
		p.add(&s, pc, seen)
	}
	if !start {
		p.add(&s, uint32(p.prog.Start), seen) // a match may begin anywhere
	}
	if s.found {
		s.insts = nil
	}
	slices.Sort(s.insts)
	s.end = s.found || p.ends(s.insts, start)
	key := make([]byte, 0, 4*len(s.insts)+2)
	for _, pc := range s.insts {
		key = append(key, byte(pc), byte(pc>>8), byte(pc>>16))
	}
	key = append(key, b2i(s.start && !s.found), b2i(s.found))
	id, ok := p.ids[string(key)]
	if !ok {
		id = int32(len(p.sets))
		p.ids[string(key)] = id
		p.sets = append(p.sets, s)
	}
	return id
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// add puts pc, or what follows it without reading, into the set. Conditions on the end of the text stay in it.
func (p *pattern) add(s *patternSet, pc uint32, seen []bool) {
	if seen[pc] {
		return
	}
	seen[pc] = true
	i := &p.prog.Inst[pc]
	switch i.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		p.add(s, i.Out, seen)
		p.add(s, i.Arg, seen)
	case syntax.InstCapture, syntax.InstNop:
		p.add(s, i.Out, seen)
	case syntax.InstMatch:
		s.found = true
	case syntax.InstFail:
	case syntax.InstEmptyWidth:
		op := syntax.EmptyOp(i.Arg)
		if op&(syntax.EmptyBeginText|syntax.EmptyBeginLine) != 0 && !s.start {
			return
		}
		if op&(syntax.EmptyEndText|syntax.EmptyEndLine) != 0 {
			s.insts = append(s.insts, pc)
			return
		}
		p.add(s, i.Out, seen)
	default:
		s.insts = append(s.insts, pc)
	}
}

// ends reports whether the end of the text makes a match.
func (p *pattern) ends(insts []uint32, start bool) bool {
	seen := make(map[uint32]bool)
	var walk func(pc uint32) bool
	walk = func(pc uint32) bool {
		if seen[pc] {
			return false
		}
		seen[pc] = true
		i := &p.prog.Inst[pc]
		switch i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			return walk(i.Out) || walk(i.Arg)
		case syntax.InstCapture, syntax.InstNop:
			return walk(i.Out)
		case syntax.InstMatch:
			return true
		case syntax.InstEmptyWidth:
			return (start || syntax.EmptyOp(i.Arg)&(syntax.EmptyBeginText|syntax.EmptyBeginLine) == 0) && walk(i.Out)
		}
		return false
	}
	return slices.ContainsFunc(insts, walk)
}

// cut computes the intervals of characters that lead from a set to the same set.
func (p *pattern) cut(id int32) *patternSet {
	if s := &p.sets[id]; s.cuts != nil {
		return s
	}
	insts, found := p.sets[id].insts, p.sets[id].found
	if found {
		p.sets[id].cuts, p.sets[id].to = []rune{0}, []int32{id}
		return &p.sets[id]
	}
	cuts := []rune{0}
	for _, pc := range insts {
		i := &p.prog.Inst[pc]
		switch i.Op {
		case syntax.InstRuneAnyNotNL:
			cuts = append(cuts, '\n', '\n'+1)
		case syntax.InstRune, syntax.InstRune1:
			if len(i.Rune) == 1 { // perhaps in either case
				r := i.Rune[0]
				cuts = append(cuts, r, r+1)
				if syntax.Flags(i.Arg)&syntax.FoldCase != 0 {
					for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
						cuts = append(cuts, f, f+1)
					}
				}
				continue
			}
			for j := 0; j+1 < len(i.Rune); j += 2 {
				cuts = append(cuts, i.Rune[j], i.Rune[j+1]+1)
			}
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	to := make([]int32, len(cuts))
	var kept []rune
	for _, r := range cuts {
		var out []uint32
		for _, pc := range insts {
			i := &p.prog.Inst[pc]
			switch i.Op {
			case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
				if i.MatchRune(r) {
					out = append(out, i.Out)
				}
			}
		}
		target := p.intern(out, false)
		if len(p.sets[target].insts) == 0 && !p.sets[target].found {
			target = -1
		}
		if len(kept) > 0 && to[len(kept)-1] == target {
			continue
		}
		to[len(kept)] = target
		kept = append(kept, r)
	}
	if len(p.sets) > maxStates && p.err == nil {
		p.err = fmt.Errorf("needs an automaton of more than %d states: simplify it", maxStates)
	}
	s := &p.sets[id]
	s.cuts, s.to = kept, to[:len(kept)]
	return s
}

// on returns the set after any of the characters lo to hi, or -1 for none; same says that it is the same for all.
func (p *pattern) on(set int32, lo, hi rune) (to int32, same bool) {
	s := p.cut(set)
	i, exact := slices.BinarySearch(s.cuts, lo)
	if !exact {
		i--
	}
	return s.to[i], i+1 == len(s.cuts) || s.cuts[i+1] > hi
}

// escapes reports whether a character that is written as an escape may come next.
func (p *pattern) escapes(set int32) bool {
	for _, r := range []rune{'"', '\\'} {
		if to, _ := p.on(set, r, r); to >= 0 {
			return true
		}
	}
	to, same := p.on(set, 0, 0x1F)
	return to >= 0 || !same
}

type patternState struct {
	phase        phase
	set          int32
	part         rune // of a character of several bytes, while its rest decides
	need, lo, hi uint8
	fixed        bool // the set is the one after the character
	count        int32
	found        uint8
}

type patternWalk struct {
	p      *pattern
	form   *stringForm
	finder *finder
}

func (w *patternWalk) flags(s patternState) flags {
	if s.phase == closed || w.form.raw && w.ends(s) {
		return accepts
	}
	return 0
}

func (w *patternWalk) ends(s patternState) bool {
	return (s.phase == opened || s.phase == between) && w.p.sets[s.set].end && int(s.count) >= w.form.min
}

func (w *patternWalk) step(s patternState, b byte) (patternState, bool) {
	switch {
	case w.p.err != nil:
		return s, false
	case s.phase == opening:
		s.phase = opened
		return s, b == '"'
	case !w.form.raw && (s.phase == opened || s.phase == between) && b == '"':
		return patternState{phase: closed}, w.ends(s)
	case s.phase == closed || !w.finder.step(&s.found, b):
		return s, false
	}
	switch s.phase {
	case opened, between:
		switch {
		case b == '\\' && !w.form.raw:
			s.phase = escaped
			return s, w.p.escapes(s.set)
		case b < 0x20 && !(w.form.raw && (b == '\n' || b == '\t' || b == '\r')):
			return s, false
		case b < 0x80:
			return w.character(s, rune(b))
		}
		if s.need, s.lo, s.hi = lead(b); s.need == 0 {
			return s, false
		}
		s.phase = inside
		s.part = rune(b) & (1<<(6-s.need) - 1)
		return w.narrow(s)
	case inside:
		if b < s.lo || b > s.hi {
			return s, false
		}
		s.need--
		if s.fixed {
			if s.lo, s.hi = 0x80, 0xBF; s.need == 0 {
				return w.completed(s, s.set)
			}
			return s, true
		}
		s.part = s.part<<6 | rune(b&0x3F)
		if s.need == 0 {
			return w.character(s, s.part)
		}
		s.lo, s.hi = 0x80, 0xBF
		return w.narrow(s)
	case escaped:
		for i, c := range `"\nrtbf` {
			if rune(b) == c {
				return w.character(s, []rune("\"\\\n\r\t\b\f")[i])
			}
		}
		s.phase = hex4
		return s, b == 'u'
	case hex4, hex3:
		s.phase++
		return s, b == '0'
	case hex2:
		s.phase, s.part = hex1, rune(b-'0')
		return s, b == '0' || b == '1'
	case hex1:
		d, ok := hexDigit(b)
		if !ok || b >= 'A' && b <= 'F' {
			return s, false
		}
		return w.character(s, s.part<<4|rune(d))
	}
	return s, false
}

// narrow goes on at once if all characters that can come of the bytes read lead to the same set.
func (w *patternWalk) narrow(s patternState) (patternState, bool) {
	lo := (s.part<<6 | rune(s.lo&0x3F)) << (6 * (s.need - 1))
	hi := (s.part<<6|rune(s.hi&0x3F))<<(6*(s.need-1)) | (1<<(6*(s.need-1)) - 1)
	to, same := w.p.on(s.set, lo, min(hi, utf8.MaxRune))
	if !same {
		return s, true
	}
	s.set, s.part, s.fixed = to, 0, true
	return s, to >= 0
}

// character goes on after a whole character.
func (w *patternWalk) character(s patternState, r rune) (patternState, bool) {
	to, _ := w.p.on(s.set, r, r)
	return w.completed(s, to)
}

func (w *patternWalk) completed(s patternState, set int32) (patternState, bool) {
	if set < 0 || w.form.max >= 0 && int(s.count) >= w.form.max {
		return s, false
	}
	if w.form.max >= 0 || int(s.count) < w.form.min {
		s.count++
	}
	return patternState{phase: between, set: set, count: s.count, found: s.found}, true
}
