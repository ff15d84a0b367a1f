package sample

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
)

// ErrNothingLeft is returned when every token is banned or has the logit -Inf.
var ErrNothingLeft = errors.New("no token can be sampled: every logit is -Inf or banned")

// Choice is a token with its natural log-probability under the model: the softmax of all logits at temperature 1, before
// bias, penalties, bans and filters.
type Choice struct {
	ID      int
	Logprob float64
}

// Sampler applies the settings of one request. It is immutable and safe for concurrent use.
type Sampler struct{ p Params }

// New checks p.
func New(p Params) (*Sampler, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	p.Banned, p.Bias = slices.Clone(p.Banned), maps.Clone(p.Bias)
	return &Sampler{p}, nil
}

// History starts the count of tokens that Next needs, or returns nil where no penalty is set.
func (s *Sampler) History(prompt []int32) *History {
	if !s.p.Penalises() {
		return nil
	}
	return NewHistory(prompt)
}

// Next samples the token at a position from its row of logits [vocabulary], which it leaves unchanged; h counts the
// tokens before it, nil for none. A NaN or +Inf among the logits is an error that names the token.
func (s *Sampler) Next(logits []float32, h *History, choice, position int) (Choice, error) {
	return s.next(logits, nil, h, choice, position)
}

// NextOf is Next among the tokens of a set, a bit for each id, as a Constraint gives it.
func (s *Sampler) NextOf(set []uint64, logits []float32, h *History, choice, position int) (Choice, error) {
	if set == nil {
		set = []uint64{}
	}
	return s.next(logits, set, h, choice, position)
}

func (s *Sampler) next(logits []float32, set []uint64, h *History, choice, position int) (Choice, error) {
	if err := check(logits); err != nil {
		return Choice{}, fmt.Errorf("sampling position %d: %w", position, err)
	}
	w := workspaces.Get().(*workspace)
	defer workspaces.Put(w)
	w.logits = append(w.logits[:0], logits...)
	w.bias(s.p.Bias)
	if h != nil && s.p.Penalises() {
		w.penalise(&s.p, h)
	}
	w.ban(s.p.Banned)
	if set != nil {
		w.keep(set)
	}
	top := w.best()
	if top < 0 {
		return Choice{}, fmt.Errorf("sampling position %d: %w", position, ErrNothingLeft)
	}
	c := Choice{ID: top}
	if s.p.Temperature >= greedyBelow {
		c.ID = w.draw(&s.p, w.logits[top], Uniform(s.p.Seed, choice, position))
	}
	if s.p.Logprobs {
		c.Logprob = Logprob(logits, c.ID)
	}
	return c, nil
}

// Top returns the n most likely tokens of a row, ranked, for requests that ask for alternatives.
func Top(logits []float32, n int) ([]Choice, error) {
	if err := check(logits); err != nil {
		return nil, err
	}
	w := workspaces.Get().(*workspace)
	defer workspaces.Put(w)
	w.logits = append(w.logits[:0], logits...)
	top := w.best()
	if top < 0 {
		return nil, ErrNothingLeft
	}
	var out []Choice
	if n > 0 {
		largest, logSum := logSumExp(logits)
		for _, k := range w.first(n, w.logits[top]) {
			id := keyID(k)
			out = append(out, Choice{ID: id, Logprob: float64(logits[id]) - largest - logSum})
		}
	}
	return out, nil
}

// Logprob returns the natural log-probability of token id under the row of logits.
func Logprob(logits []float32, id int) float64 {
	largest, logSum := logSumExp(logits)
	return float64(logits[id]) - largest - logSum
}

func check(logits []float32) error {
	for id, l := range logits {
		if l != l || l > math.MaxFloat32 {
			return fmt.Errorf("the logit of token %d is %v: the forward pass produced garbage", id, l)
		}
	}
	return nil
}

// logSumExp returns the largest logit and the logarithm of the sum of exp(logit - largest).
func logSumExp(logits []float32) (largest, logSum float64) {
	largest = float64(slices.Max(logits))
	sum := 0.0
	for _, l := range logits {
		sum += weight(l, largest, 1)
	}
	return largest, math.Log(sum)
}

// workspace is the scratch memory of one call.
type workspace struct {
	logits []float32 // -Inf where banned
	bins   bins
	ranked []uint64   // keys of some tokens, ascending
	left   []weighted // what survives the filters, by id
}

type weighted struct {
	id     int
	weight float64
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

func (w *workspace) ban(banned []int) {
	for _, id := range banned {
		if id >= 0 && id < len(w.logits) {
			w.logits[id] = float32(math.Inf(-1))
		}
	}
}

// best returns the lowest id with the largest logit, or -1 when there is none above -Inf.
func (w *workspace) best() int {
	best, top := -1, float32(math.Inf(-1))
	for id, l := range w.logits {
		if l > top {
			best, top = id, l
		}
	}
	return best
}

// draw applies the filters of p and picks by u. top is the largest logit.
func (w *workspace) draw(p *Params, top float32, u float64) int {
	last := w.lastKept(p, top)
	largest, scale := float64(top), 1/p.Temperature
	w.left = w.left[:0]
	total := 0.0
	for id, l := range w.logits {
		if l < last.logit || l == last.logit && id > last.id {
			continue
		}
		if x := weight(l, largest, scale); x > 0 && x >= p.MinP {
			w.left = append(w.left, weighted{id, x})
			total += x
		}
	}
	target, sum := u*total, 0.0
	for _, c := range w.left {
		if sum += c.weight; sum > target {
			return c.id
		}
	}
	return w.left[len(w.left)-1].id // u*total may round up to total
}
