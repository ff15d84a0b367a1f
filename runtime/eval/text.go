package eval

import (
	"context"
	"fmt"
	"math"
)

// Score runs prompt, then forced one token at a time, and calls row with the logits of each position from `from` on.
type Score func(ctx context.Context, prompt, forced []int32, from int, row func(pos int, logits []float32) error) error

// Windows says how a text is cut.
type Windows struct {
	Context int   // tokens of a window, BOS included; at least 2
	Stride  int   // tokens that a window scores, 1 to Context - 1
	BOS     int32 // first token of each window
	Decode  bool  // feed the scored tokens by decode steps: for modes that do not compute all rows of a prompt
}

// Bucket is the loss of the tokens at positions From to To - 1 of their windows.
type Bucket struct {
	From         int     `json:"from"`
	To           int     `json:"to"`
	Tokens       int     `json:"tokens"`
	Bytes        int     `json:"bytes"`
	Bits         float64 `json:"bits"`
	BitsPerByte  float64 `json:"bits_per_byte"`
	BitsPerToken float64 `json:"bits_per_token"`
}

// Loss is what a text cost.
type Loss struct {
	Bytes        int      `json:"bytes"`
	Tokens       int      `json:"tokens"`
	Windows      int      `json:"windows"`
	Bits         float64  `json:"bits"`
	BitsPerByte  float64  `json:"bits_per_byte"`
	BitsPerToken float64  `json:"bits_per_token"`
	Positions    []Bucket `json:"positions"` // [1,2) [2,4) [4,8) ...
}

// Validate checks the cut.
func (w Windows) Validate() error {
	if w.Context < 2 {
		return fmt.Errorf("a window of %d tokens predicts nothing: use 2 or more", w.Context)
	}
	if w.Stride < 1 || w.Stride >= w.Context {
		return fmt.Errorf("stride %d with a context of %d: use 1 to %d", w.Stride, w.Context, w.Context-1)
	}
	return nil
}

// Text scores ids. size is the number of bytes that a token stands for; progress, if not nil, is told how many tokens are
// done after each window.
func Text(ctx context.Context, score Score, ids []int32, w Windows, size func(id int32) int, progress func(done int)) (*Loss, error) {
	if err := w.Validate(); err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("the text is empty: nothing to predict")
	}
	l := &Loss{}
	for at := 0; at < len(ids); at += w.Stride {
		if err := l.window(ctx, score, ids, at, w, size); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(l.Tokens)
		}
	}
	l.finish()
	return l, nil
}

// window scores the block that starts at ids[at].
func (l *Loss) window(ctx context.Context, score Score, ids []int32, at int, w Windows, size func(id int32) int) error {
	block := ids[at:min(at+w.Stride, len(ids))]
	before := ids[max(0, at-(w.Context-1-w.Stride)):at]
	prompt := append([]int32{w.BOS}, before...)
	from := len(prompt) - 1 // this row predicts the first token of the block
	forced := block[:len(block)-1]
	if !w.Decode {
		prompt, forced = append(prompt, forced...), nil
	}
	rows := 0
	err := score(ctx, prompt, forced, from, func(pos int, logits []float32) error {
		if pos != from+rows || rows == len(block) {
			return fmt.Errorf("row of position %d where that of %d was due", pos, from+rows)
		}
		id := block[rows]
		bits, err := surprise(logits, id)
		if err != nil {
			return fmt.Errorf("position %d: %w", pos, err)
		}
		l.add(pos+1, size(id), bits)
		rows++
		return nil
	})
	if err == nil && rows != len(block) {
		err = fmt.Errorf("%d rows of logits for %d tokens", rows, len(block))
	}
	if err != nil {
		return fmt.Errorf("window at token %d: %w", at, err)
	}
	l.Windows++
	return nil
}

// surprise is -log2 of the probability that a row of logits gives to token id.
func surprise(logits []float32, id int32) (float64, error) {
	if int(id) >= len(logits) {
		return 0, fmt.Errorf("token %d is beyond the %d logits of a row", id, len(logits))
	}
	top := math.Inf(-1)
	for _, v := range logits {
		top = max(top, float64(v)) // NaN stays
	}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - top)
	}
	bits := (top + math.Log(sum) - float64(logits[id])) / math.Ln2
	if math.IsNaN(bits) {
		return 0, fmt.Errorf("the logits are not numbers")
	}
	return bits, nil
}

func (l *Loss) add(pos, bytes int, bits float64) {
	k := 0
	for pos>>(k+1) > 0 {
		k++
	}
	for len(l.Positions) <= k {
		n := len(l.Positions)
		l.Positions = append(l.Positions, Bucket{From: 1 << n, To: 2 << n})
	}
	b := &l.Positions[k]
	b.Tokens, b.Bytes, b.Bits = b.Tokens+1, b.Bytes+bytes, b.Bits+bits
	l.Tokens, l.Bytes, l.Bits = l.Tokens+1, l.Bytes+bytes, l.Bits+bits
}

func (l *Loss) finish() {
	kept := l.Positions[:0]
	for _, b := range l.Positions {
		if b.Tokens > 0 {
			b.BitsPerByte, b.BitsPerToken = per(b.Bits, b.Bytes), per(b.Bits, b.Tokens)
			kept = append(kept, b)
		}
	}
	l.Positions = kept
	l.BitsPerByte, l.BitsPerToken = per(l.Bits, l.Bytes), per(l.Bits, l.Tokens)
}

func per(bits float64, n int) float64 { return bits / float64(max(n, 1)) }
