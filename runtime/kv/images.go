package kv

import (
	"container/list"
	"slices"
	"time"
)

// Image is what a sequence keeps beside its pages, as it was at a position, stored with the tokens before it.
type Image struct {
	Pos   int
	Value any
	bytes int
	node  *node
	used  time.Time
	place *list.Element
}

// Images bounds what a Tree keeps of them.
type Images struct {
	budget  int
	ttl     time.Duration
	bytes   int
	gone    int        // dropped
	recent  *list.List // of *Image, used last first
	dropped func(value any)
}

// OnDroppedImage sets who gets the values of images that are gone.
func (t *Tree) OnDroppedImage(f func(value any)) { t.images.dropped = f }

// LimitImages sets how many bytes of images the tree keeps at most, and for how long after their last use; 0 = for ever.
func (t *Tree) LimitImages(bytes int, ttl time.Duration) { t.images.budget, t.images.ttl = bytes, ttl }

// Keep stores an image of a sequence that has processed tokens, which Insert must have stored before, exactly.
func (t *Tree) Keep(salt string, tokens []int32, value any, bytes int, now time.Time) {
	m := t.Find(salt, tokens)
	if m.Exact < len(tokens) || len(tokens) == 0 || bytes > t.images.budget {
		return
	}
	n := m.path[len(m.path)-1]
	n.images = slices.DeleteFunc(n.images, func(i *Image) bool {
		if i.Pos == len(tokens) {
			t.images.remove(i)
		}
		return i.Pos == len(tokens)
	})
	i := &Image{Pos: len(tokens), Value: value, bytes: bytes, node: n, used: now}
	i.place = t.images.recent.PushFront(i)
	t.images.bytes += bytes
	n.images = append(n.images, i)
	slices.SortFunc(n.images, func(a, b *Image) int { return a.Pos - b.Pos })
	t.ExpireImages(now)
}

// Deepest is the deepest image of a match, down to position from, that ok accepts; nil if there is none.
func (t *Tree) Deepest(m *Match, from int, now time.Time, ok func(*Image) bool) *Image {
	t.ExpireImages(now)
	for at, n := range slices.Backward(m.path) {
		start := at * PageTokens
		if m.Exact <= start {
			continue
		}
		matched := n.keys[:min(len(n.keys), m.Exact-start)]
		var best *Image
		for _, c := range n.parent.children[n.keys[0]] { // a page that begins alike may have it
			most := start + common(c.keys, matched)
			for _, i := range slices.Backward(c.images) {
				if i.Pos <= most && i.Pos >= from && (best == nil || i.Pos > best.Pos) && ok(i) {
					best = i
					break
				}
			}
		}
		if best != nil {
			best.used = now
			t.images.recent.MoveToFront(best.place)
			return best
		}
	}
	return nil
}

// ExpireImages drops images that were not used for long or are too many.
func (t *Tree) ExpireImages(now time.Time) {
	for e := t.images.recent.Back(); e != nil; e = t.images.recent.Back() {
		i := e.Value.(*Image)
		if t.images.bytes <= t.images.budget && (t.images.ttl <= 0 || now.Sub(i.used) < t.images.ttl) {
			return
		}
		i.node.images = slices.DeleteFunc(i.node.images, func(o *Image) bool { return o == i })
		t.images.remove(i)
	}
}

func (s *Images) remove(i *Image) {
	s.recent.Remove(i.place)
	s.bytes -= i.bytes
	s.gone++
	if s.dropped != nil {
		s.dropped(i.Value)
	}
}

// ImageBytes is the size of all images, Images their number.
func (t *Tree) ImageBytes() int { return t.images.bytes }

// ImagesDropped is the number of images that are gone.
func (t *Tree) ImagesDropped() int { return t.images.gone }

// Images is the number of images.
func (t *Tree) Images() int { return t.images.recent.Len() }
