package sample

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var negInf = float32(math.Inf(-1))

func next(t testing.TB, p Params, logits []float32, choice, position int) Choice {
	t.Helper()
	s, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Next(logits, nil, choice, position)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The known answers of the authors' Random123 library.
func TestPhiloxKnownAnswers(t *testing.T) {
	const f = 0xffffffff
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{f, f, f, f}, [2]uint32{f, f}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.counter, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.counter, c.key, got, c.want)
		}
	}
}

func TestUniformDependsOnSeedChoiceAndPosition(t *testing.T) {
	seen := map[float64]string{}
	for _, seed := range []uint64{0, 1, 1 << 40} {
		for choice := range 4 {
			for position := range 50 {
				u, name := Uniform(seed, choice, position), fmt.Sprint(seed, choice, position)
				if u < 0 || u >= 1 {
					t.Fatalf("Uniform(%s) = %v", name, u)
				}
				if other, dup := seen[u]; dup {
					t.Fatalf("%s and %s draw the same number", name, other)
				}
				seen[u] = name
			}
		}
	}
}

func TestGreedy(t *testing.T) {
	for _, c := range []struct {
		name   string
		logits []float32
		banned []int
		want   int
	}{
		{"largest", []float32{1, 3, 2}, nil, 1},
		{"lowest id of equals", []float32{1, 3, 3, 3}, nil, 1},
		{"zeros of either sign are equal", []float32{float32(math.Copysign(0, -1)), 0}, nil, 0},
		{"banned", []float32{1, 3, 2}, []int{1}, 2},
		{"ids outside are ignored", []float32{1, 3}, []int{-1, 7}, 1},
		{"beside -Inf", []float32{negInf, -5, negInf}, nil, 1},
		{"hugely negative", []float32{negInf, -math.MaxFloat32}, nil, 1},
	} {
		for _, temperature := range []float64{0, 1e-7} {
			p := Params{Temperature: temperature, TopP: 1, Banned: c.banned}
			if got := next(t, p, c.logits, 0, 0); got.ID != c.want {
				t.Errorf("%s: token %d, want %d", c.name, got.ID, c.want)
			}
		}
	}
}

func TestExtremesKeepTheTopToken(t *testing.T) {
	logits := []float32{-3, 7, 6.9, 0, -80, 3}
	for name, p := range map[string]Params{
		"lowest temperature": {Temperature: 1e-6, TopP: 1},
		"top_k 1":            {Temperature: MaxTemperature, TopP: 1, TopK: 1},
		"tiny top_p":         {Temperature: MaxTemperature, TopP: math.SmallestNonzeroFloat64},
		"largest min_p":      {Temperature: 0.5, TopP: 1, MinP: math.Nextafter(1, 0)},
		"all at once":        {Temperature: 1e-6, TopP: 1e-300, TopK: 1, MinP: 0.999},
	} {
		for position := range 200 {
			if got := next(t, p, logits, 0, position); got.ID != 1 {
				t.Errorf("%s: token %d", name, got.ID)
			}
		}
	}
}

func TestHugeLogitsDoNotOverflow(t *testing.T) {
	logits := []float32{math.MaxFloat32, -math.MaxFloat32, math.MaxFloat32, negInf}
	counts := make([]int, len(logits))
	for position := range 400 {
		c := next(t, Params{Temperature: 1e-6, TopP: 0.999, Logprobs: true}, logits, 0, position)
		counts[c.ID]++
		if math.Abs(c.Logprob+math.Ln2) > 1e-9 {
			t.Fatalf("log-probability %v, want -ln 2", c.Logprob)
		}
	}
	if counts[1]+counts[3] > 0 || counts[0] < 150 || counts[2] < 150 {
		t.Errorf("counts %v", counts)
	}
}

func TestBadLogitsAreErrors(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name   string
		logits []float32
		banned []int
		want   string
	}{
		{"NaN", []float32{1, nan, 2}, nil, "sampling position 9: the logit of token 1 is NaN"},
		{"NaN of a banned token", []float32{1, nan, 2}, []int{1}, "the logit of token 1 is NaN"},
		{"+Inf", []float32{1, 2, float32(math.Inf(1))}, nil, "the logit of token 2 is +Inf"},
		{"all -Inf", []float32{negInf, negInf}, nil, "no token can be sampled"},
		{"all banned", []float32{1, 2}, []int{0, 1}, "no token can be sampled"},
		{"none", nil, nil, "no token can be sampled"},
	} {
		for _, temperature := range []float64{0, 1} {
			s, err := New(Params{Temperature: temperature, TopP: 0.9, Banned: c.banned, Logprobs: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Next(c.logits, nil, 0, 9); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
			}
		}
	}
	s, _ := New(Default())
	if _, err := s.Next([]float32{negInf}, nil, 0, 0); !errors.Is(err, ErrNothingLeft) {
		t.Errorf("error %v is not ErrNothingLeft", err)
	}
}

func TestParamsOutOfRangeAreRefused(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	nan := math.NaN()
	for want, change := range map[string]func(p *Params){
		"temperature is -1":  func(p *Params) { p.Temperature = -1 },
		"temperature is 5.1": func(p *Params) { p.Temperature = 5.1 },
		"temperature is NaN": func(p *Params) { p.Temperature = nan },
		"top_p is 0":         func(p *Params) { p.TopP = 0 },
		"top_p is 1.5":       func(p *Params) { p.TopP = 1.5 },
		"top_p is NaN":       func(p *Params) { p.TopP = nan },
		"top_k is -2":        func(p *Params) { p.TopK = -2 },
		"min_p is 1":         func(p *Params) { p.MinP = 1 },
		"min_p is -0.1":      func(p *Params) { p.MinP = -0.1 },

		"repetition_penalty is -1":     func(p *Params) { p.RepetitionPenalty = -1 },
		"repetition_penalty is 11":     func(p *Params) { p.RepetitionPenalty = 11 },
		"repetition_penalty is NaN":    func(p *Params) { p.RepetitionPenalty = nan },
		"presence_penalty is 2.1":      func(p *Params) { p.PresencePenalty = 2.1 },
		"presence_penalty is NaN":      func(p *Params) { p.PresencePenalty = nan },
		"frequency_penalty is -3":      func(p *Params) { p.FrequencyPenalty = -3 },
		"logit_bias of token 4 is 101": func(p *Params) { p.Bias = map[int]float64{4: 101} },
		"logit_bias of token -1 is 1":  func(p *Params) { p.Bias = map[int]float64{-1: 1} },
		"logit_bias of token 0 is NaN": func(p *Params) { p.Bias = map[int]float64{0: nan} },
	} {
		p := Default()
		change(&p)
		if _, err := New(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestWeightIsAccurate(t *testing.T) {
	for l := float32(-700); l <= 3; l += 0.00317 {
		want := math.Exp(float64(l) - 3)
		if got := weight(l, 3, 1); math.Abs(got-want) > 4e-16*want {
			t.Fatalf("weight(%v, 3, 1) = %v, want %v", l, got, want)
		}
	}
	for _, c := range []struct {
		l                float32
		top, scale, want float64
	}{
		{5, 5, 1e6, 1}, {-800, 0, 1, 0}, {negInf, 0, 0.2, 0}, {-math.MaxFloat32, math.MaxFloat32, 1e6, 0}, {-math.SmallestNonzeroFloat32, 0, 1, 1},
	} {
		if got := weight(c.l, c.top, c.scale); got != c.want {
			t.Errorf("weight(%v, %v, %v) = %v, want %v", c.l, c.top, c.scale, got, c.want)
		}
	}
}

// kept is the rule of doc.go written plainly: the surviving tokens by id, with their probabilities.
func kept(p Params, logits []float32) (ids []int, probs []float64) {
	type token struct {
		id     int
		logit  float32
		weight float64
	}
	var all []token
	for id, l := range logits {
		if !slices.Contains(p.Banned, id) && l != negInf {
			all = append(all, token{id, l, 0})
		}
	}
	slices.SortFunc(all, func(a, b token) int { return cmp.Or(cmp.Compare(b.logit, a.logit), a.id-b.id) })
	for i := range all {
		all[i].weight = math.Exp((float64(all[i].logit) - float64(all[0].logit)) / p.Temperature)
	}
	if p.TopK > 0 {
		all = all[:min(p.TopK, len(all))]
	}
	total, sum := 0.0, 0.0
	for _, c := range all {
		total += c.weight
	}
	for i, c := range all {
		if sum += c.weight; p.TopP < 1 && sum >= p.TopP*total {
			all = all[:i+1]
			break
		}
	}
	all = slices.DeleteFunc(all, func(c token) bool { return c.weight < p.MinP })
	slices.SortFunc(all, func(a, b token) int { return a.id - b.id })
	total = 0
	for _, c := range all {
		total += c.weight
	}
	for _, c := range all {
		ids, probs = append(ids, c.id), append(probs, c.weight/total)
	}
	return ids, probs
}

// adjusted is the plain rule of bias and penalties, over the sequence itself.
func adjusted(p Params, logits []float32, prompt, written []int32) []float32 {
	out := slices.Clone(logits)
	for id := range out {
		l := float64(float32(float64(out[id]) + p.Bias[id]))
		inText := slices.Contains(written, int32(id))
		if (inText || slices.Contains(prompt, int32(id))) && p.RepetitionPenalty != 0 {
			if l > 0 {
				l /= p.RepetitionPenalty
			} else {
				l = float64(l * p.RepetitionPenalty)
			}
		}
		if inText {
			n := 0
			for _, w := range written {
				if w == int32(id) {
					n++
				}
			}
			l -= p.PresencePenalty + float64(p.FrequencyPenalty*float64(n))
		}
		out[id] = float32(l)
	}
	return out
}

// history counts a sequence as the engine does.
func history(s *Sampler, prompt, written []int32) *History {
	h := s.History(prompt)
	for _, id := range written {
		if h != nil {
			h.Add(id)
		}
	}
	return h
}

func TestNextFollowsThePlainRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.OneOf(
			rapid.Float32Range(-50, 50),
			rapid.Map(rapid.IntRange(-3, 3), func(i int) float32 { return float32(i) }), // ties
			rapid.Just(negInf),
		), 1, 60).Draw(t, "logits")
		p := Params{
			Temperature: rapid.Float64Range(0.01, MaxTemperature).Draw(t, "temperature"),
			TopP:        rapid.OneOf(rapid.Just(1.0), rapid.Float64Range(0.01, 0.999)).Draw(t, "top_p"),
			TopK:        rapid.IntRange(0, 70).Draw(t, "top_k"),
			MinP:        rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 0.9)).Draw(t, "min_p"),
			Seed:        rapid.Uint64().Draw(t, "seed"),
			Banned:      rapid.SliceOfN(rapid.IntRange(-1, 60), 0, 5).Draw(t, "banned"),

			RepetitionPenalty: rapid.SampledFrom([]float64{0, 1, 0.5, 1.3, 2}).Draw(t, "repetition"),
			PresencePenalty:   rapid.SampledFrom([]float64{0, -1, 0.5, 2}).Draw(t, "presence"),
			FrequencyPenalty:  rapid.SampledFrom([]float64{0, -0.25, 0.75}).Draw(t, "frequency"),
			Bias:              rapid.MapOfN(rapid.IntRange(0, 60), rapid.Float64Range(-100, 100), 0, 3).Draw(t, "bias"),
		}
		prompt := rapid.SliceOfN(rapid.Int32Range(0, 60), 0, 20).Draw(t, "prompt")
		written := rapid.SliceOfN(rapid.Int32Range(0, 60), 0, 20).Draw(t, "written")
		s, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		position := rapid.IntRange(0, 1<<20).Draw(t, "position")
		before := slices.Clone(logits)
		h := history(s, prompt, written)
		c, err := s.Next(logits, h, 0, position)
		ids, probs := kept(p, adjusted(p, logits, prompt, written))
		if len(ids) == 0 {
			if !errors.Is(err, ErrNothingLeft) {
				t.Fatalf("token %d, error %v; nothing was left", c.ID, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		want, u := ids[len(ids)-1], Uniform(p.Seed, 0, position)
		for i := range ids {
			if u -= probs[i]; u < 0 {
				want = ids[i]
				break
			}
		}
		if c.ID != want && math.Abs(u) > 1e-12 {
			t.Fatalf("token %d, want %d of %v with %v", c.ID, want, ids, probs)
		}
		if !slices.Equal(logits, before) {
			t.Fatal("the logits were changed")
		}
		if again, err := s.Next(logits, h, 0, position); err != nil || again != c {
			t.Fatalf("a second call gives %v (%v), the first gave %v", again, err, c)
		}
	})
}

// The draws follow the filtered distribution: Pearson's chi-square over 8,000 positions of a fixed seed.
func TestDrawsFollowTheDistribution(t *testing.T) {
	logits := []float32{2, 1, 0.5, 0, 0, -0.5, -1, 1.5, -2, -6, 0.25, -0.25}
	prompt, written := []int32{0, 7, 5, 5, 3}, []int32{7, 2, 7, 11, 7}
	for name, p := range map[string]Params{
		"plain":         {Temperature: 1, TopP: 1},
		"hot":           {Temperature: 2, TopP: 1},
		"cold":          {Temperature: 0.5, TopP: 1},
		"top_k":         {Temperature: 1, TopP: 1, TopK: 5},
		"top_p":         {Temperature: 1, TopP: 0.8},
		"min_p":         {Temperature: 1, TopP: 1, MinP: 0.2},
		"banned":        {Temperature: 1, TopP: 1, Banned: []int{0, 7}},
		"top_k + top_p": {Temperature: 1.3, TopP: 0.7, TopK: 6},
		"repetition":    {Temperature: 1, TopP: 1, RepetitionPenalty: 1.5},
		"presence":      {Temperature: 1, TopP: 1, PresencePenalty: 1.2},
		"frequency":     {Temperature: 1, TopP: 1, FrequencyPenalty: 0.7},
		"rewarded":      {Temperature: 1, TopP: 1, RepetitionPenalty: 0.8, PresencePenalty: -0.5},
		"bias":          {Temperature: 1, TopP: 1, Bias: map[int]float64{0: -100, 4: 1.5, 9: 6}},
		"penalties":     {Temperature: 0.7, TopP: 0.95, RepetitionPenalty: 1.2, PresencePenalty: 0.3, FrequencyPenalty: 0.4, Bias: map[int]float64{1: -1}},
		"everything":    {Temperature: 1.5, TopP: 0.9, TopK: 9, MinP: 0.15, Banned: []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 8_000
			p.Seed = 20261129
			ids, probs := kept(p, adjusted(p, logits, prompt, written))
			sum := 0.0
			for _, x := range probs {
				sum += x
			}
			if math.Abs(sum-1) > 1e-12 {
				t.Fatalf("the masses add up to %v", sum)
			}
			s, err := New(p)
			if err != nil {
				t.Fatal(err)
			}
			h := history(s, prompt, written)
			counts := make(map[int]int)
			for position := range n {
				c, err := s.Next(logits, h, 3, position)
				if err != nil {
					t.Fatal(err)
				}
				counts[c.ID]++
			}
			chi, seen := 0.0, 0
			for i, id := range ids {
				want := probs[i] * n
				chi += (float64(counts[id]) - want) * (float64(counts[id]) - want) / want
				seen += counts[id]
			}
			if seen != n {
				t.Errorf("%d draws fell on filtered tokens: %v", n-seen, counts)
			}
			// Far above the 99.99 % point for up to 11 degrees of freedom (about 37).
			if chi > 45 {
				t.Errorf("chi-square %.1f with %d tokens: %v", chi, len(ids), counts)
			}
		})
	}
}

func TestTopAndLogprob(t *testing.T) {
	logits := []float32{1, 3, float32(math.Copysign(0, -1)), 3, 0, negInf, -40}
	got, err := Top(logits, 10)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	mass := 0.0
	for _, c := range got {
		ids = append(ids, c.ID)
		mass += math.Exp(c.Logprob)
		if c.Logprob != Logprob(logits, c.ID) {
			t.Errorf("token %d: %v, want %v", c.ID, c.Logprob, Logprob(logits, c.ID))
		}
	}
	if want := []int{1, 3, 0, 2, 4, 6}; !slices.Equal(ids, want) {
		t.Errorf("ids %v, want %v", ids, want)
	}
	if math.Abs(mass-1) > 1e-12 {
		t.Errorf("the masses add up to %v", mass)
	}
	if got, err = Top(logits, 2); err != nil || len(got) != 2 || got[0].ID != 1 || got[1].ID != 3 {
		t.Errorf("Top 2 = %v (%v)", got, err)
	}
	// Bans and filters do not change the reported probability.
	c := next(t, Params{Temperature: 0, TopP: 1, Banned: []int{1, 3}, Logprobs: true}, logits, 0, 0)
	if c.ID != 0 || c.Logprob != Logprob(logits, 0) {
		t.Errorf("choice %v, want token 0 with %v", c, Logprob(logits, 0))
	}
}

// vocabulary returns a row of the release's width that looks like a language model's.
func vocabulary(seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	logits := make([]float32, 129280)
	for i := range logits {
		logits[i] = float32(r.NormFloat64()*2.5 - 5)
	}
	for range 40 {
		logits[r.IntN(len(logits))] = float32(5 + 12*r.Float64())
	}
	return logits
}

func TestReleaseWidthFollowsThePlainRule(t *testing.T) {
	logits := vocabulary(7)
	for _, p := range []Params{
		{Temperature: 1, TopP: 0.95},
		{Temperature: 5, TopP: 0.99},
		{Temperature: 1, TopP: 1, TopK: 1000},
		{Temperature: 0.6, TopP: 0.95, TopK: 40, MinP: 0.01},
	} {
		ids, _ := kept(p, logits)
		for position := range 10 {
			if c := next(t, p, logits, 0, position); !slices.Contains(ids, c.ID) {
				t.Errorf("%+v: token %d should have been filtered", p, c.ID)
			}
		}
	}
}

func BenchmarkNext(b *testing.B) {
	logits := vocabulary(1)
	for _, c := range []struct {
		name string
		p    Params
	}{
		{"greedy", Params{TopP: 1}},
		{"greedy_logprob", Params{TopP: 1, Logprobs: true}},
		{"temperature", Params{Temperature: 1, TopP: 1}},
		{"top_p", Params{Temperature: 1, TopP: 0.95}},
		{"top_p_flat", Params{Temperature: 5, TopP: 0.95}},
		{"top_k", Params{Temperature: 1, TopP: 1, TopK: 50}},
		{"top_k_top_p", Params{Temperature: 0.6, TopP: 0.95, TopK: 50}},
		{"penalties", Params{TopP: 1, RepetitionPenalty: 1.1, FrequencyPenalty: 0.1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, err := New(c.p)
			if err != nil {
				b.Fatal(err)
			}
			prompt := make([]int32, 1<<20) // the length of a prompt must not matter
			for i := range prompt {
				prompt[i] = int32(i % 5000)
			}
			h := s.History(prompt)
			for i := 0; b.Loop(); i++ {
				if _, err := s.Next(logits, h, 0, i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestOnlyTokensOfTheSetAreSampled(t *testing.T) {
	logits := make([]float32, 130)
	for i := range logits {
		logits[i] = float32(i)
	}
	for _, c := range []struct {
		name string
		set  []uint64
		want int
	}{
		{"one", []uint64{1 << 7}, 7},
		{"the best of several", []uint64{1 << 7, 1<<3 | 1}, 67},
		{"all of the first words", []uint64{math.MaxUint64, math.MaxUint64}, 127},
		{"all", []uint64{math.MaxUint64, math.MaxUint64, math.MaxUint64}, 129},
		{"none", nil, -1},
		{"a banned one", []uint64{1 << 5}, -1},
	} {
		s, err := New(Params{TopP: 1, Banned: []int{5}, Logprobs: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.NextOf(c.set, logits, nil, 0, 0)
		if c.want < 0 {
			if !errors.Is(err, ErrNothingLeft) {
				t.Errorf("%s: %+v (%v), want ErrNothingLeft", c.name, got, err)
			}
			continue
		}
		if err != nil || got.ID != c.want || got.Logprob != Logprob(logits, c.want) {
			t.Errorf("%s: %+v (%v), want token %d with the model's own log-probability", c.name, got, err, c.want)
		}
	}
}
