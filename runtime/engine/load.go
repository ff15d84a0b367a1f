package engine

import "sync/atomic"

// Load is how busy an engine is.
type Load struct {
	Running, Waiting  int // requests that take part in steps, and that wait for a place
	KVTokens, KVInUse int // tokens of KV cache in all, and with a page, those of idle sessions included
}

// load is the Load after the last step.
type load struct{ running, waiting, inUse atomic.Int64 }

// Load can be called from any goroutine; it is as of the last step.
func (e *Engine) Load() Load {
	return Load{
		Running: int(e.load.running.Load()), Waiting: int(e.load.waiting.Load()),
		KVTokens: e.model.Options().KVTokens, KVInUse: int(e.load.inUse.Load()),
	}
}

func (e *Engine) measure() {
	e.load.running.Store(int64(len(e.running)))
	e.load.waiting.Store(int64(len(e.waiting)))
	e.load.inUse.Store(int64(e.model.Options().KVTokens - e.model.FreeTokens()))
}
