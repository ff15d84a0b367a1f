package selftest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
)

// Known is a prompt and the token that greedy decoding must answer with.
type Known struct {
	Prompt []int32 `json:"prompt"`
	Top1   *int32  `json:"top1"` // nil: not known
}

// ParseKnown reads a checkpoint's selftest.json: {"prompt": [ids], "top1": id}.
func ParseKnown(data []byte, vocab int) (Known, error) {
	var k Known
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return Known{}, fmt.Errorf("selftest.json: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Known{}, errors.New("selftest.json: more than one value")
	}
	ids := k.Prompt
	if k.Top1 != nil {
		ids = append(slices.Clone(ids), *k.Top1)
	}
	for _, id := range ids {
		if id < 0 || int(id) >= vocab {
			return Known{}, fmt.Errorf("selftest.json: token %d: the model's vocabulary is 0 to %d", id, vocab-1)
		}
	}
	if len(k.Prompt) == 0 {
		return Known{}, errors.New("selftest.json: the prompt is empty")
	}
	return k, nil
}

// anyPrompt is used where no prompt is known.
var anyPrompt = []int32{0, 1, 2, 3, 4, 5, 6, 7}

// Model feeds a known prompt to a model that serves no sequence yet. Values that are not finite, in the logits or in
// any sub-layer (quantisers swallow a NaN), and a wrong answer are errors; logits that are all equal, which a checkpoint
// of zeros has by right, only a warning. A prompt that the model's options have no room for is cut, and its answer not
// judged.
func Model(m *model.Model, s *ced.Stream, k Known) (warning string, err error) {
	if len(k.Prompt) == 0 {
		k = Known{Prompt: anyPrompt}
	}
	ids := k.Prompt
	if n := min(m.Options().Context, m.Options().StepRows, len(ids)); n < len(ids) {
		ids, k.Top1 = ids[:n], nil
	}
	for _, id := range ids {
		if int(id) >= m.Config().VocabSize {
			return "", fmt.Errorf("self-test: token %d of the known prompt: the model's vocabulary is 0 to %d", id, m.Config().VocabSize-1)
		}
	}
	f := &finder{s: s}
	row, err := forward(m, s, ids, f)
	if err != nil {
		return "", fmt.Errorf("self-test: %w", err)
	}
	if f.where == "" && !finite(row) {
		f.where = "the output head"
	}
	if f.where != "" {
		return "", fmt.Errorf("self-test: the known prompt gives values that are not finite, beginning with %s: weights are damaged; cedrun verify --deep names them", f.where)
	}
	top := 0
	constant := true
	for i, v := range row {
		if v > row[top] {
			top = i
		}
		constant = constant && v == row[0]
	}
	if k.Top1 != nil && int32(top) != *k.Top1 {
		return "", fmt.Errorf("self-test: the model answers its known prompt with token %d, selftest.json expects %d: the weights are not those that it was written for; cedrun verify --deep checks them", top, *k.Top1)
	}
	if constant {
		warning = fmt.Sprintf("all %d logits of the known prompt are %g: this checkpoint has no trained weights", len(row), row[0])
	}
	return warning, nil
}

// forward runs ids as a sequence of its own and returns the last row of logits.
func forward(m *model.Model, s *ced.Stream, ids []int32, probe model.Probe) (row []float64, err error) {
	q, err := m.NewSequence(model.Exact, len(ids))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Release(q)) }()
	if err := m.Reserve(q, len(ids)); err != nil {
		return nil, err
	}
	logits, _, err := m.Forward([]model.Span{{Seq: q, Tokens: ids, Logits: len(ids) - 1}}, probe)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 4*m.Config().VocabSize)
	if err := s.Download(b, logits); err != nil {
		return nil, err
	}
	return floats(f32, b), nil
}

func finite(v []float64) bool {
	for _, x := range v {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// finder is a probe that remembers the first sub-layer tensor that is not finite.
type finder struct {
	s     *ced.Stream
	where string // empty: none so far
}

// Sub looks at one tensor.
func (f *finder) Sub(name string, t model.Tensor) error {
	layer, tensor, ok := strings.Cut(strings.TrimPrefix(name, "L"), ".")
	if f.where != "" || t.Int || !ok || tensor == "index_score" { // masked scores are -inf by right
		return nil
	}
	b := make([]byte, t.Bytes())
	if err := f.s.Download(b, t.Addr); err != nil {
		return err
	}
	k := bf16
	if t.Format == ced.F32 {
		k = f32
	}
	if !finite(floats(k, b)) {
		f.where = tensor + " of layer " + layer
	}
	return nil
}

// KV has nothing to look at: a row of the caches shows in the attention that reads it.
func (f *finder) KV(int) error { return nil }
