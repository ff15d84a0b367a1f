package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

// machine is how long a step takes on some machine.
type machine struct {
	step, decode, row float64 // seconds: of any step, of each decoding row, of each prompt row beside decoding ones
	lone              float64 // of each prompt row of a step of prompt rows only
}

func (m machine) run(decode, prefill int) time.Duration {
	t := m.lone * float64(prefill)
	if decode > 0 {
		t = m.step + m.decode*float64(decode) + m.row*float64(prefill)
	}
	return time.Duration(t * 1e9)
}

func TestDecodeStaysLevelWhilePromptsAreRead(t *testing.T) {
	const chunk, slowdown = 256, 1.75
	for name, m := range map[string]machine{
		"workstation": {step: 0.025, decode: 0.009, row: 0.008, lone: 0.007},
		"small model": {step: 0.010, decode: 0.003, row: 0.002, lone: 0.0015},
		"device":      {step: 0.012, decode: 0.0001, row: 0.00005, lone: 0.00006},
		"dear rows":   {step: 0.001, decode: 0.0001, row: 0.01, lone: 0.009},
	} {
		t.Run(name, func(t *testing.T) {
			p := pace{slowdown: slowdown}
			for range 8 {
				p.observe(0, chunk, m.run(0, chunk))
			}
			for _, decode := range []int{1, 4, 1, 32} {
				var rows int
				var took, worst time.Duration
				for n := range 400 {
					k := p.rows(decode, chunk)
					d := m.run(decode, k)
					p.observe(decode, k, d)
					if n >= 100 { // has settled
						rows, took, worst = rows+k, took+d, max(worst, d)
					}
				}
				// Either the step keeps within its bound, or the prompt's share is what stretches it.
				if bound := m.run(decode, 0).Seconds()*slowdown + m.row; worst.Seconds() > bound {
					need := paceShare / m.lone
					least := need * m.run(decode, 0).Seconds() / (1 - min(need*m.row, 0.99))
					if float64(rows)/300 > least+1 {
						t.Errorf("%d decoding: a step of %v, bound %.4f s, with %.1f rows where %.1f keep the share", decode, worst, bound, float64(rows)/300, least)
					}
				}
				if share := float64(rows) / took.Seconds() * m.lone; share < 0.25 {
					t.Errorf("%d decoding: prompts have %.0f %% of their lone speed", decode, 100*share)
				}
			}
		})
	}
}

func TestWithoutABoundPromptsGetWholeChunks(t *testing.T) {
	p := pace{}
	p.observe(1, 0, time.Millisecond)
	if n := p.rows(1, 256); n != 256 {
		t.Errorf("%d rows of a chunk of 256", n)
	}
	p = pace{slowdown: 1.5}
	if n := p.rows(0, 256); n != 256 {
		t.Errorf("nobody decodes: %d rows of a chunk of 256", n)
	}
}

func TestWaitingRequestsAreOrdered(t *testing.T) {
	type arrival struct {
		owner    string
		priority int
	}
	for _, tc := range []struct {
		name     string
		served   map[string]int
		arrivals []arrival
		want     []int
	}{
		{"as they come", nil, []arrival{{"a", 0}, {"a", 0}, {"a", 0}}, []int{0, 1, 2}},
		{"lowest priority first", nil, []arrival{{"a", 5}, {"a", 0}, {"b", -1}}, []int{2, 1, 0}},
		{"least served owner first", map[string]int{"a": 100}, []arrival{{"a", 0}, {"a", 0}, {"b", 0}}, []int{2, 0, 1}},
		{"owners take turns", nil, []arrival{{"a", 0}, {"a", 0}, {"a", 0}, {"b", 0}, {"b", 0}}, []int{0, 3, 1, 4, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOrder()
			for owner := range tc.served { // they have requests already
				o.arrive(owner)
			}
			var waiting []*run
			for n, a := range tc.arrivals {
				o.arrive(a.owner)
				waiting = append(waiting, &run{Request: Request{Owner: a.owner, Priority: a.priority}, number: uint64(n)})
			}
			for owner, rows := range tc.served {
				o.serve(owner, rows)
			}
			var got []int
			for len(waiting) > 0 {
				o.sort(waiting)
				got = append(got, int(waiting[0].number))
				o.serve(waiting[0].Owner, 10)
				waiting = waiting[1:]
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("admitted %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAPauseGivesNoCredit(t *testing.T) {
	o := newOrder()
	o.arrive("busy")
	o.serve("busy", 1000)
	o.arrive("late")
	if o.served["late"] != 1000 {
		t.Errorf("who comes late starts at %v of 1000", o.served["late"])
	}
	o.leave("late")
	o.leave("busy")
	if len(o.served)+len(o.active) != 0 {
		t.Errorf("owners without requests are still known: %v, %v", o.served, o.active)
	}
}

func TestPromptsShareAStep(t *testing.T) {
	for _, tc := range []struct {
		lefts, priorities []int
		rows              int
		want              [2][]int // on even and odd steps
	}{
		{[]int{100}, nil, 8, [2][]int{{8}, {8}}},
		{[]int{5}, nil, 8, [2][]int{{5}, {5}}},
		{[]int{1000, 20}, nil, 8, [2][]int{{4, 4}, {4, 4}}},
		{[]int{1000, 2}, nil, 8, [2][]int{{6, 2}, {6, 2}}},
		{[]int{3, 1000, 2}, nil, 8, [2][]int{{3, 3, 2}, {3, 3, 2}}},
		{[]int{1000, 20}, nil, 1, [2][]int{{0, 1}, {1, 0}}},
		{[]int{20, 20, 20}, nil, 8, [2][]int{{8, 0, 0}, {8, 0, 0}}},
		{[]int{30, 20, 10}, nil, 60, [2][]int{{30, 20, 10}, {30, 20, 10}}},
		{[]int{4, 1000, 20}, []int{-1, 0, 0}, 8, [2][]int{{4, 2, 2}, {4, 2, 2}}},
		{[]int{40, 20}, nil, 0, [2][]int{{0, 0}, {0, 0}}},
	} {
		for odd, want := range tc.want {
			t.Run(fmt.Sprint(tc.lefts, tc.rows, odd), func(t *testing.T) {
				var reading []*run
				for n, left := range tc.lefts {
					q := &run{Request: Request{Prompt: make([]int32, left)}, seq: &model.Sequence{}, number: uint64(n)}
					if tc.priorities != nil {
						q.Priority = tc.priorities[n]
					}
					reading = append(reading, q)
				}
				got := make([]int, len(tc.lefts))
				share(reading, tc.rows, odd == 1, func(q *run, n int) { got[q.number] += n })
				if !slices.Equal(got, want) {
					t.Errorf("shares %v, want %v", got, want)
				}
			})
		}
	}
}

// However steps are shared out, a text is that of a lone run.
func TestThePaceChangesNoText(t *testing.T) {
	ids := goldenIDs(t, "base")
	greedy := sample.Params{TopP: 1}
	var lone, paced []*job
	for _, all := range []*[]*job{&lone, &paced} {
		for n := range 6 {
			*all = append(*all, &job{Request: Request{
				Prompt: ids[n:], MaxTokens: 12, Sampling: greedy, Prefill: model.Exact, Priority: n % 2, Owner: fmt.Sprint(n % 3),
			}})
		}
	}
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 128})
	for _, j := range lone {
		runAll(t, i, []*job{j})
	}
	i = open(t, "base", Setup{Backend: ced.CPU, Context: 128, Slots: 4, Chunk: 16, Slowdown: 1.2})
	runAll(t, i, paced)
	for n := range lone {
		if !slices.Equal(lone[n].tokens, paced[n].tokens) {
			t.Errorf("request %d: %v, alone %v", n, paced[n].tokens, lone[n].tokens)
		}
	}
}
