package trace

import (
	"cmp"
	"container/heap"
	"slices"

	"cedrun/runtime/experts"
)

// Score is what a policy made of a trace.
type Score struct{ Hits, Misses, Moves int }

// Rate is the share of accesses that were hits.
func (s Score) Rate() float64 { return float64(s.Hits) / float64(max(1, s.Hits+s.Misses)) }

// A Policy runs a trace with so many slots for all layers together. All begin with the same experts in them: those of
// the lowest numbers, layer by layer in turn, as experts.New fills them without a ranking and a floor.
type Policy struct {
	Name string
	Run  func(t *Trace, slots, moves int) (Score, error)
}

// Policies are all of them, the optimum last. moves bounds the copies of a step where the name does not say otherwise.
func Policies() []Policy {
	return []Policy{
		{"first fill", func(t *Trace, slots, _ int) (Score, error) { return lru(t, slots, 0), nil }},
		{"LRU, bounded", func(t *Trace, slots, moves int) (Score, error) { return lru(t, slots, moves), nil }},
		{"LRU, unbounded", func(t *Trace, slots, _ int) (Score, error) { return lru(t, slots, slots), nil }},
		{"cedrun", cedrun},
		{"optimum", func(t *Trace, slots, _ int) (Score, error) { return Optimum(t, slots), nil }},
	}
}

// cedrun is package experts, with copies that take a step.
func cedrun(t *Trace, slots, moves int) (Score, error) {
	c, err := experts.New(experts.Config{Layers: t.Layers, Experts: t.Experts, Slots: slots, Moves: moves}, nil)
	if err != nil {
		return Score{}, err
	}
	for _, step := range t.Steps {
		for l, ids := range step {
			if err := c.Observe(l, ids); err != nil {
				return Score{}, err
			}
		}
		c.End()
		if _, err := c.Land(); err != nil {
			return Score{}, err
		}
		if _, err := c.Start(); err != nil {
			return Score{}, err
		}
	}
	var s Score
	for _, n := range c.Counts() {
		s.Hits, s.Misses, s.Moves = s.Hits+int(n.Hits), s.Misses+int(n.Misses), s.Moves+int(n.Moves)
	}
	return s, nil
}

// first are the experts that every policy begins with: their indices.
func first(t *Trace, slots int) []int {
	var in []int
	for e := range t.Experts {
		for l := range t.Layers {
			if len(in) < slots {
				in = append(in, l*t.Experts+e)
			}
		}
	}
	return in
}

// lru copies what missed after each step, at most moves of it, over what has not been used for longest.
func lru(t *Trace, slots, moves int) Score {
	const away = -2
	used := make([]int, t.Layers*t.Experts) // step of the last use of what has a slot
	for i := range used {
		used[i] = away
	}
	here := first(t, slots)
	for _, i := range here {
		used[i] = -1
	}
	var s Score
	var missed []int
	for n, step := range t.Steps {
		missed = missed[:0]
		for l, ids := range step {
			for _, e := range ids {
				i := l*t.Experts + int(e)
				if used[i] != away {
					used[i] = n
					s.Hits++
				} else {
					missed = append(missed, i)
					s.Misses++
				}
			}
		}
		missed = missed[:min(len(missed), moves, len(here))]
		if len(missed) == 0 {
			continue
		}
		slices.SortFunc(here, func(a, b int) int { return cmp.Or(cmp.Compare(used[a], used[b]), cmp.Compare(a, b)) })
		for k, i := range missed {
			if used[here[k]] == n {
				break
			}
			used[here[k]], used[i] = away, n
			here[k] = i
			s.Moves++
		}
	}
	return s
}

// stay is the time from the step after one use of an expert until its next one: a hit if it has a slot all along.
type stay struct{ until, expert int }

type stays []stay

func (s stays) Len() int           { return len(s) }
func (s stays) Less(i, j int) bool { return s[i].until > s[j].until }
func (s stays) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *stays) Push(v any)        { *s = append(*s, v.(stay)) }
func (s *stays) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// Optimum is Belady's: what is needed again last gives way. No policy that copies experts when they were used, between
// steps, has more hits with the same slots, even if copies take no time and cost nothing. A move is a stay that does not
// begin with a hit.
func Optimum(t *Trace, slots int) Score {
	// next[n] of every use in step n, in order: the step of the expert's next use.
	upcoming := map[int]int{}
	next := make([][]int, len(t.Steps))
	for n := len(t.Steps) - 1; n >= 0; n-- {
		for l, ids := range t.Steps[n] {
			for _, e := range ids {
				i := l*t.Experts + int(e)
				at, ok := upcoming[i]
				if !ok {
					at = len(t.Steps)
				}
				next[n] = append(next[n], at)
				upcoming[i] = n
			}
		}
	}
	var (
		s    Score
		live stays
		kept = map[int]bool{}
	)
	begin := func(i, until int) {
		if until < len(t.Steps) {
			kept[i] = true
			heap.Push(&live, stay{until, i})
		}
	}
	for _, i := range first(t, slots) {
		if at, ok := upcoming[i]; ok {
			begin(i, at)
		}
	}
	for n, step := range t.Steps {
		use := 0
		var again []stay
		for l, ids := range step {
			for _, e := range ids {
				i := l*t.Experts + int(e)
				if copied, ok := kept[i]; !ok {
					s.Misses++
				} else {
					s.Hits++
					if copied {
						s.Moves++
					}
					delete(kept, i)
					copied = false
				}
				again = append(again, stay{next[n][use], i})
				use++
			}
		}
		live = slices.DeleteFunc(live, func(x stay) bool { return x.until <= n })
		heap.Init(&live)
		for _, x := range again {
			begin(x.expert, x.until)
		}
		for len(live) > slots {
			x := heap.Pop(&live).(stay)
			delete(kept, x.expert)
		}
	}
	return s
}
