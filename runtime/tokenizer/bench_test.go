package tokenizer

import (
	"flag"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

var benchText = flag.String("text", "", "file to encode in BenchmarkEncode instead of the built-in sample")

const sampleText = `The quick brown fox jumps over the lazy dog; 1,234.56 foxes don't. "Naïve café," said Ångström.
func (t *Tokenizer) Encode(text string) []int32 {
	for i := 0; i < len(text); i++ { ids = append(ids, t.byteID[text[i]]) } // bytes
	return ids
}
今天是2026年11月29日，天气很好。日本語のテキスト、カタカナとひらがな。Привет, мир! مرحبا بالعالم 😀👩‍💻
{"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2.5, null]}}
`

func benchTexts(b *testing.B) (texts []string, size int) {
	b.Helper()
	all := strings.Repeat(sampleText, 100)
	if *benchText != "" {
		data, err := os.ReadFile(*benchText)
		if err != nil {
			b.Fatal(err)
		}
		all = string(data)
	}
	for rest := all; rest != ""; {
		n := min(4096, len(rest))
		for n < len(rest) && !utf8.RuneStart(rest[n]) {
			n++
		}
		texts, rest = append(texts, rest[:n]), rest[n:]
	}
	return texts, len(all)
}

func BenchmarkEncode(b *testing.B) {
	tok := release(b)
	texts, size := benchTexts(b)
	b.SetBytes(int64(size))
	var ids []int32
	tokens := 0
	for b.Loop() {
		for _, s := range texts {
			ids = tok.AppendEncode(ids[:0], s, Options{AddedTokens: true})
			tokens += len(ids)
		}
	}
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds()/1e6, "Mtok/s")
}

func BenchmarkEncodeLongWord(b *testing.B) {
	tok := release(b)
	text := strings.Repeat("a", 1<<20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.Encode(text, Options{})
	}
}

func BenchmarkDecode(b *testing.B) {
	tok := release(b)
	ids := tok.Encode(strings.Repeat(sampleText, 100), Options{})
	for b.Loop() {
		d := tok.NewDecoder()
		for _, id := range ids {
			d.Next(int(id))
		}
		d.Flush()
	}
	b.ReportMetric(float64(b.N*len(ids))/b.Elapsed().Seconds()/1e6, "Mtok/s")
}

func BenchmarkParse(b *testing.B) {
	data, err := releaseFile()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}
