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
	w := workspaceOf(logits)
	defer w.free()
	if penalised := h != nil && s.p.Penalises(); penalised || set != nil || len(s.p.Bias)+len(s.p.Banned) > 0 {
		w.changed = append(w.changed[:0], logits...)
		w.logits = w.changed
		w.bias(s.p.Bias)
		if penalised {
			w.penalise(&s.p, h)
		}
		w.ban(s.p.Banned)
		if set != nil {
			w.keep(set)
		}
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
	w := workspaceOf(logits)
	defer w.free()
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
	if _, usable := scan(logits); usable {
		return nil
	}
	for id, l := range logits {
		if l != l || l > math.MaxFloat32 {
			return fmt.Errorf("the logit of token %d is %v: the forward pass produced garbage", id, l)
		}
	}
	return nil
}

// logSumExp returns the largest logit and the logarithm of the sum of exp(logit - largest).
func logSumExp(logits []float32) (largest, logSum float64) {
	top, usable := scan(logits)
	if !usable {
		top = slices.Max(logits) // NaN if there is one
	}
	largest = float64(top)
	sum, weights := 0.0, [stride]float64{}
	for part := range slices.Chunk(logits, stride) {
		weigh(weights[:], part, largest, 1)
		for _, x := range weights[:len(part)] {
			sum += x
		}
	}
	return largest, math.Log(sum)
}

// workspace is the scratch memory of one call.
type workspace struct {
	logits  []float32 // the model's, or those in changed: -Inf where banned
	changed []float32
	bins    bins
	ranked  []uint64        // keys of some tokens, ascending
	weights [stride]float64 // of consecutive tokens
	before  []float64       // weight of all tokens before each stride
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

func workspaceOf(logits []float32) *workspace {
	w := workspaces.Get().(*workspace)
	w.logits = logits
	return w
}

func (w *workspace) free() {
	w.logits = nil
	workspaces.Put(w)
}

func (w *workspace) ban(banned []int) {
	for _, id := range banned {
		if id >= 0 && id < len(w.logits) {
			w.logits[id] = float32(math.Inf(-1))
		}
	}
}

// best returns the lowest id with the largest logit, or -1 when there is none above -Inf.
func (w *workspace) best() int {
	top, _ := scan(w.logits)
	if math.IsInf(float64(top), -1) {
		return -1
	}
	return slices.Index(w.logits, top)
}

// draw applies the filters of p and picks by u. top is the largest logit. The sum of all weights before each stride is
// kept: where they pass u's share of the whole, the stride is weighed again.
func (w *workspace) draw(p *Params, top float32, u float64) int {
	last := w.lastKept(p, top)
	w.before = w.before[:0]
	total := 0.0
	for from := 0; from < len(w.logits); from += stride {
		w.before = append(w.before, total)
		for _, x := range w.kept(p, from, last, top) {
			total += x
		}
	}
	target, part := u*total, len(w.before)-1
	for w.before[part] > target {
		part--
	}
	sum := w.before[part]
	for i, x := range w.kept(p, part*stride, last, top) {
		if sum += x; sum > target {
			return part*stride + i
		}
	}
	for ; ; part-- { // u*total may round up to total
		for i, x := range slices.Backward(w.kept(p, part*stride, last, top)) {
			if x > 0 {
				return part*stride + i
			}
		}
	}
}

// kept weighs a stride of tokens, 0 for those that the filters take out: none where all are.
func (w *workspace) kept(p *Params, from int, last cut, top float32) []float64 {
	logits := w.logits[from:min(from+stride, len(w.logits))]
	all := last.id == len(w.logits)
	if !all {
		if most, _ := scan(logits); most < last.logit {
			return nil
		}
	}
	weights := w.weights[:len(logits)]
	weigh(weights, logits, float64(top), 1/p.Temperature)
	if all && p.MinP == 0 {
		return weights
	}
	for i, l := range logits {
		if l < last.logit || l == last.logit && from+i > last.id || weights[i] < p.MinP {
			weights[i] = 0
		}
	}
	return weights
}
