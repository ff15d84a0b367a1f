package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

const dataDir = "../../testdata/tokenizer"

var releaseFile = sync.OnceValues(func() ([]byte, error) { return os.ReadFile(filepath.Join(dataDir, "tokenizer.json")) })

var parsedRelease = sync.OnceValues(func() (*Tokenizer, error) {
	b, err := releaseFile()
	if err != nil {
		return nil, err
	}
	return Parse(b)
})

func release(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := parsedRelease()
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func readJSON[T any](t testing.TB, path string) (v T) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

func TestKnownAnswers(t *testing.T) {
	tok := release(t)
	cases := readJSON[[]struct {
		Text    string
		IDs     []int32
		Decoded string
		Plain   []int32 `json:"ids_added_tokens_disabled"`
	}](t, filepath.Join(dataDir, "tokenizer_kat.json"))
	if len(cases) < 80 {
		t.Fatalf("only %d known answers", len(cases))
	}
	for _, c := range cases {
		if c.Plain == nil {
			c.Plain = c.IDs
		}
		if got := tok.Encode(c.Text, Options{AddedTokens: true}); !slices.Equal(got, c.IDs) {
			t.Errorf("Encode(%q) = %v, want %v", c.Text, got, c.IDs)
		}
		if got := tok.Encode(c.Text, Options{}); !slices.Equal(got, c.Plain) {
			t.Errorf("Encode(%q) without added tokens = %v, want %v", c.Text, got, c.Plain)
		}
		if got := tok.Decode(c.IDs); got != c.Decoded {
			t.Errorf("Decode(%v) = %q, want %q", c.IDs, got, c.Decoded)
		}
	}
}

func TestAddedTokensOfTheRelease(t *testing.T) {
	tok := release(t)
	want := readJSON[map[string]int](t, filepath.Join(dataDir, "added_tokens.json"))
	added := tok.Added()
	if len(added) != len(want) || len(want) != 1283 {
		t.Fatalf("%d added tokens, want %d", len(added), len(want))
	}
	if tok.VocabSize() != 129280 {
		t.Fatalf("VocabSize = %d", tok.VocabSize())
	}
	for spelling, id := range want {
		if got, ok := tok.ID(spelling); !ok || got != id {
			t.Errorf("ID(%q) = %d, %v, want %d", spelling, got, ok, id)
		}
		if got := tok.Encode(spelling, Options{AddedTokens: true}); !slices.Equal(got, []int32{int32(id)}) {
			t.Errorf("Encode(%q) = %v, want %d", spelling, got, id)
		}
		if got := tok.Token(id); got != spelling {
			t.Errorf("Token(%d) = %q, want %q", id, got, spelling)
		}
		for _, got := range tok.Encode(spelling, Options{}) {
			if tok.IsAdded(int(got)) {
				t.Errorf("plain text %q became the control token %d", spelling, got)
			}
		}
	}
	for id, special := range map[int]bool{0: true, 1: true, 2: true, 128000: true, 128805: true, 129264: true,
		128803: false, 128804: false, 128821: false, 128825: false, 19923: false, -1: false, 129280: false} {
		if got := tok.IsSpecial(id); got != special {
			t.Errorf("IsSpecial(%d) = %v, want %v", id, got, special)
		}
	}
}

func TestEscapedAndRawSpellingsAreTheSameFile(t *testing.T) {
	b, err := releaseFile()
	if err != nil {
		t.Fatal(err)
	}
	escaped, err := Parse(asciiJSON(b))
	if err != nil {
		t.Fatal(err)
	}
	raw := release(t)
	for id := range raw.VocabSize() {
		if raw.Spelling(id) != escaped.Spelling(id) || raw.Token(id) != escaped.Token(id) {
			t.Fatalf("token %d is %q in one file and %q in the other", id, raw.Spelling(id), escaped.Spelling(id))
		}
	}
	for _, a := range raw.Added() {
		if got := escaped.Encode(a.Content, Options{AddedTokens: true}); !slices.Equal(got, []int32{int32(a.ID)}) {
			t.Errorf("Encode(%q) = %v, want %d", a.Content, got, a.ID)
		}
	}
}

// asciiJSON rewrites every non-ASCII character of a JSON document as \uXXXX.
func asciiJSON(b []byte) []byte {
	var out []byte
	for _, r := range string(b) {
		if r < utf8.RuneSelf {
			out = append(out, byte(r))
			continue
		}
		units := []uint32{uint32(r)}
		if r > 0xFFFF {
			v := uint32(r) - 0x10000
			units = []uint32{0xD800 + v>>10, 0xDC00 + v&0x3FF}
		}
		for _, u := range units {
			const hex = "0123456789abcdef"
			out = append(out, '\\', 'u', hex[u>>12], hex[u>>8&15], hex[u>>4&15], hex[u&15])
		}
	}
	return out
}

func TestLongWordsMergeLikeShortOnes(t *testing.T) {
	tok := release(t)
	for _, unit := range []string{"a", "ab", "the", "ﬁ", "\u0301", "中", "!", "0", " ", "\n", "😀"} {
		for _, n := range []int{shortWord - 3, shortWord, shortWord + 1, 300} {
			word := strings.Repeat(unit, n)[:min(shortWord, n*len(unit))]
			if got, want := tok.mergeLong(nil, word), tok.merge(nil, word); !slices.Equal(got, want) {
				t.Errorf("%d bytes of %q: %v, want %v", len(word), unit, got, want)
			}
		}
	}
	// One word of this length would take minutes if merging were quadratic; BenchmarkEncodeLongWord has a megabyte.
	for _, unit := range []string{"a", "中", "="} {
		text := strings.Repeat(unit, 1<<18/len(unit))
		if got := tok.Decode(tok.Encode(text, Options{})); got != text {
			t.Errorf("a long run of %q does not survive", unit)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := release(t)
	text := strings.Repeat("The quick brown fox, 1234 foxes; 狐狸 and <think>лиса</think>!\n", 20)
	want := tok.Encode(text, Options{AddedTokens: true})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if got := tok.Encode(text, Options{AddedTokens: true}); !slices.Equal(got, want) {
					t.Error("ids differ between goroutines")
				}
			}
		})
	}
	wg.Wait()
}

func TestAppendEncodeKeepsWhatIsThere(t *testing.T) {
	got := release(t).AppendEncode([]int32{7, 8}, "Hello", Options{})
	if !slices.Equal(got, []int32{7, 8, 19923}) {
		t.Fatal(got)
	}
}
