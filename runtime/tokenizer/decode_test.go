package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestDecodeReplacesInvalidBytes(t *testing.T) {
	tok := release(t)
	for _, c := range []struct{ bytes, want string }{
		{"\xf0\x9f\x98\x80", "😀"},
		{"\xf0\x9f\x98", "\uFFFD"},
		{"\xf0\x9f\x98a", "\uFFFDa"},
		{"\xf0\x9f\xf0\x9f\x98\x80", "\uFFFD😀"},
		{"\xff\xff", "\uFFFD\uFFFD"},
		{"\xe0\x80\x80", "\uFFFD\uFFFD\uFFFD"}, // overlong
		{"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"}, // surrogate
		{"\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"\xc3", "\uFFFD"},
		{"\x80a", "\uFFFDa"},
	} {
		var ids []int32
		for _, b := range []byte(c.bytes) {
			ids = append(ids, tok.byteID[b])
		}
		if got := tok.Decode(ids); got != c.want {
			t.Errorf("Decode of the bytes % x = %q, want %q", c.bytes, got, c.want)
		}
		if got := stream(t, tok, ids); got != c.want {
			t.Errorf("streaming the bytes % x = %q, want %q", c.bytes, got, c.want)
		}
	}
	if got := tok.Decode([]int32{-1, 19923, 1 << 30}); got != "Hello" {
		t.Errorf("unknown ids yield %q", got)
	}
}

func stream(t interface{ Errorf(string, ...any) }, tok *Tokenizer, ids []int32) string {
	var all strings.Builder
	d := tok.NewDecoder()
	for _, id := range ids {
		delta := d.Next(int(id))
		if !utf8.ValidString(delta) {
			t.Errorf("delta %q is not valid UTF-8", delta)
		}
		all.WriteString(delta)
	}
	all.WriteString(d.Flush())
	return all.String()
}

func TestStreamEqualsDecodeForAnyIDs(t *testing.T) {
	tok := release(t)
	rapid.Check(t, func(t *rapid.T) {
		// Ids of single bytes and of partial characters are rare among all ids: draw bytes in half of the cases.
		id := rapid.OneOf(
			rapid.Int32Range(-1, int32(tok.VocabSize())),
			rapid.Map(rapid.Byte(), func(b byte) int32 { return tok.byteID[b] }),
		)
		ids := rapid.SliceOfN(id, 0, 40).Draw(t, "ids")
		var raw strings.Builder
		for _, id := range ids {
			raw.WriteString(tok.Token(int(id)))
		}
		if got, want := stream(t, tok, ids), tok.Decode(ids); got != want {
			t.Fatalf("stream %q, Decode %q", got, want)
		}
		if s := raw.String(); utf8.ValidString(s) && tok.Decode(ids) != s {
			t.Fatalf("Decode %q, bytes %q", tok.Decode(ids), s)
		}
	})
}
