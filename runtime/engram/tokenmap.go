package engram

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"cedrun/runtime/tokenizer/ucd"
)

// Vocabulary is the part of a tokenizer that the map is derived from.
type Vocabulary interface {
	VocabSize() int
	Token(id int) string    // the bytes that the token stands for
	Spelling(id int) string // its spelling in the vocabulary
}

// DeriveTokenMap maps each token id to its compressed id: the index of the first token with the same key. It returns the
// map and the number of compressed ids.
func DeriveTokenMap(v Vocabulary) (tokenMap []int32, classes int) {
	tokenMap = make([]int32, v.VocabSize())
	first := make(map[string]int32, len(tokenMap))
	for id := range tokenMap {
		k := tokenKey(v.Token(id), v.Spelling(id))
		c, ok := first[k]
		if !ok {
			c = int32(len(first))
			first[k] = c
		}
		tokenMap[id] = c
	}
	return tokenMap, len(first)
}

// tokenKey returns what tokens must share to share a compressed id. Partial characters keep their spelling.
func tokenKey(text, spelling string) string {
	if !utf8.ValidString(text) || strings.ContainsRune(text, utf8.RuneError) {
		return spelling
	}
	if n := normalize(text); n != "" {
		return n
	}
	return text
}

// normalize drops what compression ignores: compatibility forms, marks, case, and the amount of white space.
func normalize(text string) string {
	classes := ucd.Classes()
	var b strings.Builder
	blank := false
	for _, r := range norm.NFD.String(norm.NFKC.String(text)) {
		if classes.Of(r)&ucd.Mark != 0 {
			continue
		}
		if r = unicode.ToLower(r); r == ' ' || r == '\t' || r == '\r' || r == '\n' {
			if !blank {
				b.WriteByte(' ')
			}
			blank = true
			continue
		}
		blank = false
		b.WriteRune(r)
	}
	s := b.String()
	if s == " " {
		return s
	}
	s = strings.TrimFunc(s, func(r rune) bool { return classes.Of(r)&ucd.Space != 0 })
	// The reference guards the lone space with this character of the private use area and turns it back at the end.
	return strings.ReplaceAll(s, "\uE000", " ")
}

// CompareTokenMaps returns an error that names the first token that two maps place differently.
func CompareTokenMaps(got, want []int32) error {
	if len(got) != len(want) {
		return fmt.Errorf("token_map has %d entries, want %d", len(got), len(want))
	}
	for id := range got {
		if got[id] != want[id] {
			return fmt.Errorf("token_map[%d] is %d, but the tokenizer gives %d", id, got[id], want[id])
		}
	}
	return nil
}
