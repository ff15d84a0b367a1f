package sample

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// greedy picks the largest logit after bias and penalties.
func greedy(t *testing.T, p Params, logits []float32, prompt, written []int32) int {
	t.Helper()
	p.TopP = 1
	s, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Next(logits, history(s, prompt, written), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c.ID
}

func TestPenalties(t *testing.T) {
	for _, c := range []struct {
		name            string
		p               Params
		logits          []float32
		prompt, written []int32
		want            int
	}{
		{"none", Params{}, []float32{3, 2, 1}, nil, []int32{0}, 0},
		{"repetition divides what is positive", Params{RepetitionPenalty: 2}, []float32{3, 2, 1}, nil, []int32{0}, 1},
		{"repetition multiplies what is negative", Params{RepetitionPenalty: 2}, []float32{-1, -1.5, -3}, nil, []int32{0}, 1},
		{"repetition counts the prompt", Params{RepetitionPenalty: 2}, []float32{3, 2, 1}, []int32{0}, nil, 1},
		{"repetition counts once", Params{RepetitionPenalty: 1.4}, []float32{3, 2, 1}, []int32{0, 0}, []int32{0, 0}, 0},
		{"presence leaves the prompt alone", Params{PresencePenalty: 2}, []float32{3, 2, 1}, []int32{0}, nil, 0},
		{"presence takes from the text", Params{PresencePenalty: 2}, []float32{3, 2, 1}, nil, []int32{0}, 1},
		{"presence counts once", Params{PresencePenalty: 0.6}, []float32{3, 2, 1}, nil, []int32{0, 0, 0}, 0},
		{"frequency counts each time", Params{FrequencyPenalty: 0.6}, []float32{3, 2, 1}, nil, []int32{0, 0}, 1},
		{"frequency leaves the prompt alone", Params{FrequencyPenalty: 2}, []float32{3, 2, 1}, []int32{0, 0}, nil, 0},
		{"a negative penalty rewards", Params{PresencePenalty: -1.5}, []float32{3, 2, 1}, nil, []int32{1}, 1},
		{"bias", Params{Bias: map[int]float64{2: 2.5}}, []float32{3, 2, 1}, nil, nil, 2},
		{"a bias comes before the penalty", Params{RepetitionPenalty: 2, Bias: map[int]float64{0: 3}}, []float32{-1, 1.5, 0}, nil, []int32{0}, 1},
		{"a bias cannot unban", Params{Banned: []int{2}, Bias: map[int]float64{2: 100}}, []float32{3, 2, 1}, nil, nil, 0},
		{"tokens outside the vocabulary", Params{RepetitionPenalty: 2, Bias: map[int]float64{90: 1}}, []float32{3, 2, 1}, []int32{99}, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := greedy(t, c.p, c.logits, c.prompt, c.written); got != c.want {
				t.Errorf("token %d, want %d", got, c.want)
			}
		})
	}
}

// Penalties that are off change no bit, whatever the history.
func TestPenaltiesOffChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32Range(-30, 30), 1, 40).Draw(t, "logits")
		seen := rapid.SliceOfN(rapid.Int32Range(0, 40), 0, 60).Draw(t, "seen")
		p := Params{Temperature: rapid.Float64Range(0, 2).Draw(t, "temperature"), TopP: 0.9, Seed: 7, Logprobs: true}
		plain, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		want, err := plain.Next(logits, nil, 0, 5)
		if err != nil {
			t.Fatal(err)
		}
		p.RepetitionPenalty, p.Bias = 1, map[int]float64{}
		off, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		if h := off.History(seen); h != nil {
			t.Fatal("a history is kept for nothing")
		}
		h := NewHistory(seen)
		h.Add(0)
		if got, err := off.Next(logits, h, 0, 5); err != nil || got != want {
			t.Fatalf("%v (%v), want %v", got, err, want)
		}
	})
}

func TestReportedProbabilitiesAreTheModelsOwn(t *testing.T) {
	logits := []float32{3, 2, 1}
	s, err := New(Params{TopP: 1, RepetitionPenalty: 2, Bias: map[int]float64{2: -5}, Logprobs: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Next(logits, NewHistory([]int32{0}), 0, 0)
	if err != nil || c.ID != 1 || c.Logprob != Logprob(logits, 1) {
		t.Errorf("%+v (%v), want token 1 with %v", c, err, Logprob(logits, 1))
	}
}

func TestAHistoryHoldsEachTokenOnce(t *testing.T) {
	h := NewHistory(slices.Repeat([]int32{4, 5, 4}, 1000))
	for range 100 {
		h.Add(5)
		h.Add(6)
	}
	if want := []seen{{4, 0}, {5, 100}, {6, 100}}; !slices.Equal(h.counts, want) {
		t.Errorf("%v, want %v", h.counts, want)
	}
}
