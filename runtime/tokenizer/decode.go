package tokenizer

import "unicode/utf8"

const replacement = "\uFFFD"

// Decode returns the text of ids, control tokens spelled out. Each maximal invalid byte sequence, an incomplete one at
// the end included, becomes U+FFFD. Ids that the vocabulary lacks yield nothing.
func (t *Tokenizer) Decode(ids []int32) string {
	d := t.NewDecoder()
	out := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		out = d.append(out, t.Token(int(id)))
	}
	return string(append(out, d.Flush()...))
}

// Decoder decodes a stream of tokens. The concatenation of what Next and Flush return equals Decode of all ids, and
// each part is valid UTF-8 of whole characters.
type Decoder struct {
	t    *Tokenizer
	held [utf8.UTFMax]byte // the beginning of a character
	n    int
}

// NewDecoder starts a stream.
func (t *Tokenizer) NewDecoder() *Decoder { return &Decoder{t: t} }

// Next returns the text that the token completes, which is empty while a character is incomplete.
func (d *Decoder) Next(id int) string { return string(d.append(nil, d.t.Token(id))) }

// Flush ends the stream: it returns U+FFFD if a character was left incomplete, else "". The decoder can be used again.
func (d *Decoder) Flush() string {
	if d.n == 0 {
		return ""
	}
	d.n = 0
	return replacement
}

// append adds the valid part of the held bytes and s to out and holds back an incomplete character at the end.
func (d *Decoder) append(out []byte, s string) []byte {
	if d.n > 0 {
		s = string(d.held[:d.n]) + s
		d.n = 0
	}
	for len(s) > 0 {
		if s[0] < utf8.RuneSelf {
			out = append(out, s[0])
			s = s[1:]
			continue
		}
		switch n, valid := sequence(s); {
		case valid:
			out = append(out, s[:n]...)
			s = s[n:]
		case n == len(s) && incomplete(s):
			d.n = copy(d.held[:], s)
			return out
		default:
			out = append(out, replacement...)
			s = s[n:]
		}
	}
	return out
}

// sequence returns the length of the character that s starts with, or of the maximal prefix of one (at least 1).
func sequence(s string) (n int, valid bool) {
	size, lo, hi := lead(s[0])
	if size == 0 {
		return 1, false
	}
	for n = 1; n < size; n++ {
		if n == len(s) || s[n] < lo || s[n] > hi {
			return n, false
		}
		lo, hi = 0x80, 0xBF
	}
	return size, true
}

// incomplete reports whether s, which sequence found invalid in full, could be continued to a character.
func incomplete(s string) bool {
	size, _, _ := lead(s[0])
	return len(s) < size
}

// lead returns the length of a character by its first byte (0: no character starts so) and the range of the second.
func lead(b byte) (size int, lo, hi byte) {
	switch {
	case b < 0xC2:
		return 0, 0, 0
	case b < 0xE0:
		return 2, 0x80, 0xBF
	case b == 0xE0:
		return 3, 0xA0, 0xBF
	case b == 0xED:
		return 3, 0x80, 0x9F
	case b < 0xF0:
		return 3, 0x80, 0xBF
	case b == 0xF0:
		return 4, 0x90, 0xBF
	case b < 0xF4:
		return 4, 0x80, 0xBF
	case b == 0xF4:
		return 4, 0x80, 0x8F
	}
	return 0, 0, 0
}
