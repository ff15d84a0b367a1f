package engine

import (
	"sync/atomic"

	"cedrun/runtime/kv"
	"cedrun/runtime/kv/disk"
	"cedrun/runtime/model"
)

// Load is how busy an engine is.
type Load struct {
	Running, Waiting  int // requests that take part in steps, and that wait for a place
	KVTokens, KVInUse int // tokens of KV cache in all, and with a page, those of idle sessions and cached ones included
	// KVCached tokens have a page that only the prefix cache has, KVShared ones a page that several requests have.
	KVCached, KVShared       int
	Snapshots, SnapshotBytes int
	Fetching                 int // of those waiting: whose pages are being read from disk
	Spilling                 int // pages that are to be written
	Disk                     disk.Stats
	CachePages               int // pages of the prefix cache, in use or not
	// Evictions counts the pages that the cache gave up for others, SnapshotEvictions the snapshots that are gone.
	Evictions, SnapshotEvictions int
	Graphs                       model.GraphUse
	Experts                      ExpertLoad
}

// load is the Load after the last step.
type load struct {
	running, waiting, inUse, cached, shared, fetching, spilling, snapshots, snapshotBytes, pages, evictions, dropped atomic.Int64
}

// Load can be called from any goroutine; it is as of the last step.
func (e *Engine) Load() Load {
	l := Load{
		Running: int(e.load.running.Load()), Waiting: int(e.load.waiting.Load()),
		KVTokens: e.model.Options().KVTokens, KVInUse: int(e.load.inUse.Load()),
		KVCached: int(e.load.cached.Load()), KVShared: int(e.load.shared.Load()),
		Fetching: int(e.load.fetching.Load()), Spilling: int(e.load.spilling.Load()), Disk: e.disk.Stats(),
		CachePages: int(e.load.pages.Load()), Evictions: int(e.load.evictions.Load()), SnapshotEvictions: int(e.load.dropped.Load()),
		Snapshots: int(e.load.snapshots.Load()), SnapshotBytes: int(e.load.snapshotBytes.Load()), Graphs: e.model.Graphs(),
		Experts: expertLoad(e.model.Use()),
	}
	if e.disk == nil {
		l.Disk.Trouble = e.opt.NoStore
	}
	return l
}

func (e *Engine) measure() {
	e.load.running.Store(int64(len(e.running)))
	e.load.waiting.Store(int64(len(e.waiting)))
	e.load.inUse.Store(int64(e.model.Options().KVTokens - e.model.FreeTokens()))
	pool := e.model.Pool()
	e.load.cached.Store(int64(pool.Idle() * kv.PageTokens))
	e.load.shared.Store(int64(pool.Shared() * kv.PageTokens))
	fetching := int64(0)
	for _, q := range e.waiting {
		if q.fetch != nil {
			fetching++
		}
	}
	e.load.fetching.Store(fetching)
	e.load.spilling.Store(int64(len(e.spill)))
	e.load.pages.Store(int64(e.tree.Pages()))
	e.load.evictions.Store(int64(e.tree.Evicted()))
	e.load.dropped.Store(int64(e.tree.ImagesDropped()))
	e.load.snapshots.Store(int64(e.tree.Images()))
	e.load.snapshotBytes.Store(int64(e.tree.ImageBytes()))
}
