package experts

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Key names a routed expert.
type Key struct{ Layer, Expert int }

// Config sizes a Cache.
type Config struct {
	Layers, Experts int // of each layer
	Slots           int // in all, at most Layers * Experts
	Floor           int // slots that every layer keeps
	Moves           int // copies under way at a time; 0 = DefaultMoves
}

// DefaultMoves is how many copies may be under way at a time.
const DefaultMoves = 4

const (
	halfLife  = 128 // steps
	gain      = 1.3 // what a candidate must be worth of the owner
	tried     = 4   // candidates per move that are looked at
	rescaleAt = 1e100
)

// Move fills a slot, where Out was, with In.
type Move struct {
	In, Out Key
	Slot    int
}

// Count is what steps used of a layer's experts: each once a step, whatever the number of its rows.
type Count struct{ Hits, Misses, Moves uint64 }

// none is an expert without a slot, and a slot without an owner.
const none = -1

// Cache knows which expert is where.
type Cache struct {
	cfg     Config
	owner   []int   // per slot: index of its expert, none while it is filled
	slot    []int   // per expert: where the table says it is, none = in host memory
	filling []int   // per slot: index of the expert that is on its way, none
	held    []int   // per layer: slots that it has, those that are filled for it included
	worth   worth   // of each expert
	used    []bool  // per expert: in the step that is observed
	missed  []int   // of the step that ended
	pending []int   // of the step that is observed
	best    []int   // candidates
	moves   []Move  // the last ones
	flying  bool    // they have not landed
	counts  []Count // per layer
}

// worth counts uses, the last ones more: what a step adds grows, instead of all others shrinking.
type worth struct {
	sum []float64
	add float64
}

func (w *worth) next() {
	if w.add *= math.Exp2(1.0 / halfLife); w.add > rescaleAt {
		for i := range w.sum {
			w.sum[i] /= w.add
		}
		w.add = 1
	}
}

// Check refuses sizes that cannot work.
func (c Config) Check() error {
	all := c.Layers * c.Experts
	switch {
	case c.Layers < 1 || c.Experts < 1:
		return fmt.Errorf("experts: %d layers of %d experts", c.Layers, c.Experts)
	case c.Floor < 0 || c.Floor > c.Experts:
		return fmt.Errorf("experts: a layer cannot keep %d slots for its %d experts", c.Floor, c.Experts)
	case c.Slots < c.Layers*c.Floor:
		return fmt.Errorf("experts: room for %d on the device; each of %d layers keeps %d, which makes %d", c.Slots, c.Layers, c.Floor, c.Layers*c.Floor)
	case c.Slots > all:
		return fmt.Errorf("experts: %d slots for %d experts", c.Slots, all)
	case c.Moves < 0:
		return fmt.Errorf("experts: %d copies at a time", c.Moves)
	}
	return nil
}

// New makes a cache whose slots hold the first of ranked, best first, with Floor of every layer among them; experts that
// ranked lacks come after those it has, in the order of their numbers, layer by layer in turn.
func New(c Config, ranked []Key) (*Cache, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.Moves == 0 {
		c.Moves = DefaultMoves
	}
	all := c.Layers * c.Experts
	x := &Cache{
		cfg: c, owner: make([]int, c.Slots), filling: make([]int, c.Slots), slot: make([]int, all), held: make([]int, c.Layers),
		worth: worth{make([]float64, all), 1}, used: make([]bool, all), counts: make([]Count, c.Layers),
	}
	for i := range x.slot {
		x.slot[i] = none
	}
	for i := range x.filling {
		x.filling[i] = none
	}
	return x, x.fill(ranked)
}

func (c *Cache) fill(ranked []Key) error {
	order := make([]int, 0, len(c.slot))
	seen := make([]bool, len(c.slot))
	take := func(k Key) error {
		if k.Layer < 0 || k.Layer >= c.cfg.Layers || k.Expert < 0 || k.Expert >= c.cfg.Experts {
			return fmt.Errorf("experts: there is no expert %d of layer %d", k.Expert, k.Layer)
		}
		if i := c.index(k); !seen[i] {
			seen[i] = true
			order = append(order, i)
		}
		return nil
	}
	for _, k := range ranked {
		if err := take(k); err != nil {
			return err
		}
	}
	for e := range c.cfg.Experts {
		for l := range c.cfg.Layers {
			_ = take(Key{l, e}) // all of these exist
		}
	}
	next := 0
	for _, floor := range []bool{true, false} {
		for _, i := range order {
			l := c.key(i).Layer
			if next == len(c.owner) || c.slot[i] != none || floor && c.held[l] >= c.cfg.Floor {
				continue
			}
			c.slot[i], c.owner[next] = next, i
			c.held[l]++
			next++
		}
	}
	return nil
}

func (c *Cache) index(k Key) int { return k.Layer*c.cfg.Experts + k.Expert }
func (c *Cache) key(i int) Key   { return Key{i / c.cfg.Experts, i % c.cfg.Experts} }

// Config is the sizes in force.
func (c *Cache) Config() Config { return c.cfg }

// Slot is where the table says that an expert is; false: in host memory.
func (c *Cache) Slot(k Key) (int, bool) {
	s := c.slot[c.index(k)]
	return s, s != none
}

// Observe counts what a layer's rows chose in a step; an expert may come more than once. The table must be as it was in
// that step.
func (c *Cache) Observe(layer int, chosen []int32) error {
	if layer < 0 || layer >= c.cfg.Layers {
		return fmt.Errorf("experts: there is no layer %d", layer)
	}
	n := &c.counts[layer]
	for _, e := range chosen {
		if e < 0 || int(e) >= c.cfg.Experts {
			return fmt.Errorf("experts: the router of layer %d chose expert %d of %d", layer, e, c.cfg.Experts)
		}
		i := layer*c.cfg.Experts + int(e)
		if c.used[i] {
			continue
		}
		c.used[i] = true
		c.worth.sum[i] += c.worth.add
		if c.slot[i] != none {
			n.Hits++
		} else {
			n.Misses++
			c.pending = append(c.pending, i)
		}
	}
	return nil
}

// End ends a step that was observed.
func (c *Cache) End() {
	clear(c.used)
	c.missed, c.pending = c.pending, c.missed[:0]
	c.worth.next()
}

// Start chooses what to copy, nothing while copies are under way; the answer is good until the next Start. From here on the table must say that every Out is in
// host memory; the slot may be filled when no step that was enqueued before reads it.
func (c *Cache) Start() ([]Move, error) {
	if c.flying || len(c.missed) == 0 {
		return nil, nil
	}
	c.moves = c.moves[:0]
	least := c.least()
	for _, in := range c.candidates() {
		if len(c.moves) == c.cfg.Moves || c.worth.sum[in] <= gain*least {
			break // so are those that follow
		}
		s := c.victim(c.key(in).Layer)
		if s == none {
			continue // its layer may not take of another's, and has nothing to give
		}
		out := c.owner[s]
		if c.worth.sum[in] <= gain*c.worth.sum[out] {
			continue
		}
		if c.slot[out] != s || c.filling[s] != none {
			return nil, fmt.Errorf("experts: slot %d belongs to %v, which is elsewhere", s, c.key(out))
		}
		c.slot[out], c.owner[s], c.filling[s] = none, none, in
		c.held[c.key(out).Layer]--
		c.held[c.key(in).Layer]++
		c.moves = append(c.moves, Move{In: c.key(in), Out: c.key(out), Slot: s})
	}
	c.missed = c.missed[:0]
	c.flying = len(c.moves) > 0
	return c.moves, nil
}

// better orders experts by what they are worth, the worthiest first; ties to the lower number.
func (c *Cache) better(a, b int) int {
	return cmp.Or(cmp.Compare(c.worth.sum[b], c.worth.sum[a]), cmp.Compare(a, b))
}

// candidates are the best of those that missed in the last step and have not landed meanwhile, the best first.
func (c *Cache) candidates() []int {
	best, most := c.best[:0], tried*c.cfg.Moves
	for _, i := range c.missed {
		if c.slot[i] != none || len(best) == most && c.better(i, best[most-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, i, c.better)
		best = slices.Insert(best[:min(len(best), most-1)], at, i)
	}
	c.best = best
	return best
}

// least is what the owner that is worth least is worth.
func (c *Cache) least() float64 {
	least := math.Inf(1)
	for _, o := range c.owner {
		if o != none {
			least = min(least, c.worth.sum[o])
		}
	}
	return least
}

// victim is the slot whose owner is worth least, of those that layer may take; ties to the higher slot, for New fills the
// slots with the best first.
func (c *Cache) victim(layer int) int {
	best, least := none, math.Inf(1)
	for s, o := range c.owner {
		if o == none {
			continue
		}
		if w := c.worth.sum[o]; w <= least {
			if l := o / c.cfg.Experts; l == layer || c.held[l] > c.cfg.Floor {
				best, least = s, w
			}
		}
	}
	return best
}

// Moving reports whether copies are under way.
func (c *Cache) Moving() bool { return c.flying }

// Land says that what Start chose has been copied. From here on the table must say that every In is in its slot.
func (c *Cache) Land() ([]Move, error) {
	if !c.flying {
		return nil, nil
	}
	for _, m := range c.moves {
		in := c.index(m.In)
		if c.filling[m.Slot] != in || c.owner[m.Slot] != none || c.slot[in] != none {
			return nil, fmt.Errorf("experts: slot %d was filled with expert %d of layer %d, for which it was not", m.Slot, m.In.Expert, m.In.Layer)
		}
		c.filling[m.Slot], c.owner[m.Slot], c.slot[in] = none, in, m.Slot
		c.counts[m.In.Layer].Moves++
	}
	c.flying = false
	return c.moves, nil
}

// Forget forgets what was observed; every expert stays where it is.
func (c *Cache) Forget() {
	clear(c.worth.sum)
	c.worth.add = 1
	clear(c.used)
	c.missed, c.pending = c.missed[:0], c.pending[:0]
	clear(c.counts)
}

// Counts are the counts of every layer, until the next call that changes them.
func (c *Cache) Counts() []Count { return c.counts }

// Ranked is every expert that was used, the worthiest first: a start for the next run.
func (c *Cache) Ranked() []Key {
	var order []int
	for i, v := range c.worth.sum {
		if v > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, c.better)
	keys := make([]Key, len(order))
	for i, o := range order {
		keys[i] = c.key(o)
	}
	return keys
}
