package experts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// check is what must hold between any two calls: an expert is in one place, a slot has one owner or is being filled for
// one, each layer keeps its floor.
func (c *Cache) check() error {
	held := make([]int, c.cfg.Layers)
	for s, o := range c.owner {
		f := c.filling[s]
		switch {
		case o == none && f == none:
			return fmt.Errorf("slot %d has no owner and is not filled", s)
		case o != none && f != none:
			return fmt.Errorf("slot %d of %v is filled with %v", s, c.key(o), c.key(f))
		case o != none && c.slot[o] != s:
			return fmt.Errorf("slot %d belongs to %v, which is in %d", s, c.key(o), c.slot[o])
		case f != none && c.slot[f] != none:
			return fmt.Errorf("%v is filled into %d and is in %d", c.key(f), s, c.slot[f])
		}
		held[c.key(max(o, f)).Layer]++
	}
	for i, s := range c.slot {
		if s != none && c.owner[s] != i {
			return fmt.Errorf("%v is in slot %d of another", c.key(i), s)
		}
	}
	if !slices.Equal(held, c.held) {
		return fmt.Errorf("layers hold %v slots, counted %v", held, c.held)
	}
	for l, n := range held {
		if n < c.cfg.Floor {
			return fmt.Errorf("layer %d holds %d slots, it keeps %d", l, n, c.cfg.Floor)
		}
	}
	return nil
}

// Whatever is chosen, and whenever copies land: places are consistent, a slot that is filled is in no entry of the table,
// a step's experts stay where they were while it runs, and no more copies are under way than allowed.
func TestPlacesAreConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{Layers: rapid.IntRange(1, 4).Draw(t, "layers"), Experts: rapid.IntRange(1, 9).Draw(t, "experts")}
		cfg.Floor = rapid.IntRange(0, cfg.Experts).Draw(t, "floor")
		cfg.Slots = rapid.IntRange(cfg.Layers*cfg.Floor, cfg.Layers*cfg.Experts).Draw(t, "slots")
		cfg.Moves = rapid.IntRange(1, 5).Draw(t, "moves")
		c, err := New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		var total Count
		uses := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			for l := range cfg.Layers {
				ids := rapid.SliceOfN(rapid.Int32Range(0, int32(cfg.Experts-1)), 0, 6).Draw(t, "ids")
				before := *c
				if err := c.Observe(l, ids); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(before.slot, c.slot) {
					t.Fatal("an expert moved during a step")
				}
				slices.Sort(ids)
				uses += len(slices.Compact(ids))
			}
			c.End()
			if c.Moving() && rapid.Bool().Draw(t, "landed") {
				was := c.Moving()
				landed, err := c.Land()
				if err != nil {
					t.Fatal(err)
				}
				if was && len(landed) == 0 {
					t.Fatal("nothing landed")
				}
				for _, m := range landed {
					if s, ok := c.Slot(m.In); !ok || s != m.Slot {
						t.Fatalf("%v landed in %d and is in %d, %v", m.In, m.Slot, s, ok)
					}
				}
			}
			moving := c.Moving()
			moves, err := c.Start()
			if err != nil {
				t.Fatal(err)
			}
			if moving && len(moves) > 0 || len(moves) > cfg.Moves {
				t.Fatalf("%d moves begin, %v are under way, %d are allowed", len(moves), moving, cfg.Moves)
			}
			for _, m := range moves {
				if _, ok := c.Slot(m.Out); ok {
					t.Fatalf("%v was pushed out and has a slot", m.Out)
				}
				if _, ok := c.Slot(m.In); ok {
					t.Fatalf("%v is on its way and has a slot", m.In)
				}
			}
			if err := c.check(); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range c.Counts() {
			total.Hits, total.Misses = total.Hits+n.Hits, total.Misses+n.Misses
		}
		if int(total.Hits+total.Misses) != uses {
			t.Fatalf("%d hits and %d misses of %d uses", total.Hits, total.Misses, uses)
		}
	})
}

func run(t *testing.T, c *Cache, step ...[]int32) []Move {
	t.Helper()
	for l, ids := range step {
		if err := c.Observe(l, ids); err != nil {
			t.Fatal(err)
		}
	}
	c.End()
	if _, err := c.Land(); err != nil {
		t.Fatal(err)
	}
	moves, err := c.Start()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(moves)
}

func TestAnExpertInUseTakesTheSlotOfOneThatIsNot(t *testing.T) {
	c, err := New(Config{Layers: 1, Experts: 4, Slots: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, c, []int32{0, 3, 3})
	want := []Move{{In: Key{0, 3}, Out: Key{0, 1}, Slot: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if _, ok := c.Slot(Key{0, 3}); ok {
		t.Error("the expert is in a slot before it has landed")
	}
	if got := run(t, c, []int32{3}); len(got) != 0 { // a miss still, and it lands
		t.Errorf("%v", got)
	}
	if got := run(t, c, []int32{0, 3}); len(got) != 0 {
		t.Errorf("%v", got)
	}
	if diff := cmp.Diff([]Count{{Hits: 3, Misses: 2, Moves: 1}}, c.Counts()); diff != "" {
		t.Error(diff)
	}
}

func TestEqualsDoNotPushEachOtherOut(t *testing.T) {
	c, err := New(Config{Layers: 1, Experts: 4, Slots: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 400 {
		run(t, c, []int32{int32(n % 4)})
	}
	if n := c.Counts()[0].Moves; n > 2 {
		t.Errorf("%d moves among experts that are used alike", n)
	}
}

func TestALayerKeepsItsFloor(t *testing.T) {
	c, err := New(Config{Layers: 2, Experts: 8, Slots: 6, Floor: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		run(t, c, []int32{4, 5, 6, 7}, nil)
	}
	if diff := cmp.Diff([]int{4, 2}, c.held); diff != "" {
		t.Error(diff)
	}
}

func TestFirstFillTakesTheRankedAndEveryLayersFloor(t *testing.T) {
	c, err := New(Config{Layers: 2, Experts: 4, Slots: 4, Floor: 1}, []Key{{0, 3}, {0, 2}, {0, 1}, {0, 3}})
	if err != nil {
		t.Fatal(err)
	}
	var in []Key
	for l := range 2 {
		for e := range 4 {
			if _, ok := c.Slot(Key{l, e}); ok {
				in = append(in, Key{l, e})
			}
		}
	}
	if diff := cmp.Diff([]Key{{0, 1}, {0, 2}, {0, 3}, {1, 0}}, in); diff != "" {
		t.Error(diff)
	}
}

func TestRankedPutsTheMostUsedFirst(t *testing.T) {
	c, err := New(Config{Layers: 2, Experts: 4, Slots: 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	run(t, c, []int32{1, 2}, []int32{3})
	run(t, c, []int32{2}, nil)
	if diff := cmp.Diff([]Key{{0, 2}, {0, 1}, {1, 3}}, c.Ranked()); diff != "" {
		t.Error(diff)
	}
}

func TestBadSizesAreOneSentence(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "0 layers of 0 experts"},
		{Config{Layers: 2, Experts: 8, Slots: 3, Floor: 2}, "room for 3 on the device; each of 2 layers keeps 2, which makes 4"},
		{Config{Layers: 2, Experts: 8, Slots: 17}, "17 slots for 16 experts"},
		{Config{Layers: 2, Experts: 8, Floor: 9, Slots: 16}, "cannot keep 9 slots for its 8 experts"},
		{Config{Layers: 1, Experts: 8, Slots: 8, Moves: -1}, "-1 copies"},
	} {
		if _, err := New(c.cfg, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
	c, err := New(Config{Layers: 1, Experts: 2, Slots: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Observe(0, []int32{2}); err == nil || !strings.Contains(err.Error(), "chose expert 2 of 2") {
		t.Error(err)
	}
	if err := c.Observe(1, nil); err == nil {
		t.Error("a layer that does not exist was observed")
	}
	if _, err := New(Config{Layers: 1, Experts: 2, Slots: 1}, []Key{{1, 0}}); err == nil {
		t.Error("an expert that does not exist was ranked")
	}
}

// A slot whose owner is not the one that a copy was for is refused, not overwritten.
func TestSlotsAreNotFilledForTwo(t *testing.T) {
	c, err := New(Config{Layers: 1, Experts: 4, Slots: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	moves := run(t, c, []int32{3})
	c.owner[moves[0].Slot] = 1
	if _, err := c.Land(); err == nil || !strings.Contains(err.Error(), "for which it was not") {
		t.Error(err)
	}
}

// Before experts of the first fill are used, those that were ranked last give way.
func TestTheFirstFillGivesWayFromItsEnd(t *testing.T) {
	ranked := []Key{{0, 5}, {0, 4}, {0, 3}}
	c, err := New(Config{Layers: 1, Experts: 6, Slots: 3, Moves: 1}, ranked)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Observe(0, []int32{1}); err != nil {
		t.Fatal(err)
	}
	c.End()
	if moves, err := c.Start(); err != nil || len(moves) != 1 || moves[0].Out != ranked[2] {
		t.Errorf("%v, %v", moves, err)
	}
}

func TestForgettingLeavesExpertsWhereTheyAre(t *testing.T) {
	c, err := New(Config{Layers: 2, Experts: 4, Slots: 3, Floor: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.Observe(1, []int32{0, 3}); err != nil {
			t.Fatal(err)
		}
		c.End()
	}
	before := slices.Clone(c.slot)
	c.Forget()
	moves, err := c.Start()
	if err != nil || len(moves) > 0 || len(c.Ranked()) > 0 || c.Counts()[1] != (Count{}) || !slices.Equal(before, c.slot) {
		t.Errorf("%v, %v, ranked %v, counts %v", moves, err, c.Ranked(), c.Counts())
	}
	if err := c.check(); err != nil {
		t.Error(err)
	}
}
