package eval

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const vocab = 16

// fake gives the token after id the probability 1/2 when it is id + 1, and shares the rest.
type fake struct {
	windows [][]int32 // prompt and forced of each call
	prompts []int
	firsts  []int
}

func (f *fake) score(_ context.Context, prompt, forced []int32, from int, row func(int, []float32) error) error {
	ids := slices.Concat(prompt, forced)
	f.windows, f.prompts, f.firsts = append(f.windows, ids), append(f.prompts, len(prompt)), append(f.firsts, from)
	for pos := from; pos < len(ids); pos++ {
		logits := make([]float32, vocab)
		for i := range logits {
			logits[i] = float32(math.Log(0.5 / (vocab - 1)))
		}
		logits[(ids[pos]+1)%vocab] = float32(math.Log(0.5))
		if err := row(pos, logits); err != nil {
			return err
		}
	}
	return nil
}

func two(int32) int { return 2 }

func TestTextCountsBits(t *testing.T) {
	var f fake
	ids := []int32{1, 2, 3, 4, 9}
	l, err := Text(context.Background(), f.score, ids, Windows{Context: 100, Stride: 99}, two, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := 4 + math.Log2(2*(vocab-1)) // BOS is 0: four successors and a surprise
	if math.Abs(l.Bits-want) > 1e-5 || l.Bytes != 10 || l.Tokens != 5 || l.Windows != 1 {
		t.Errorf("%+v, want %.4f bits", l, want)
	}
	if math.Abs(l.BitsPerByte-want/10) > 1e-6 || math.Abs(l.BitsPerToken-want/5) > 1e-6 {
		t.Errorf("%.4f bits per byte, %.4f per token", l.BitsPerByte, l.BitsPerToken)
	}
	var froms, tokens []int
	for _, b := range l.Positions {
		froms, tokens = append(froms, b.From), append(tokens, b.Tokens)
	}
	if !slices.Equal(froms, []int{1, 2, 4}) || !slices.Equal(tokens, []int{1, 2, 2}) {
		t.Errorf("buckets from %v with %v tokens", froms, tokens)
	}
}

func TestWindowsOverlapByWhatTheyDoNotScore(t *testing.T) {
	var f fake
	ids := []int32{1, 2, 3, 4, 5, 6, 7}
	if _, err := Text(context.Background(), f.score, ids, Windows{Context: 6, Stride: 3, BOS: 15, Decode: true}, two, nil); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		ids    []int32
		prompt int
	}{
		{[]int32{15, 1, 2}, 1}, // scores 1 2 3
		{[]int32{15, 2, 3, 4, 5}, 3},
		{[]int32{15, 5, 6}, 3}, // scores 7
	} {
		if !slices.Equal(f.windows[i], want.ids) || f.prompts[i] != want.prompt || f.firsts[i] != want.prompt-1 {
			t.Errorf("window %d: %v, prompt %d, from %d", i, f.windows[i], f.prompts[i], f.firsts[i])
		}
	}
}

// However a text is cut, every token is scored once, and a window never exceeds the context.
func TestEveryTokenIsScoredOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, vocab-1), 1, 60).Draw(rt, "ids")
		w := Windows{Context: rapid.IntRange(2, 40).Draw(rt, "context"), Decode: rapid.Bool().Draw(rt, "decode")}
		w.Stride = rapid.IntRange(1, w.Context-1).Draw(rt, "stride")
		var f fake
		l, err := Text(context.Background(), f.score, ids, w, two, nil)
		if err != nil {
			rt.Fatal(err)
		}
		if l.Tokens != len(ids) || l.Bytes != 2*len(ids) || l.Windows != (len(ids)+w.Stride-1)/w.Stride {
			rt.Fatalf("%+v", l)
		}
		for i, x := range f.windows {
			if len(x) > w.Context {
				rt.Fatalf("window %d has %d tokens of %d", i, len(x), w.Context)
			}
		}
	})
}

func TestTextRefusals(t *testing.T) {
	ok := func(_ context.Context, _, _ []int32, _ int, _ func(int, []float32) error) error { return nil }
	nan := func(_ context.Context, _, _ []int32, from int, row func(int, []float32) error) error {
		return row(from, []float32{float32(math.NaN()), 1})
	}
	short := func(_ context.Context, _, _ []int32, from int, row func(int, []float32) error) error {
		return row(from, []float32{1})
	}
	skip := func(_ context.Context, _, _ []int32, from int, row func(int, []float32) error) error {
		return row(from+1, make([]float32, vocab))
	}
	fails := func(context.Context, []int32, []int32, int, func(int, []float32) error) error {
		return errors.New("out of luck")
	}
	for _, c := range []struct {
		name  string
		score Score
		ids   []int32
		w     Windows
		want  string
	}{
		{"no text", ok, nil, Windows{Context: 8, Stride: 7}, "empty"},
		{"window of one", ok, []int32{1}, Windows{Context: 1, Stride: 1}, "2 or more"},
		{"stride 0", ok, []int32{1}, Windows{Context: 8}, "1 to 7"},
		{"stride of the context", ok, []int32{1}, Windows{Context: 8, Stride: 8}, "1 to 7"},
		{"rows missing", ok, []int32{1}, Windows{Context: 8, Stride: 7}, "0 rows of logits for 1"},
		{"rows out of order", skip, []int32{1}, Windows{Context: 8, Stride: 7}, "was due"},
		{"not numbers", nan, []int32{1}, Windows{Context: 8, Stride: 7}, "not numbers"},
		{"id beyond the row", short, []int32{1}, Windows{Context: 8, Stride: 7}, "beyond"},
		{"model fails", fails, []int32{1}, Windows{Context: 8, Stride: 7}, "window at token 0: out of luck"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Text(context.Background(), c.score, c.ids, c.w, two, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestRecallByDistance(t *testing.T) {
	cases := []Case{{4, "p", "ab"}, {1, "p", "ab"}, {4, "q", "ab"}, {4, "p", "ab"}}
	encode := func(c Case) (prompt, answer []int32) { return []int32{int32(c.Prompt[0])}, []int32{'a', 'b'} }
	model := func(_ context.Context, prompt []int32, n int) ([]int32, error) {
		if prompt[0] == 'q' {
			return []int32{'a', 'x'}[:n], nil
		}
		return []int32{'a', 'b'}[:n], nil
	}
	by, all, err := Recall(context.Background(), model, cases, encode, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Accuracy{{1, 1, 1, 1}, {4, 3, 2, 2.0 / 3}}
	if !slices.Equal(by, want) || all != (Accuracy{-1, 4, 3, 0.75}) {
		t.Errorf("%+v, all %+v", by, all)
	}
}

func TestParseCases(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"array", `[{"distance_windows": 8, "prompt": "a", "answer": "b"}]`, ""},
		{"object", `{"about": "x", "cases": [{"distance_windows": 0, "prompt": "a", "answer": "b"}]}`, ""},
		{"empty file", ``, "recall cases"},
		{"no cases", `[]`, "none"},
		{"object without cases", `{}`, "recall cases"},
		{"misspelled key", `[{"distance": 8, "prompt": "a", "answer": "b"}]`, "unknown field"},
		{"no answer", `[{"distance_windows": 8, "prompt": "a"}]`, "case 0"},
		{"negative distance", `[{"distance_windows": -1, "prompt": "a", "answer": "b"}]`, "case 0"},
		{"more after it", `[{"distance_windows": 8, "prompt": "a", "answer": "b"}] 1`, "follows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseCases([]byte(c.data))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzParseCases(f *testing.F) {
	f.Add([]byte(`{"cases": [{"distance_windows": 8, "prompt": "a", "answer": "b"}]}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cases, err := ParseCases(data)
		if err == nil && len(cases) == 0 {
			t.Error("no cases and no error")
		}
	})
}
