package engram

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"cedrun/runtime/tokenizer"
)

const data = "../../testdata"

var releaseTokenizer = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
	return tokenizer.Load(filepath.Join(data, "tokenizer/tokenizer.json"))
})

var releaseMap = sync.OnceValues(func() ([]int32, error) {
	tok, err := releaseTokenizer()
	if err != nil {
		return nil, err
	}
	m, _ := DeriveTokenMap(tok)
	return m, nil
})

func releaseHasher(t testing.TB) *Hasher {
	t.Helper()
	m, err := releaseMap()
	if err != nil {
		t.Fatal(err)
	}
	h, err := NewHasher(releaseParams, m)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(data, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readJSON[T any](t testing.TB, name string) (v T) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, name), &v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

func TestTokenMapOfTheRelease(t *testing.T) {
	m, err := releaseMap()
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	for _, c := range m {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(c))
	}
	sum := sha256.Sum256(raw)
	if got := hex.EncodeToString(sum[:]); got != "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481" {
		t.Errorf("the map's sha256 is %s", got)
	}
	want := readFile(t, "tokenizer/engram_token_map_u32le.bin")
	for id := range m {
		if w := int32(binary.LittleEndian.Uint32(want[4*id:])); m[id] != w {
			t.Fatalf("token_map[%d] = %d, want %d", id, m[id], w)
		}
	}
	if err := checkMap(m, 99092); err != nil {
		t.Error(err)
	}
	if m[2] != 2 {
		t.Errorf("pad is compressed to %d", m[2])
	}
}

func TestTokenKey(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Hello", "hello"},
		{" Hello", "hello"},
		{"ÉCOLE", "ecole"},
		{"ﬁ", "fi"},
		{"Ｆ", "f"},
		{" ", " "},
		{" \t\r\n", " "},
		{"a \n b", "a b"},
		{"\n\nx\n", "x"},
		{"\u0301", "\u0301"}, // nothing is left: the text itself
		{"\u0903", "\u0903"}, // a spacing mark
		{"\u20dd", "\u20dd"}, // an enclosing mark
		{"\u3000", " "},      // NFKC makes it a space
		{"\u2028", "\u2028"}, // trimmed to nothing
		{"İ", "i"},
		{"Σ", "σ"},
		{"한", "\u1112\u1161\u11ab"},
		{"\xe4\xb8", "spelling"},
		{"x\uFFFD", "spelling"},
	} {
		if got := tokenKey(c.text, "spelling"); got != c.want {
			t.Errorf("tokenKey(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestHashKnownAnswers(t *testing.T) {
	h := releaseHasher(t)
	cases := readJSON[[]struct {
		Text       string
		IDs        []int32
		ImageMask  []json.RawMessage `json:"image_mask"`
		Compressed []int32
		Layer1     [][]int64
		Layer14    [][]int64
	}](t, "tokenizer/engram_hash_kat.json")
	images := 0
	for _, c := range cases {
		dead := make([]bool, len(c.IDs))
		for i, m := range c.ImageMask {
			dead[i] = string(m) == "1" || string(m) == "true"
		}
		if slices.Contains(dead, true) {
			images++
		}
		compressed := h.Compress(nil, c.IDs, dead)
		if !slices.Equal(compressed, c.Compressed) {
			t.Errorf("%q: compressed %v, want %v", c.Text, compressed, c.Compressed)
		}
		for layer, want := range map[int][][]int64{1: c.Layer1, 14: c.Layer14} {
			if len(want) != len(c.IDs) {
				t.Fatalf("%q: %d rows of answers", c.Text, len(want))
			}
			for pos := range want {
				if got := h.Rows(layer, compressed, pos); !slices.Equal(got, want[pos]) {
					t.Errorf("%q: layer %d position %d: rows %v, want %v", c.Text, layer, pos, got, want[pos])
				}
			}
		}
	}
	if images == 0 {
		t.Error("no known answer has an image span")
	}
}

func TestMiniTables(t *testing.T) {
	for _, name := range []string{"base", "wide", "vl", "sched40", "calm"} {
		t.Run(name, func(t *testing.T) {
			p, rows := miniParams(t, name)
			h, err := Load(os.DirFS(filepath.Join(data, "mini", name)), p, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, l := range h.Layers() {
				if l.Rows != rows[i] {
					t.Errorf("layer %d has %d rows, config.json says %d", l.ID, l.Rows, rows[i])
				}
			}
		})
	}
}

func miniParams(t testing.TB, name string) (p Params, rows []int64) {
	t.Helper()
	c := readJSON[struct {
		Text struct {
			Layers   []int   `json:"engram_layer_ids"`
			MaxNgram int     `json:"engram_max_ngram_size"`
			Bucket   int     `json:"engram_vocab_size"`
			Heads    int     `json:"engram_n_heads"`
			Classes  int     `json:"engram_compressed_vocab_size"`
			Pad      int     `json:"engram_pad_token_id"`
			Rows     []int64 `json:"engram_num_embeddings"`
		} `json:"text_config"`
	}](t, filepath.Join("mini", name, "config.json")).Text
	return Params{c.Layers, c.MaxNgram, c.Bucket, c.Heads, c.Classes, c.Pad}, c.Rows
}

func TestTablesThatDifferAreRefused(t *testing.T) {
	p, _ := miniParams(t, "base")
	original := string(readFile(t, "mini/base/engram_tables.json"))
	for _, c := range []struct{ name, old, new, want string }{
		{"a multiplier rounded by a double", `"36718341346178357"`, `"36718341346178360"`, "layer 0 multipliers[0] is 36718341346178360, but the rule gives 36718341346178357"},
		{"a fractional multiplier", `"36718341346178357"`, `3.6718341346178357e16`, "is not an integer below 2^63"},
		{"a prime", "[53, 59,", "[53, 61,", "layer 0 primes[1] is 61, but the rule gives 59"},
		{"an offset", "[0, 53, 112,", "[0, 53, 113,", "layer 0 offsets[2] is 113, but the rule gives 112"},
		{"the pad token", `"pad_token_id": 2`, `"pad_token_id": 3`, "pad_token_id is 3, but the configuration says 2"},
		{"a layer", `"3": {`, `"4": {`, "lacks layer 3"},
		{"a class out of order", `"token_map": [0, 0, 1,`, `"token_map": [0, 0, 7,`, "token_map[2] is 7"},
		{"fewer classes", `"token_map": [0, 0, 1, 2,`, `"token_map": [0, 0, 1, 1,`, "token_map["},
	} {
		changed := strings.Replace(original, c.old, c.new, 1)
		if changed == original {
			t.Fatalf("%s: %q is not in the file", c.name, c.old)
		}
		_, err := Load(fstest.MapFS{TablesFile: {Data: []byte(changed)}}, p, nil, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	bare := strings.ReplaceAll(original, `"36718341346178357"`, "36718341346178357")
	if _, err := Load(fstest.MapFS{TablesFile: {Data: []byte(bare)}}, p, nil, nil); err != nil {
		t.Errorf("multipliers as JSON numbers: %v", err)
	}
	if _, err := Load(fstest.MapFS{}, p, nil, nil); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("a checkpoint without map gives %v", err)
	}
	p.Classes++
	if _, err := ParseTables([]byte(original), p); err == nil {
		t.Error("tables of another number of classes are accepted")
	}
}

// words is a vocabulary of whole words.
type words []string

func (w words) VocabSize() int         { return len(w) }
func (w words) Token(id int) string    { return w[id] }
func (w words) Spelling(id int) string { return w[id] }

func TestTablesMustAgreeWithTheTokenizer(t *testing.T) {
	p := Params{Layers: []int{0}, MaxNgram: 2, Bucket: 10, Heads: 1, Classes: 3, PadToken: 0}
	layers, err := Derive(p)
	if err != nil {
		t.Fatal(err)
	}
	file := func(tokenMap []int32) fstest.MapFS {
		l := layers[0]
		b, err := json.Marshal(map[string]any{"token_map": tokenMap, "pad_token_id": 0, "layers": map[string]any{
			"0": map[string]any{"multipliers": l.Multipliers, "primes": l.Primes, "offsets": l.Offsets}}})
		if err != nil {
			t.Fatal(err)
		}
		return fstest.MapFS{TablesFile: {Data: b}}
	}
	vocabulary := words{"a", "b", "A", "c", "á"}
	if _, err := Load(file([]int32{0, 1, 0, 2, 0}), p, vocabulary, nil); err != nil {
		t.Error(err)
	}
	_, err = Load(file([]int32{0, 1, 1, 2, 0}), p, vocabulary, nil)
	if err == nil || !strings.Contains(err.Error(), "token_map[2] is 1, but the tokenizer gives 0") {
		t.Errorf("error %v", err)
	}
	h, err := Load(fstest.MapFS{}, p, vocabulary, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Compress(nil, []int32{4, 3, 9, -1, 0}, []bool{false, false, false, false, true}); !slices.Equal(got, []int32{0, 2, Dead, Dead, Dead}) {
		t.Errorf("Compress = %v", got)
	}
	p.Classes = 4
	if _, err := Load(fstest.MapFS{}, p, vocabulary, nil); err == nil || !strings.Contains(err.Error(), "has 3 compressed ids, but the configuration says 4") {
		t.Errorf("error %v", err)
	}
}

func TestRowsDoNotDependOnChunking(t *testing.T) {
	h := releaseHasher(t)
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.OneOf(rapid.Int32Range(0, 99091), rapid.Just(Dead))
		ids := rapid.SliceOfN(id, 1, 40).Draw(t, "ids")
		var want []int64
		for pos := range ids {
			want = append(want, h.Rows(14, ids, pos)...)
		}
		var got []int64
		for pos := 0; pos < len(ids); {
			n := rapid.IntRange(1, len(ids)-pos).Draw(t, "chunk")
			got = h.AppendRows(got, 14, ids[max(0, pos-h.Lookback()):pos], ids[pos:pos+n])
			pos += n
		}
		if !slices.Equal(got, want) {
			t.Fatalf("rows %v, want %v", got, want)
		}
	})
	if got := h.Rows(2, []int32{1}, 0); got != nil {
		t.Errorf("a layer without Engram has rows %v", got)
	}
}

func TestCacheIsOnlyTrustedWhenWhole(t *testing.T) {
	tok, err := releaseTokenizer()
	if err != nil {
		t.Fatal(err)
	}
	want, err := releaseMap()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	c := NewCache(dir)
	key := sha256.Sum256([]byte("a tokenizer.json"))
	derive := func(v Vocabulary) []int32 { return c.tokenMap(key, v) }
	if !slices.Equal(derive(tok), want) {
		t.Fatal("first use differs")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("cache holds %v (%v)", files, err)
	}
	good, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	// A vocabulary that would give another map shows that the stored one is used.
	if same := make(words, tok.VocabSize()); !slices.Equal(derive(same), want) {
		t.Error("the stored map is not used")
	}
	flipped := slices.Clone(good)
	flipped[1000] ^= 1
	for name, bad := range map[string][]byte{"empty": nil, "truncated": good[:len(good)-7], "one bit": flipped, "text": []byte("x")} {
		if err := os.WriteFile(files[0], bad, 0o644); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(derive(tok), want) {
			t.Errorf("%s: a corrupt map was used", name)
		}
		if got, err := os.ReadFile(files[0]); err != nil || !slices.Equal(got, good) {
			t.Errorf("%s: the file was not repaired", name)
		}
	}
	c = NewCache("/dev/null/none")
	if !slices.Equal(derive(tok), want) {
		t.Error("an unusable directory changes the map")
	}
}

func FuzzParseTables(f *testing.F) {
	p, _ := miniParams(f, "base")
	f.Add(readFile(f, "mini/base/engram_tables.json"))
	f.Add([]byte(`{"layers":{"0":{"multipliers":["1"]}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tokenMap, err := ParseTables(b, p)
		if err != nil {
			return
		}
		if h, err := NewHasher(p, tokenMap); err == nil {
			h.Rows(p.Layers[0], h.Compress(nil, []int32{0, 1, 2, 3}, nil), 3)
		}
	})
}

func BenchmarkDeriveTokenMap(b *testing.B) {
	tok, err := releaseTokenizer()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		DeriveTokenMap(tok)
	}
}

func BenchmarkRows(b *testing.B) {
	h := releaseHasher(b)
	ids := make([]int32, 512)
	for i := range ids {
		ids[i] = int32(i * 193)
	}
	var rows []int64
	for b.Loop() {
		rows = h.AppendRows(rows[:0], 14, nil, ids)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ids)), "ns/position")
}
