package grammar

import "slices"

// finder is the Aho-Corasick automaton of strings that text must not contain.
type finder struct {
	next  [][256]uint8
	found []bool
}

// newFinder takes strings of fewer than 256 bytes in all.
func newFinder(list []string) *finder {
	f := &finder{next: make([][256]uint8, 1), found: make([]bool, 1)}
	for _, w := range list {
		s := uint8(0)
		for i := range len(w) {
			if f.next[s][w[i]] == 0 {
				f.next[s][w[i]] = uint8(len(f.next))
				f.next, f.found = append(f.next, [256]uint8{}), append(f.found, false)
			}
			s = f.next[s][w[i]]
		}
		f.found[s] = true
	}
	fail := make([]uint8, len(f.next))
	queue := []uint8{}
	for _, to := range f.next[0] {
		if to != 0 {
			queue = append(queue, to)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		f.found[s] = f.found[s] || f.found[fail[s]]
		for b := range 256 {
			if to := f.next[s][b]; to != 0 {
				fail[to] = f.next[fail[s]][b]
				queue = append(queue, to)
			} else {
				f.next[s][b] = f.next[fail[s]][b]
			}
		}
	}
	return f
}

// step returns false when b completes one of the strings.
func (f *finder) step(s *uint8, b byte) bool {
	*s = f.next[*s][b]
	return !f.found[*s]
}

// lead returns what a first byte of a character of UTF-8 asks of the next: how many follow, and the range of the first of
// them. need 0: no character of several bytes starts so.
func lead(b byte) (need, lo, hi uint8) {
	switch {
	case b < 0xC2 || b > 0xF4:
		return 0, 0, 0
	case b < 0xE0:
		return 1, 0x80, 0xBF
	case b == 0xE0:
		return 2, 0xA0, 0xBF
	case b == 0xED:
		return 2, 0x80, 0x9F
	case b < 0xF0:
		return 2, 0x80, 0xBF
	case b == 0xF0:
		return 3, 0x90, 0xBF
	case b == 0xF4:
		return 3, 0x80, 0x8F
	}
	return 3, 0x80, 0xBF
}

// phase is where in the text of a string an automaton is.
type phase uint8

const (
	opening phase = iota // before the first quote
	opened               // after it: no character yet
	between              // a character was completed
	closed               // after the last quote
	inside               // of a character of several bytes
	escaped              // after a backslash
	hex4                 // n hexadecimal digits are missing
	hex3
	hex2
	hex1
	hexD   // after \uD or \ud: a surrogate, or not
	highHi // a high surrogate has n digits to come
	highLo
	pairSlash // the second of a pair must follow
	pairU
	pairD
	pairC
	lowHi
	lowLo
)

type textState struct {
	phase        phase
	need, lo, hi uint8
	found        uint8
}

func (s textState) flags(json bool) flags {
	switch s.phase {
	case opening:
		return 0
	case opened, between:
		f := flags(0)
		if s.phase == between {
			f = unit
		}
		if !json {
			f |= accepts
		}
		return f
	case closed:
		return accepts
	}
	return within
}

// stringDFA is a JSON string without the given spellings in its text as written.
func stringDFA(without []string) *dfa {
	f := newFinder(without)
	d, _ := explore(nil, textState{}, func(s textState, b byte) (textState, bool) { // far below the limit
		switch {
		case s.phase == opening:
			s.phase = opened
			return s, b == '"'
		case (s.phase == opened || s.phase == between) && b == '"':
			return textState{phase: closed}, true
		case s.phase == closed || !f.step(&s.found, b):
			return s, false
		}
		ok := false
		s, ok = s.step(b)
		return s, ok
	}, func(s textState) flags { return s.flags(true) })
	return d
}

// plainDFA is text without the given spellings, which only the given bytes, or no text at all, may follow.
func plainDFA(without []string, follow string) *dfa {
	f := newFinder(without)
	d, _ := explore(nil, textState{phase: opened}, func(s textState, b byte) (textState, bool) { // far below the limit
		if !f.step(&s.found, b) {
			return s, false
		}
		if s.phase != inside && (b >= 0x20 || b == '\n' || b == '\t' || b == '\r') && b < 0x80 {
			s.phase = between
			return s, true
		}
		if b < 0x80 {
			return s, false
		}
		return s.step(b)
	}, func(s textState) flags { return s.flags(false) })
	return d.followedBy(follow)
}

// followedBy limits what may come after the end, so that few tokens need a closer look.
func (d *dfa) followedBy(follow string) *dfa {
	if d == nil {
		return nil
	}
	d.follow = new([256]bool)
	for i := range len(follow) {
		d.follow[follow[i]] = true
	}
	return d
}

// step reads a byte of the text of a JSON string.
func (s textState) step(b byte) (textState, bool) {
	switch s.phase {
	case opened, between:
		switch {
		case b == '\\':
			s.phase = escaped
		case b < 0x20:
			return s, false
		case b < 0x80:
			s.phase = between
		default:
			s.need, s.lo, s.hi = lead(b)
			if s.phase = inside; s.need == 0 {
				return s, false
			}
		}
		return s, true
	case inside:
		if b < s.lo || b > s.hi {
			return s, false
		}
		if s.need--; s.need == 0 {
			s.phase, s.lo, s.hi = between, 0, 0
		} else {
			s.lo, s.hi = 0x80, 0xBF
		}
		return s, true
	case escaped:
		if b == 'u' {
			s.phase = hex4
			return s, true
		}
		s.phase = between
		return s, slices.Contains([]byte(`"\/bfnrt`), b)
	case pairSlash:
		s.phase = pairU
		return s, b == '\\'
	case pairU:
		s.phase = pairD
		return s, b == 'u'
	}
	return s.hex(b)
}

// hex reads a digit of an escape. Half a surrogate pair is refused: it is no character.
func (s textState) hex(b byte) (textState, bool) {
	d, ok := hexDigit(b)
	if !ok {
		return s, false
	}
	switch s.phase {
	case hex4:
		if s.phase = hex3; d == 0xD {
			s.phase = hexD
		}
	case hex3:
		s.phase = hex2
	case hex2:
		s.phase = hex1
	case hex1, lowLo:
		s.phase = between
	case hexD:
		switch {
		case d < 8:
			s.phase = hex2
		case d < 0xC:
			s.phase = highHi
		default:
			return s, false
		}
	case highHi:
		s.phase = highLo
	case highLo:
		s.phase = pairSlash
	case pairD:
		s.phase = pairC
		return s, d == 0xD
	case pairC:
		s.phase = lowHi
		return s, d >= 0xC
	case lowHi:
		s.phase = lowLo
	}
	return s, true
}

func hexDigit(b byte) (uint8, bool) {
	switch {
	case b >= '0' && b <= '9':
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}

// nameDFA is a property name in quotes, without escapes or the given spellings, that is none of the taken ones.
func nameDFA(left *budget, without, taken []string) (*dfa, error) {
	f := newFinder(without)
	type edge struct {
		node int32
		b    byte
	}
	edges, ends := map[edge]int32{}, map[int32]bool{}
	for _, w := range taken {
		node := int32(1)
		for i := range len(w) {
			to, ok := edges[edge{node, w[i]}]
			if !ok {
				to = int32(len(edges) + 2)
				edges[edge{node, w[i]}] = to
			}
			node = to
		}
		ends[node] = true
	}
	type state struct {
		textState
		node int32 // 0: the name is none of those taken
	}
	return explore(left, state{node: 1}, func(s state, b byte) (state, bool) {
		switch {
		case s.phase == opening:
			s.phase = opened
			return s, b == '"'
		case (s.phase == opened || s.phase == between) && b == '"':
			return state{textState{phase: closed}, 0}, !ends[s.node]
		case s.phase == closed || b == '\\' || !f.step(&s.found, b):
			return s, false
		}
		s.node = edges[edge{s.node, b}]
		ok := false
		s.textState, ok = s.textState.step(b)
		return s, ok
	}, func(s state) flags { return s.textState.flags(true) &^ (unit | within) })
}

// spaceDFA is whitespace between JSON tokens, perhaps none: one space, or a newline with a limited indentation.
func spaceDFA() *dfa {
	const indent = 32
	d, _ := explore(nil, 0, func(s int, b byte) (int, bool) {
		switch {
		case s == 0 && b == ' ':
			return indent + 2, true
		case s == 0 && b == '\n':
			return 1, true
		case s >= 1 && s <= indent && b == ' ':
			return s + 1, true
		}
		return 0, false
	}, func(int) flags { return accepts })
	return d
}
