package kv

import (
	"container/list"
	"slices"
)

// Tree finds pages by the tokens whose rows they hold. A node is one page: up to PageTokens tokens after those of its
// parent. Only a full page has children. The tree holds one reference to each of its pages, so a page outlives the
// sequence that wrote it; a sequence that begins alike holds another and writes into pages of its own only.
//
// Callers that must not see each other's pages use different salts. A page's rows past the number of tokens that its
// node counts belong to nobody: a sequence may still be appending there.
//
// A key is a token id; the positions of a picture, which all have one id, have the key that Picture gives for its content.
type Tree struct {
	pool   *Pool
	roots  map[string]*node
	recent *list.List // of *node, those used last first; a parent always comes before its children
	images Images
	seen   map[[32]byte]int32 // keys of pictures

	cold int // nodes without a page
	next NodeID
	gone int // pages that Evict freed
	byID map[NodeID]*node
}

// NodeID names a node of a Tree for its lifetime.
type NodeID int64

// NoPage stands for a page that is not in memory.
const NoPage Page = -1

type node struct {
	id       NodeID
	parent   *node
	salt     string // of a child of a root
	keys     []int32
	page     Page
	exact    int // leading tokens whose rows have the bits of a cold run
	children map[int32][]*node
	images   []*Image // by position
	place    *list.Element
}

// NewTree makes an empty tree of a pool's pages.
func NewTree(pool *Pool) *Tree {
	return &Tree{pool: pool, roots: map[string]*node{}, recent: list.New(), images: Images{recent: list.New()}, seen: map[[32]byte]int32{}, byID: map[NodeID]*node{}}
}

// Picture is the key for positions of a picture with a digest of its pixels and grid: negative, so never a token id.
func (t *Tree) Picture(digest [32]byte) int32 {
	k, ok := t.seen[digest]
	if !ok {
		k = -1 - int32(len(t.seen))
		t.seen[digest] = k
	}
	return k
}

// Match is the longest beginning of a prompt that a tree knows.
type Match struct {
	Tokens int // that agree
	Exact  int // of them: those whose rows have the bits of a cold run
	// Rest is what a page in the tree goes on with after Tokens, as far as that page: the newest, where there are several.
	Rest []int32
	path []*node
}

// Find looks for a prompt.
func (t *Tree) Find(salt string, prompt []int32) Match {
	var m Match
	at, exact := t.roots[salt], true
	for at != nil {
		var best *node
		length := 0
		rest := prompt[m.Tokens:]
		if len(rest) == 0 {
			break
		}
		for _, c := range at.children[rest[0]] {
			if n := common(c.keys, rest); n > length || n == length && min(c.exact, n) > min(best.exact, n) {
				best, length = c, n
			}
		}
		if best == nil {
			m.Rest = at.newest()
			break
		}
		m.path = append(m.path, best)
		m.Tokens += length
		if exact {
			m.Exact += min(best.exact, length)
			exact = best.exact >= length
		}
		if length < len(best.keys) {
			m.Rest = best.keys[length:]
			break
		}
		if length < PageTokens {
			break
		}
		at = best
	}
	return m
}

// newest are the keys of the child that was made last.
func (n *node) newest() []int32 {
	var best *node
	for _, cs := range n.children {
		for _, c := range cs {
			if best == nil || c.id > best.id {
				best = c
			}
		}
	}
	if best == nil {
		return nil
	}
	return best.keys
}

func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Cut shortens a match.
func (m *Match) Cut(tokens int) {
	m.Tokens, m.Exact = min(m.Tokens, tokens), min(m.Exact, tokens)
	m.path = m.path[:PagesFor(m.Tokens)]
}

// Pages are the pages of a match; the last may be used in part. NoPage stands for one that is not in memory.
func (m *Match) Pages() []Page {
	pages := make([]Page, len(m.path))
	for i, n := range m.path {
		pages[i] = n.page
	}
	return pages
}

// Nodes names the nodes of a match.
func (m *Match) Nodes() []NodeID {
	ids := make([]NodeID, len(m.path))
	for i, n := range m.path {
		ids[i] = n.id
	}
	return ids
}

// Use marks a match as used.
func (t *Tree) Use(m *Match) {
	for _, n := range slices.Backward(m.path) {
		t.recent.MoveToFront(n.place)
	}
}

// Insert stores the pages of a sequence's tokens, of which the first exact have the bits of a cold run. What is stored
// already stays, unless the new page is better: holds more tokens, or the same ones exactly. Nodes of pages that were
// not there before are returned.
func (t *Tree) Insert(salt string, tokens []int32, pages []Page, exact int) (added []NodeID) {
	if len(tokens) == 0 {
		return nil
	}
	at := t.roots[salt]
	if at == nil {
		at = &node{salt: salt, children: map[int32][]*node{}}
		t.roots[salt] = at
	}
	var path []*node
	for i := 0; i*PageTokens < len(tokens); i++ {
		keys := tokens[i*PageTokens : min((i+1)*PageTokens, len(tokens))]
		n, fresh := t.put(at, keys, pages[i], min(max(exact-i*PageTokens, 0), len(keys)))
		if fresh {
			added = append(added, n.id)
		}
		path = append(path, n)
		at = n
	}
	t.Use(&Match{path: path})
	return added
}

// put finds or makes the child for a page.
func (t *Tree) put(at *node, keys []int32, page Page, exact int) (n *node, fresh bool) {
	siblings := at.children[keys[0]]
	if i := slices.IndexFunc(siblings, func(c *node) bool { return c.page == page && page != NoPage }); i > 0 {
		siblings[0], siblings[i] = siblings[i], siblings[0] // what this page held before grows
	}
	for _, c := range siblings {
		k := common(c.keys, keys)
		switch {
		case k == len(keys) && (k < len(c.keys) || exact <= c.exact): // stored already
			if c.page == NoPage && k == len(c.keys) && exact == c.exact {
				t.refill(c, page)
			}
			return c, false
		case k == len(c.keys) && exact >= c.exact:
			c.keys, c.exact = slices.Clone(keys), exact
			if c.page != page {
				t.vacate(c)
				t.refill(c, page)
			}
			return c, true
		}
	}
	t.next++
	n = &node{id: t.next, parent: at, keys: slices.Clone(keys), exact: exact, page: NoPage}
	t.cold++
	t.byID[n.id] = n
	if at.children == nil {
		at.children = map[int32][]*node{}
	}
	at.children[keys[0]] = append(at.children[keys[0]], n)
	n.place = t.recent.PushFront(n)
	if page != NoPage {
		t.refill(n, page)
	}
	return n, true
}

// refill gives a node without a page one, vacate takes it.
func (t *Tree) refill(n *node, page Page) {
	if t.pool.cached[page] {
		return // another node's: that one keeps it
	}
	t.pool.cache(page)
	n.page = page
	t.cold--
}

func (t *Tree) vacate(n *node) {
	if n.page == NoPage {
		return
	}
	t.pool.uncache(n.page)
	n.page = NoPage
	t.cold++
}

// Evict frees up to n pages that nobody but the tree holds, those unused for longest first, and says how many.
func (t *Tree) Evict(n int) (freed int) {
	for e := t.recent.Back(); e != nil && freed < n; {
		x := e.Value.(*node)
		e = e.Prev()
		if x.page == NoPage || t.pool.refs[x.page] > 1 {
			continue
		}
		before := t.pool.Free()
		for e != nil && within(e.Value.(*node), x) {
			e = e.Prev()
		}
		t.drop(x)
		freed += t.pool.Free() - before
		t.gone += t.pool.Free() - before
	}
	return freed
}

func within(n, of *node) bool {
	for ; n != nil; n = n.parent {
		if n == of {
			return true
		}
	}
	return false
}

// drop removes a node and what comes after it.
func (t *Tree) drop(n *node) {
	siblings := n.parent.children
	left := slices.DeleteFunc(siblings[n.keys[0]], func(c *node) bool { return c == n })
	if siblings[n.keys[0]] = left; len(left) == 0 {
		delete(siblings, n.keys[0])
	}
	if n.parent.parent == nil && len(siblings) == 0 {
		delete(t.roots, n.parent.salt)
	}
	t.clear(n)
}

func (t *Tree) clear(n *node) {
	for _, cs := range n.children {
		for _, c := range cs {
			t.clear(c)
		}
	}
	for _, i := range n.images {
		t.images.remove(i)
	}
	t.vacate(n)
	t.cold--
	t.recent.Remove(n.place)
	delete(t.byID, n.id)
}

// Page is a node's page; NoPage if it has none or is not there any more.
func (t *Tree) Page(id NodeID) Page {
	if n := t.byID[id]; n != nil {
		return n.page
	}
	return NoPage
}

// Pages counts the nodes with a page.
func (t *Tree) Pages() int { return len(t.byID) - t.cold }

// Evicted counts the pages that Evict has freed.
func (t *Tree) Evicted() int { return t.gone }
