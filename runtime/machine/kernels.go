package machine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/plan"
)

// Costs times the kernels of calls on a stream: in about a second on cpu for any model. The calls of one shape fix the
// rows and depths between which its cost is interpolated. streamed is the number of bytes of weights that a step reads.
func Costs(s *ced.Stream, c *config.Config, calls []plan.Call, streamed float64) (map[plan.Shape]plan.Cost, error) {
	b := &bench{s: s, c: c}
	defer b.close()
	shapes := collect(calls)
	if err := b.allocate(shapes, streamed); err != nil {
		return nil, fmt.Errorf("measure kernels: %w", err)
	}
	for _, rows := range []bool{false, true} { // a decode step in turn, then prompt rows
		if err := b.run(shapes, rows); err != nil {
			return nil, fmt.Errorf("measure kernels: %w", err)
		}
	}
	costs := map[plan.Shape]plan.Cost{}
	for _, x := range shapes {
		costs[x.Shape] = x.cost()
	}
	return costs, nil
}

// span is a shape with the least and the most rows of its calls, and its deepest call.
type span struct {
	plan.Shape
	least, most, depth float64
	points             []*point
}

// point is a measurement: seconds of a call of rows and depth.
type point struct {
	rows, depth int
	run         func() error
	scale       float64 // of the time, for a call on a part of the outputs
	times       []time.Duration
}

// collect merges the calls of each shape, in order of appearance.
func collect(calls []plan.Call) []*span {
	var out []*span
	at := map[plan.Shape]*span{}
	for _, c := range calls {
		x := at[c.Shape]
		if x == nil {
			x = &span{Shape: c.Shape, least: c.Rows, most: c.Rows}
			at[c.Shape] = x
			out = append(out, x)
		}
		x.least, x.most, x.depth = min(x.least, c.Rows), max(x.most, c.Rows), max(x.depth, c.Depth)
	}
	return out
}

const (
	mostRounds = 60
	someTime   = 350 * time.Millisecond // for all rounds of a kind
)

// run measures the points of few or of many rows.
func (b *bench) run(shapes []*span, many bool) error {
	var points []*point
	for _, x := range shapes {
		p, err := b.points(x, many)
		if err != nil {
			return err
		}
		x.points = append(x.points, p...)
		points = append(points, p...)
	}
	warm := 1 // rounds that are not counted: the first touches everything
	if many {
		warm = 0
	}
	least, began := warm+1, time.Now()
	for round := range mostRounds {
		if round >= least && time.Since(began) > someTime {
			break
		}
		for _, p := range points {
			at := time.Now()
			if err := p.run(); err != nil {
				return err
			}
			if d := time.Since(at); round >= warm {
				p.times = append(p.times, d)
			}
		}
	}
	return b.s.Sync()
}

// seconds is the median of a point's times; of a few, the lower quartile, because other programs only ever add.
func (p *point) seconds() float64 {
	slices.Sort(p.times)
	middle := len(p.times) / 2
	if len(p.times) < 8 {
		middle = len(p.times) / 4
	}
	return p.times[middle].Seconds() * p.scale
}

// cost solves for the four numbers of a cost.
func (x *span) cost() (k plan.Cost) {
	slices.SortStableFunc(x.points, func(a, b *point) int { return cmp.Or(a.rows-b.rows, a.depth-b.depth) })
	switch x.Kernel {
	case plan.Index, plan.Attend:
		return x.bilinear()
	case plan.Experts:
		return x.experts()
	}
	first, last := x.points[0], x.points[len(x.points)-1]
	t := first.seconds()
	if last.rows > first.rows {
		k.Row = max(0, (last.seconds()-t)/float64(last.rows-first.rows))
	}
	k.Call = max(0, t-k.Row*float64(first.rows))
	return k
}

// bilinear uses the points (few rows, shallow), (few, deep) and, if there are, (many, shallow), (many, deep).
func (x *span) bilinear() (k plan.Cost) {
	line := func(shallow, deep *point) (at0, slope float64) {
		a, b := shallow.seconds(), deep.seconds()
		slope = max(0, (b-a)/float64(deep.depth-shallow.depth))
		return max(0, a-slope*float64(shallow.depth)), slope
	}
	p := x.points
	k.Call, k.Depth = line(p[0], p[1])
	if len(p) < 4 {
		return k
	}
	at0, slope := line(p[2], p[3])
	few, more := float64(p[0].rows), float64(p[2].rows-p[0].rows)
	k.Row, k.Each = max(0, (at0-k.Call)/more), max(0, (slope-k.Depth)/more)
	k.Call, k.Depth = max(0, k.Call-few*k.Row), max(0, k.Depth-few*k.Each)
	return k
}

// experts: one row reads every expert once; further rows of the same experts cost arithmetic only.
func (x *span) experts() (k plan.Cost) {
	first, last := x.points[0], x.points[len(x.points)-1]
	t, distinct := first.seconds(), float64(first.depth)
	perToken := distinct / float64(x.Groups) // fewer experts than a token uses may have been measured
	if last.rows > first.rows {
		k.Row = max(0, (last.seconds()-t)/float64(last.rows-first.rows)) / perToken
	}
	k.Depth = max(0, t-k.Row*perToken*float64(first.rows)) / distinct
	return k
}
