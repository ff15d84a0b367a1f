package tokenizer

import (
	"sync"
	"unicode/utf8"

	"cedrun/runtime/tokenizer/ucd"
)

// Classes that the patterns need besides those of Unicode.
const (
	classKana    ucd.Class = 1 << (iota + 5) // second pattern: CJK ideographs, hiragana, katakana
	classNewline                             // \r and \n
	classAlpha                               // A-Z and a-z
)

var classTable = sync.OnceValue(func() *ucd.Table {
	return ucd.NewTable(func(r rune, c ucd.Class) ucd.Class {
		switch {
		case r >= 0x4e00 && r <= 0x9fa5 || r >= 0x3040 && r <= 0x30ff:
			c |= classKana
		case r == '\n' || r == '\r':
			c |= classNewline
		case r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z':
			c |= classAlpha
		}
		return c
	})
})

// scanner splits text into the words that merging is confined to.
type scanner struct{ classes *ucd.Table }

// at returns the class and length of the character at s[i:]; 0, 0 at the end. An invalid byte counts as U+FFFD.
func (sc scanner) at(s string, i int) (ucd.Class, int) {
	if i >= len(s) {
		return 0, 0
	}
	if b := s[i]; b < utf8.RuneSelf {
		return sc.classes[0][b], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return sc.classes.Of(r), n
}

// run returns the end of the longest run of characters from i whose class meets want.
func (sc scanner) run(s string, i int, want ucd.Class) int {
	for i < len(s) {
		c, n := sc.at(s, i)
		if c&want == 0 {
			break
		}
		i += n
	}
	return i
}

// split calls emit with each word of s in order. It applies the first two patterns, up to three digits and a run of CJK
// or kana, and passes everything but the digits to the third.
func (sc scanner) split(s string, emit func(word string)) {
	for i := 0; i < len(s); {
		c, n := sc.at(s, i)
		j := i + n
		switch {
		case c&ucd.Number != 0:
			for k := 1; k < 3; k++ {
				if c, n = sc.at(s, j); c&ucd.Number == 0 {
					break
				}
				j += n
			}
			emit(s[i:j])
		case c&classKana != 0:
			j = sc.run(s, j, classKana)
			sc.splitThird(s[i:j], emit)
		default:
			for j < len(s) {
				if c, n = sc.at(s, j); c&(ucd.Number|classKana) != 0 {
					break
				}
				j += n
			}
			sc.splitThird(s[i:j], emit)
		}
		i = j
	}
}

// splitThird applies the third pattern; what lies between two matches is a word too.
func (sc scanner) splitThird(s string, emit func(word string)) {
	gap := 0
	for i := 0; i < len(s); {
		end, n := sc.matchThird(s, i)
		if end < 0 {
			i += n
			continue
		}
		if gap < i {
			emit(s[gap:i])
		}
		emit(s[i:end])
		i, gap = end, end
	}
	if gap < len(s) {
		emit(s[gap:])
	}
}

// matchThird returns the end of the third pattern's match at i, or -1; n is the length of the character at i. The cases
// are the pattern's alternatives in order.
func (sc scanner) matchThird(s string, i int) (end, n int) {
	const word = ucd.Letter | ucd.Mark
	c, n := sc.at(s, i)
	next, n1 := sc.at(s, i+n)
	switch {
	case s[i] < utf8.RuneSelf && c&ucd.PunctSymbol != 0 && next&classAlpha != 0:
		return sc.run(s, i+n, classAlpha), n
	case c&word != 0:
		return sc.run(s, i+n, word), n
	case c&(classNewline|ucd.PunctSymbol) == 0 && next&word != 0:
		return sc.run(s, i+n+n1, word), n
	case c&ucd.PunctSymbol != 0:
		return sc.run(s, sc.run(s, i+n, ucd.PunctSymbol), classNewline), n
	case s[i] == ' ' && next&ucd.PunctSymbol != 0:
		return sc.run(s, sc.run(s, i+n+n1, ucd.PunctSymbol), classNewline), n
	case c&ucd.Space != 0:
		return sc.matchSpace(s, i), n
	}
	return -1, n
}

// matchSpace ends a run of white space after its last newline, else before its last character when text follows, else
// at its end: \s*[\r\n]+ | \s+(?!\S) | \s+
func (sc scanner) matchSpace(s string, i int) int {
	start, last, newline := i, i, -1
	for i < len(s) {
		c, n := sc.at(s, i)
		if c&ucd.Space == 0 {
			break
		}
		last = i
		i += n
		if c&classNewline != 0 {
			newline = i
		}
	}
	switch {
	case newline >= 0:
		return newline
	case i < len(s) && last > start:
		return last
	}
	return i
}
