package tokenizer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"strings"
	"testing"
	"unicode/utf8"
)

var everyCodePoint = flag.Bool("every-code-point", false, "compare all 1,112,064 code points with the reference, not only the assigned ones")

// reference holds the first 8 bytes of SHA-256 digests over the ids of many texts, as testdata/reference.mjs describes.
type reference struct {
	Template    []string
	Pieces      []string
	Joined      []string // per block of 4,096 code points: in groups of 64, each between neighbours of every class
	Single      []string // per block: each code point as a text of its own
	Random      []string // per 500 random texts
	RandomPlain []string `json:"random_plain"` // the same, added tokens disabled
}

func digestTexts(tok *Tokenizer, o Options, texts []string) string {
	h := sha256.New()
	var ids []int32
	var raw []byte
	for _, s := range texts {
		ids = tok.AppendEncode(ids[:0], s, o)
		raw = binary.LittleEndian.AppendUint32(raw[:0], uint32(len(ids)))
		for _, id := range ids {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
		}
		h.Write(raw)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func TestEveryCodePointAgainstTheReference(t *testing.T) {
	ref := readJSON[reference](t, "testdata/reference.json")
	tok := release(t)
	if len(ref.Joined) != 0x110 || len(ref.Single) != 0x110 {
		t.Fatal("reference.json does not cover all blocks")
	}
	for block := range ref.Joined {
		// Planes 4 to 13 have no character, 15 and 16 are private use: one block of each says what all say.
		if !*everyCodePoint && block >= 0x34 && block != 0x50 && block != 0xE0 && block != 0x10F {
			continue
		}
		var joined, single []string
		for lo := rune(block) << 12; lo < rune(block+1)<<12; lo += 64 {
			var text strings.Builder
			for c := lo; c < lo+64; c++ {
				if !utf8.ValidRune(c) {
					continue
				}
				for _, before := range ref.Template {
					text.WriteString(before)
					text.WriteRune(c)
				}
				single = append(single, string(c))
			}
			joined = append(joined, text.String())
		}
		if got := digestTexts(tok, Options{AddedTokens: true}, single); got != ref.Single[block] {
			t.Errorf("U+%X000..U+%XFFF alone: digest %s, want %s", block, block, got, ref.Single[block])
		}
		if raceEnabled && block > 3 && block != 0xF && block != 0x1F {
			continue // ten times slower, and nothing here is concurrent
		}
		if got := digestTexts(tok, Options{AddedTokens: true}, joined); got != ref.Joined[block] {
			t.Errorf("U+%X000..U+%XFFF in context: digest %s, want %s", block, block, got, ref.Joined[block])
		}
	}
}

func TestRandomTextsAgainstTheReference(t *testing.T) {
	ref := readJSON[reference](t, "testdata/reference.json")
	tok := release(t)
	if len(ref.Random) != 40 || len(ref.RandomPlain) != 40 {
		t.Fatal("reference.json does not cover the random texts")
	}
	for i := range ref.Random {
		if raceEnabled && i%8 != 0 {
			continue
		}
		texts := make([]string, 500)
		for j := range texts {
			texts[j] = randomText(uint64(i*500+j), ref.Pieces)
		}
		if got := digestTexts(tok, Options{AddedTokens: true}, texts); got != ref.Random[i] {
			t.Errorf("texts %d..: digest %s, want %s", i*500, got, ref.Random[i])
		}
		if got := digestTexts(tok, Options{}, texts); got != ref.RandomPlain[i] {
			t.Errorf("texts %d.. without added tokens: digest %s, want %s", i*500, got, ref.RandomPlain[i])
		}
	}
}

// randomText is the function of the same name in reference.mjs.
func randomText(k uint64, pieces []string) string {
	s, i := mix64(k), uint64(0)
	next := func(n int) int {
		i++
		return int((mix64(s+i*0x9E3779B97F4A7C15) >> 32) % uint64(n))
	}
	var b strings.Builder
	for left := 1 + next(48); left > 0; left-- {
		kind := next(6)
		if kind > 1 {
			b.WriteString(pieces[next(len(pieces))])
			continue
		}
		limit := 0x20000
		if kind == 0 {
			limit = 0x3400
		}
		if c := rune(next(limit)); utf8.ValidRune(c) {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func mix64(z uint64) uint64 {
	z ^= z >> 30
	z *= 0xBF58476D1CE4E5B9
	z ^= z >> 27
	z *= 0x94D049BB133111EB
	return z ^ z>>31
}
