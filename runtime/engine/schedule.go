package engine

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// order decides which waiting request gets a place next: those of the lowest Priority first; among these the owner's that
// has been served least; of one owner in the order of arrival.
type order struct {
	served map[string]float64 // rows run for an owner with requests here, over what others had when it came
	active map[string]int     // its requests
}

func newOrder() order { return order{served: map[string]float64{}, active: map[string]int{}} }

// arrive counts a request in. An owner who comes after a pause has no credit from it.
func (o *order) arrive(owner string) {
	if o.active[owner]++; o.active[owner] > 1 {
		return
	}
	least := math.Inf(1)
	for _, rows := range o.served {
		least = min(least, rows)
	}
	if !math.IsInf(least, 1) {
		o.served[owner] = least
	} else {
		o.served[owner] = 0
	}
}

func (o *order) leave(owner string) {
	if o.active[owner]--; o.active[owner] <= 0 {
		delete(o.active, owner)
		delete(o.served, owner)
	}
}

func (o *order) serve(owner string, rows int) { o.served[owner] += float64(rows) }

// sort brings waiting requests, which are in the order of arrival, into that of admission.
func (o *order) sort(waiting []*run) {
	slices.SortStableFunc(waiting, func(a, b *run) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(o.served[a.Owner], o.served[b.Owner]), cmp.Compare(a.number, b.number))
	})
}

// pace chooses how many prompt rows join a step in which sequences decode, so that the step takes at most slowdown times
// as long as without them, and prompts still advance at some share of the speed that they have alone. It measures steps;
// what it chooses cannot change a result, only when it comes.
type pace struct {
	slowdown float64   // 0 = always a whole chunk
	alone    []seconds // a step of so many decoding rows without prompt rows
	mixed    int       // steps with both since the last one without prompt rows
	perRow   seconds   // what a prompt row adds to such a step
	whole    seconds   // of a prompt row in a step of prompt rows only
}

// seconds is a running mean; 0 = not known.
type seconds float64

func (s *seconds) observe(v, weight float64) {
	if *s == 0 {
		*s = seconds(v)
	} else {
		*s += seconds(weight * (v - float64(*s)))
	}
}

const (
	paceWeight  = 0.2
	paceRefresh = 64  // mixed steps until one runs without prompt rows, to measure again
	paceShare   = 0.3 // of the lone prefill speed
)

// rows is how many prompt rows, at most chunk, the next step should have.
func (p *pace) rows(decode, chunk int) int {
	if p.slowdown <= 0 || decode == 0 {
		return chunk
	}
	alone := 0.0
	if decode < len(p.alone) {
		alone = float64(p.alone[decode])
	}
	if alone == 0 || p.mixed >= paceRefresh {
		return 0
	}
	row := float64(cmp.Or(p.perRow, p.whole))
	if row == 0 {
		return 1
	}
	n := max(p.slowdown-1, 0) * alone / row
	if speed := paceShare / float64(p.whole); p.whole > 0 { // n / (alone + n * row) >= speed
		if left := 1 - speed*row; left > 0 {
			n = max(n, speed*alone/left)
		} else {
			n = float64(chunk)
		}
	}
	return int(min(max(math.Round(n), 1), float64(chunk)))
}

// observe learns from a step.
func (p *pace) observe(decode, prefill int, took time.Duration) {
	if p.slowdown <= 0 {
		return
	}
	t := took.Seconds()
	switch {
	case prefill == 0:
		for len(p.alone) <= decode {
			p.alone = append(p.alone, 0)
		}
		p.alone[decode].observe(t, paceWeight)
		p.mixed = 0
	case decode == 0:
		p.whole.observe(t/float64(prefill), paceWeight*min(1, float64(prefill)/64))
	default:
		p.mixed++
		if decode < len(p.alone) && p.alone[decode] > 0 {
			// No less than a fraction of a lone row: a step that was quicker than without prompt rows says nothing.
			p.perRow.observe(max(t-float64(p.alone[decode]), t/1000)/float64(prefill), paceWeight)
		}
	}
}

// share divides the prompt rows of a step among the requests whose prompts are being read. The lowest Priority goes
// first. Of equal ones the oldest gets half, so that it ends, and the one with the least left gets half, so that a short
// prompt does not wait for a long one; what they leave goes to the others in the order of admission. odd breaks the tie
// over a single row. It calls give with the rows of each.
func share(reading []*run, rows int, odd bool, give func(q *run, n int)) {
	for len(reading) > 0 && rows > 0 {
		same := 1
		for same < len(reading) && reading[same].Priority == reading[0].Priority {
			same++
		}
		rows -= shareEqual(reading[:same], rows, odd, give)
		reading = reading[same:]
	}
}

func shareEqual(reading []*run, rows int, odd bool, give func(q *run, n int)) (given int) {
	oldest, least := reading[0], reading[0]
	for _, q := range reading[1:] {
		if q.left() < least.left() {
			least = q
		}
	}
	part := rows
	if least != oldest {
		if part = rows / 2; rows%2 != 0 && odd {
			part++
		}
		n := min(rows-part, least.left())
		part = min(rows-n, oldest.left()) // and what the short one leaves
		n = min(rows-part, least.left())
		if n > 0 {
			give(least, n)
		}
		given += n
	}
	if part = min(part, oldest.left()); part > 0 {
		give(oldest, part)
	}
	given += part
	for _, q := range reading {
		if n := min(rows-given, q.left()); n > 0 && q != oldest && q != least {
			give(q, n)
			given += n
		}
	}
	return given
}

// left is how many rows of its prompt a running request still has to run.
func (q *run) left() int { return q.seq.TailLeft() + max(0, len(q.Prompt)-q.seq.Pos()) }
