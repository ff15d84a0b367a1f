package tokenizer

import (
	"slices"
	"testing"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"Hello, world", []string{"Hello", ",", " world"}},
		{"12345", []string{"123", "45"}},
		{"a  12", []string{"a", "  ", "12"}}, // the digits are cut off before the look-ahead
		{"a  b", []string{"a", " ", " b"}},
		{"a   \n  \n  b", []string{"a", "   \n  \n", " ", " b"}},
		{" \r\n", []string{" \r\n"}},
		{"x!\n\ny", []string{"x", "!\n\n", "y"}},
		{".get(x)", []string{".get", "(x", ")"}},
		{".éa", []string{".", "éa"}},
		{".aé", []string{".a", "é"}},
		{"中文abc", []string{"中文", "abc"}},
		{"ア゠イ・ウ゛", []string{"ア", "゠", "イ", "・", "ウ", "゛"}}, // kana runs pass the third pattern too
		{"龥龦", []string{"龥", "龦"}},
		{"\u0301a", []string{"\u0301a"}},
		{"\u200ba\u200b!", []string{"\u200ba", "\u200b", "!"}},
		{"\x00\x01", []string{"\x00\x01"}},
		{"½²³٣", []string{"½²³", "٣"}},
		{"\xff\xfea", []string{"\xff\xfe", "a"}}, // invalid bytes count as U+FFFD, a symbol
		{"\u0085x", []string{"\u0085x"}},
		{"\u00a0\u00a0x", []string{"\u00a0", "\u00a0x"}},
		{"\U00010D50\U00010D51", []string{"\U00010D50\U00010D51"}}, // letters since Unicode 16.0
	} {
		var got []string
		scanner{classTable()}.split(c.text, func(w string) { got = append(got, w) })
		if !slices.Equal(got, c.want) {
			t.Errorf("split(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}
