package disk

import "container/heap"

// entry is a page on disk.
type entry struct {
	hash, parent Hash
	seg          *segment
	slot         int
	exact        bool
	used         uint64
	reads        int  // the slot is in use
	hits         *int // the name is; shared with the entry that replaces this one
	gone         bool
	at           int // in index.leaves, or -1
}

// index finds entries, and the one to give up first: of those that no other page follows and nobody holds, the one unused
// for longest. So a chain loses its end before its beginning.
type index struct {
	entries map[Hash]*entry
	follow  map[Hash]int // entries by parent, which need not be there itself
	leaves  leaves
}

func newIndex() index {
	return index{entries: map[Hash]*entry{}, follow: map[Hash]int{}}
}

// add puts an entry in, whose name must not be taken.
func (x *index) add(e *entry) {
	e.at = -1
	if e.hits == nil {
		e.hits = new(int)
	}
	x.entries[e.hash] = e
	x.follow[e.parent]++
	x.place(e)
	if p := x.entries[e.parent]; p != nil {
		x.place(p)
	}
}

// remove takes an entry out; its slot is still in use while it has reads.
func (x *index) remove(e *entry) {
	e.gone = true
	delete(x.entries, e.hash)
	x.place(e)
	if x.follow[e.parent]--; x.follow[e.parent] == 0 {
		delete(x.follow, e.parent)
	}
	if p := x.entries[e.parent]; p != nil {
		x.place(p)
	}
}

// place moves an entry into or out of the leaves after a change.
func (x *index) place(e *entry) {
	leaf := !e.gone && e.reads == 0 && *e.hits == 0 && x.follow[e.hash] == 0
	switch {
	case leaf && e.at < 0:
		heap.Push(&x.leaves, e)
	case !leaf && e.at >= 0:
		heap.Remove(&x.leaves, e.at)
	}
}

// read and hit count somebody in, or out with -1.
func (x *index) read(e *entry, by int) {
	e.reads += by
	x.place(e)
}

func (x *index) hit(e *entry, by int) {
	*e.hits += by
	if now := x.entries[e.hash]; now != nil {
		x.place(now)
	}
}

// use notes a time of use.
func (x *index) use(e *entry, tick uint64) {
	e.used = max(e.used, tick)
	if e.at >= 0 {
		heap.Fix(&x.leaves, e.at)
	}
}

// oldest is the entry to give up, nil if all are held.
func (x *index) oldest() *entry {
	if len(x.leaves) == 0 {
		return nil
	}
	return x.leaves[0]
}

// leaves is a heap by time of use.
type leaves []*entry

func (l leaves) Len() int           { return len(l) }
func (l leaves) Less(i, j int) bool { return l[i].used < l[j].used }

func (l leaves) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].at, l[j].at = i, j
}

// Push and Pop are for container/heap.
func (l *leaves) Push(x any) {
	e := x.(*entry)
	e.at = len(*l)
	*l = append(*l, e)
}

// Pop removes the last.
func (l *leaves) Pop() any {
	e := (*l)[len(*l)-1]
	e.at = -1
	(*l)[len(*l)-1] = nil
	*l = (*l)[:len(*l)-1]
	return e
}
