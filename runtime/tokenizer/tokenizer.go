package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Tokenizer is an immutable byte-level BPE vocabulary.
type Tokenizer struct {
	ids    map[string]int32 // spelling -> id, base vocabulary and added tokens
	names  []string         // id -> spelling; "" where the file leaves a hole
	bytes  []string         // id -> the bytes it stands for
	added  []AddedToken     // ascending ids
	flags  []tokenFlags     // by id
	byteID [256]int32       // id of the token of one byte
	pairs  *pairTable
	raw    trie // added tokens matched on the text as given
	late   trie // added tokens matched after those ("normalized": true)
	pool   sync.Pool
}

// AddedToken is a token that is matched as a whole before the text is split.
type AddedToken struct {
	ID      int
	Content string
	Special bool // left out when special tokens are skipped (control and padding tokens)
}

type tokenFlags uint8

const (
	flagAdded tokenFlags = 1 << iota
	flagSpecial
)

func build(f *file) (*Tokenizer, error) {
	top := len(f.names) - 1
	for _, a := range f.AddedTokens {
		top = max(top, a.ID)
	}
	t := &Tokenizer{
		ids:   make(map[string]int32, len(f.Model.Vocab)+len(f.AddedTokens)),
		names: make([]string, top+1),
		bytes: make([]string, top+1),
		flags: make([]tokenFlags, top+1),
		pairs: newPairTable(len(f.Model.Merges)),
		raw:   newTrie(),
		late:  newTrie(),
	}
	t.pool.New = func() any { return newEncoder(t) }

	alphabet := byteAlphabet()
	for b, r := range alphabet {
		id, ok := f.Model.Vocab[string(r)]
		if !ok {
			return nil, fmt.Errorf("the vocabulary has no token %q for the byte 0x%02x: a byte-level vocabulary has all 256", string(r), b)
		}
		t.byteID[b] = id
	}
	fromAlphabet := make(map[rune]byte, len(alphabet))
	for b, r := range alphabet {
		fromAlphabet[r] = byte(b)
	}
	copy(t.names, f.names)
	for id, s := range f.names {
		if s != "" {
			t.ids[s], t.bytes[id] = int32(id), spelledBytes(s, fromAlphabet)
		}
	}
	for i, m := range f.Model.Merges {
		left, okLeft := f.Model.Vocab[m.left]
		right, okRight := f.Model.Vocab[m.right]
		joined, okJoined := f.Model.Vocab[m.left+m.right]
		if !okLeft || !okRight || !okJoined {
			return nil, fmt.Errorf("merge %d (%q + %q): a part or the result is not in the vocabulary", i, m.left, m.right)
		}
		t.pairs.put(left, right, pairValue{rank: int32(i), id: joined})
	}
	for _, a := range f.AddedTokens {
		if _, base := f.Model.Vocab[a.Content]; base && t.bytes[a.ID] != a.Content {
			return nil, fmt.Errorf("added token %q (id %d) is also the vocabulary's spelling of other bytes", a.Content, a.ID)
		}
		t.ids[a.Content], t.names[a.ID], t.bytes[a.ID] = int32(a.ID), a.Content, a.Content
		t.flags[a.ID] = flagAdded
		if a.Special {
			t.flags[a.ID] |= flagSpecial
		}
		t.added = append(t.added, AddedToken{ID: a.ID, Content: a.Content, Special: a.Special})
		if a.Normalized {
			t.late.add(a.Content, int32(a.ID))
		} else {
			t.raw.add(a.Content, int32(a.ID))
		}
	}
	slices.SortFunc(t.added, func(a, b AddedToken) int { return a.ID - b.ID })
	return t, nil
}

// VocabSize returns the number of ids: one more than the largest, added tokens included.
func (t *Tokenizer) VocabSize() int { return len(t.names) }

// ID returns the id of a token by its spelling in the file: the content of an added token, or a base token in the
// byte-level alphabet ("Ġhello").
func (t *Tokenizer) ID(spelling string) (id int, ok bool) {
	v, ok := t.ids[spelling]
	return int(v), ok
}

// Spelling returns the token's spelling in the file, or "" for an id that the vocabulary lacks.
func (t *Tokenizer) Spelling(id int) string {
	if id < 0 || id >= len(t.names) {
		return ""
	}
	return t.names[id]
}

// Token returns the bytes that the token stands for, which need not be valid UTF-8 on their own. It is "" for an id that
// the vocabulary lacks.
func (t *Tokenizer) Token(id int) string {
	if id < 0 || id >= len(t.bytes) {
		return ""
	}
	return t.bytes[id]
}

// IsSpecial reports whether the file marks the token as special: BOS, EOS, padding, placeholders, images. The markers of
// turns, thinking and tools are added tokens but not special.
func (t *Tokenizer) IsSpecial(id int) bool { return t.has(id, flagSpecial) }

// IsAdded reports whether the token is an added one, that is, cannot come out of plain text.
func (t *Tokenizer) IsAdded(id int) bool { return t.has(id, flagAdded) }

func (t *Tokenizer) has(id int, f tokenFlags) bool {
	return id >= 0 && id < len(t.flags) && t.flags[id]&f != 0
}

// Added returns the added tokens in ascending order of ids. The caller owns the slice.
func (t *Tokenizer) Added() []AddedToken { return slices.Clone(t.added) }

// byteAlphabet maps each byte to the printable character that stands for it in a byte-level vocabulary.
func byteAlphabet() [256]rune {
	var a [256]rune
	next := rune(256)
	for b := range a {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			a[b] = rune(b)
			continue
		}
		a[b] = next
		next++
	}
	return a
}

// spelledBytes returns the bytes behind a spelling. One with a character outside the alphabet stands for itself.
func spelledBytes(s string, fromAlphabet map[rune]byte) string {
	var b strings.Builder
	for _, r := range s {
		c, ok := fromAlphabet[r]
		if !ok {
			return s
		}
		b.WriteByte(c)
	}
	return b.String()
}
