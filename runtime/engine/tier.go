package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cedrun/runtime/kv"
	"cedrun/runtime/kv/disk"
)

// tier is the disk below the pages in memory. Full pages of the prefix tree are written behind, some after each step; a
// waiting request whose prompt goes on on disk where memory ends has those pages read, while others run, and is admitted
// when the tree has them. Goroutines read; the loop copies between pages and buffers, and never waits for the disk.
type tier struct {
	disk  *disk.Store // nil: there is none
	spill []spilled   // pages that are to be written, a sequence's in order
	page  []byte
	parts chan part
	inUse chan struct{} // buffers
	spare sync.Pool
	reads sync.WaitGroup
}

// spilled is a page of the tree, and its name on disk.
type spilled struct {
	node kv.NodeID
	page disk.Page
}

// fetch is the beginning of a prompt that is being read.
type fetch struct {
	cancel context.CancelFunc
	pages  []kv.Page // a reference each: those that were in memory, then those that are read
	first  int       // of the latter
	whole  int       // pages that are or may become whole, from the first one on
	known  int       // pages from the first one on that were exact, of those in memory
	exact  []bool    // of those that are read
	left   int       // reads that have not ended
	over   bool      // nobody waits any more
}

// part is one page that was read.
type part struct {
	fetch *fetch
	n     int
	data  *[]byte
	exact bool
	err   error
}

const (
	fetchReaders = 4   // goroutines of a fetch
	buffers      = 256 // pages that are read and not yet copied
	spillStep    = 8   // pages written behind after a step
	spillIdle    = 64  // and when nothing runs
	mostSpilled  = 1e5 // pages that wait for that
	writeQueue   = 192 // pages that the store may have queued before more are given to it
	idleTick     = 5 * time.Millisecond
	drainTime    = 10 * time.Second // for what is not written yet at the end
)

func (t *tier) open(store *disk.Store, pageBytes int) {
	if t.disk = store; store != nil {
		t.page, t.parts, t.inUse = make([]byte, pageBytes), make(chan part, buffers), make(chan struct{}, buffers)
		t.spare.New = func() any { b := make([]byte, pageBytes); return &b }
	}
}

// noPicture stands for digests of pictures: there are none yet.
func noPicture(int32) [32]byte { return [32]byte{} }

// name finds out what the pages of a request's prompt are called on disk, all but what gives its logits.
func (t *tier) name(q *run) {
	if t.disk == nil || q.Cache == CacheOff {
		return
	}
	most := len(q.Prompt) - 1
	if q.OnLogits != nil {
		most = min(most, q.LogitsFrom)
	}
	q.names = disk.Chain(q.Salt, q.Prompt[:most], noPicture)
	for i := range q.names {
		q.names[i].Exact = q.Cache == CacheSnapshot
	}
}

// fetch has pages read from disk that a waiting request lacks. True: it waits for them, or for those that another one has
// read.
func (e *Engine) fetch(q *run) (wait bool, err error) {
	if f := q.fetch; f != nil {
		if f.left > 0 {
			return true, nil
		}
		return false, e.fetchedAll(q, f)
	}
	if q.fetched || len(q.names) == 0 {
		return false, nil
	}
	m := e.tree.Find(q.Salt, q.Prompt)
	known := m.Tokens
	if q.Cache == CacheSnapshot {
		known = m.Exact
	}
	m.Cut(known / kv.PageTokens * kv.PageTokens)
	if i := slices.Index(m.Pages(), kv.NoPage); i >= 0 {
		m.Cut(i * kv.PageTokens)
	}
	held := m.Pages()
	first := len(held)
	if first >= len(q.names) {
		q.fetched = true
		return false, nil
	}
	for _, o := range e.waiting {
		if o.fetch != nil && o.fetch.first <= first && first < len(o.names) && o.names[first].Hash == q.names[first].Hash {
			return true, nil
		}
	}
	q.fetched = true
	hit := e.disk.Find(q.names, q.Cache == CacheSnapshot)
	n := hit.Len() - first
	if n <= 0 {
		hit.Release()
		return false, nil
	}
	pool := e.model.Pool()
	for i, p := range held {
		if err := pool.Hold(p); err != nil {
			hit.Release()
			return false, errors.Join(err, pool.Release(held[:i]))
		}
	}
	err = e.room(n)
	if err != nil || pool.Free() < n {
		hit.Release()
		return false, errors.Join(err, pool.Release(held))
	}
	own, err := pool.Take(n)
	if err != nil {
		hit.Release()
		return false, errors.Join(err, pool.Release(held))
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &fetch{cancel: cancel, pages: slices.Concat(held, own), first: first, whole: first + n, known: m.Exact / kv.PageTokens, exact: make([]bool, n), left: n}
	q.fetch = f
	e.reads.Go(func() {
		defer hit.Release()
		e.read(ctx, f, q.names[first:first+n])
	})
	return true, nil
}

// read reads pages, several at a time.
func (t *tier) read(ctx context.Context, f *fetch, names []disk.Page) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(fetchReaders, len(names)) {
		all.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= len(names) {
					return
				}
				select {
				case t.inUse <- struct{}{}:
				case <-ctx.Done():
					return
				}
				p := part{fetch: f, n: n, data: t.spare.Get().(*[]byte)}
				p.exact, p.err = t.disk.Read(ctx, names[n], *p.data)
				select {
				case t.parts <- p:
				case <-ctx.Done():
					t.free(p)
					return
				}
			}
		})
	}
	all.Wait()
}

func (t *tier) free(p part) {
	t.spare.Put(p.data)
	<-t.inUse
}

// arrive takes a page that was read. done says that it was the last one of its request.
func (e *Engine) arrive(p part) (done bool) {
	defer e.free(p)
	f := p.fetch
	if f.over {
		return false
	}
	if p.err == nil {
		p.err = e.model.WritePage(f.pages[f.first+p.n], *p.data)
	}
	if p.err != nil { // it is computed, and what follows it
		f.whole = min(f.whole, f.first+p.n)
	}
	f.exact[p.n] = p.exact
	f.left--
	return f.left == 0
}

// fetching reports whether a waiting request has pages read.
func (e *Engine) fetching() bool {
	return slices.ContainsFunc(e.waiting, func(q *run) bool { return q.fetch != nil })
}

// fetchedAll puts what was read into the tree. The request keeps it until it has its place.
func (e *Engine) fetchedAll(q *run, f *fetch) error {
	q.fetch = nil
	f.over = true
	f.cancel()
	exact := f.known
	for exact >= f.first && exact < f.whole && f.exact[exact-f.first] {
		exact++
	}
	tokens := q.Prompt[:f.whole*kv.PageTokens]
	e.tree.Insert(q.Salt, tokens, f.pages[:f.whole], exact*kv.PageTokens)
	q.stats.Cache.Loaded = (f.whole - f.first) * kv.PageTokens
	q.held = f.pages[:f.whole:f.whole]
	return e.model.Pool().Release(f.pages[f.whole:])
}

// letGo returns the pages that a waiting request holds or has read for it.
func (e *Engine) letGo(q *run) error {
	held := q.held
	q.held = nil
	if f := q.fetch; f != nil {
		q.fetch = nil
		f.over = true
		f.cancel()
		held = f.pages
	}
	return e.model.Pool().Release(held)
}

// letGoOthers takes from waiting requests what was read for them, for one that would else never get its place. They read
// again.
func (e *Engine) letGoOthers(q *run) error {
	var err error
	for _, o := range e.waiting {
		if o != q && o.held != nil {
			o.fetched = false
			err = errors.Join(err, e.letGo(o))
		}
	}
	return err
}

// spillPages notes the full pages of a stored sequence that are not on disk.
func (e *Engine) spillPages(q *run, tokens []int32, exact int) {
	if e.disk == nil || len(e.spill) > mostSpilled {
		return
	}
	full := len(tokens) / kv.PageTokens
	for i := len(q.names); i < full; i++ {
		keys := (*[kv.PageTokens]int32)(tokens[i*kv.PageTokens:])
		if i == 0 {
			q.names = append(q.names, disk.First(q.Salt, keys, noPicture))
		} else {
			q.names = append(q.names, q.names[i-1].Next(keys, noPicture))
		}
	}
	m := e.tree.Find(q.Salt, tokens[:full*kv.PageTokens])
	for i, node := range m.Nodes() {
		p := q.names[i]
		p.Exact = (i+1)*kv.PageTokens <= exact
		if !e.disk.Has(p.Hash, p.Exact) {
			e.spill = append(e.spill, spilled{node, p})
		}
	}
}

// writeBehind gives the store up to most pages. What gave way in memory meanwhile is not written.
func (e *Engine) writeBehind(most int) {
	if len(e.spill) == 0 {
		return
	}
	most = min(most, writeQueue-e.disk.Stats().Queued)
	n := 0
	for ; n < len(e.spill) && most > 0; n++ {
		x := &e.spill[n]
		page := e.tree.Page(x.node)
		if page == kv.NoPage || e.disk.Has(x.page.Hash, x.page.Exact) || x.page.At > 0 && !e.disk.Has(x.page.Parent, false) {
			continue
		}
		most--
		if e.model.ReadPage(page, e.page) == nil {
			e.disk.Write(x.page, e.page)
		}
	}
	e.spill = slices.Delete(e.spill, 0, n)
}

// drain writes what is left, at the end.
func (e *Engine) drain() {
	if e.disk == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	for len(e.spill) > 0 && ctx.Err() == nil {
		if e.writeBehind(spillIdle); len(e.spill) > 0 && e.disk.Flush(ctx) != nil {
			return
		}
	}
}
