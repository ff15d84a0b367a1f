package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/sample"
)

// only allows a few tokens, until it has taken n.
type only struct {
	ids   []int32
	n     int
	taken []int32
	err   error
}

func (o *only) Mask() []uint64 {
	mask := make([]uint64, 2)
	for _, id := range o.ids {
		mask[id/64] |= 1 << (id % 64)
	}
	return mask
}

func (o *only) Accept(id int32) error {
	o.taken = append(o.taken, id)
	return o.err
}

func (o *only) Done() bool { return len(o.taken) == o.n }

func TestAConstraintLimitsATextAndEndsIt(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 64})
	ids := goldenIDs(t, "base")[:9]
	for _, temperature := range []float64{0, 1.5} {
		c := &only{ids: []int32{5, 70, 71}, n: 6}
		g, err := i.Submit(context.Background(), Request{Prompt: ids, MaxTokens: 20, Sampling: sample.Params{Temperature: temperature, TopP: 1}, Constraint: c})
		if err != nil {
			t.Fatal(err)
		}
		var got []int32
		for {
			tok, ok := g.Next(context.Background())
			if !ok {
				break
			}
			got = append(got, tok.ID)
		}
		n := len(got)
		for i, id := range got {
			if id != c.taken[i] || id != 5 && id != 70 && id != 71 {
				t.Errorf("token %d is %d", i, id)
			}
		}
		if r := g.Result(); r.Finish != FinishStop || r.Err != nil || n != 6 {
			t.Errorf("%d tokens, ended by %s (%v)", n, r.Finish, r.Err)
		}
	}
	for want, c := range map[string]*only{"no token can be sampled": {}, "constrained output: no": {ids: []int32{5}, err: errors.New("no")}} {
		c.n = 9
		g, err := i.Submit(context.Background(), Request{Prompt: ids, MaxTokens: 4, Sampling: sample.Params{TopP: 1}, Constraint: c})
		if err != nil {
			t.Fatal(err)
		}
		if r := g.Wait(); r.Finish != FinishError || r.Err == nil || !strings.Contains(r.Err.Error(), want) {
			t.Errorf("ended by %s: %v, want %q", r.Finish, r.Err, want)
		}
	}
}
