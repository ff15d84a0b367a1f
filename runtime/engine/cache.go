package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"cedrun/runtime/kv"
	"cedrun/runtime/model"
)

// Cache says how a request may begin on what earlier requests of its salt have left: their pages of global KV, which it
// shares, and snapshots of what sequences keep beside them.
type Cache uint8

// The modes of Cache.
const (
	// CacheOff neither uses the cache nor leaves anything in it.
	CacheOff Cache = iota
	// CacheSnapshot gives the bits of a cold run. It goes on from the deepest snapshot within the hit; without one, rows
	// are run again as far back as windows reach, against the shared pages.
	CacheSnapshot
	// CacheReplay runs again the last window of the hit only (bounded replay, spec serving 4.3), unless a snapshot is as
	// deep: the logits may then differ from a cold run's. A hit within the first window is treated as by CacheSnapshot.
	CacheReplay
)

// Restore says how a request got its windows.
type Restore string

// The ways.
const (
	RestoreNone     Restore = ""         // a cold run
	RestoreSnapshot Restore = "snapshot" // from a snapshot
	RestoreRows     Restore = "rows"     // by running as many rows as it takes to be exact
	RestoreReplay   Restore = "replay"   // by bounded replay
)

// Reuse is what a request found in the cache.
type Reuse struct {
	Restore Restore
	Hit     int // prompt tokens whose pages it shares
	Rerun   int // of them: those that were run again, writing nothing
	Loaded  int // prompt tokens whose pages were read from disk for it
	Agreed  int // prompt tokens that the cache knew, usable or not
	Differs *Difference
}

// Difference is where a prompt left what the cache knows, if it did: after Agreed tokens.
type Difference struct {
	Prompt, Cached []int32 // some tokens of both from there on
}

// shownTokens bounds the tokens of a Difference.
const shownTokens = 16

// adopt gives a request a sequence that begins on the cache, if there is something to begin on; tokens is how many
// positions it will need.
func (e *Engine) adopt(q *run, tokens int) error {
	m := e.tree.Find(q.Salt, q.Prompt)
	q.stats.Cache.Agreed = m.Tokens
	if rest := q.Prompt[m.Tokens:]; len(rest) > 0 && len(m.Rest) > 0 {
		q.stats.Cache.Differs = &Difference{slices.Clone(rest[:min(len(rest), shownTokens)]), slices.Clone(m.Rest[:min(len(m.Rest), shownTokens)])}
	}
	most := len(q.Prompt) - 1
	if q.OnLogits != nil {
		most = min(most, q.LogitsFrom) // rows before are not run
	}
	if i := slices.Index(m.Pages(), kv.NoPage); i >= 0 {
		m.Cut(i * kv.PageTokens)
	}
	x := e.whole(q, &m)
	if x == nil {
		m.Cut(most)
		x = e.prefix(q, &m)
	}
	if x == nil {
		return nil
	}
	pool := e.model.Pool()
	held := m.Pages()
	for n, p := range held {
		if err := pool.Hold(p); err != nil {
			return errors.Join(err, pool.Release(held[:n]))
		}
	}
	own := kv.PagesFor(tokens) - len(x.Tokens)/kv.PageTokens // a copy of the last page of the hit among them
	err := e.room(own)
	if err == nil && pool.Free() < own && len(x.Tokens)%kv.PageTokens != 0 { // no room for both it and its copy
		full := len(x.Tokens) / kv.PageTokens
		err = pool.Release(held[full:])
		held = held[:full]
		q.logits = nil
		m.Cut(min(full*kv.PageTokens, most))
		if x = e.prefix(q, &m); err != nil || x == nil || len(x.Tokens) != full*kv.PageTokens {
			return errors.Join(err, pool.Release(held))
		}
		err = e.room(own)
	}
	if err != nil {
		return errors.Join(err, pool.Release(held))
	}
	x.Pages = held
	if q.seq, err = e.model.Adopt(q.Prefill, len(q.Prompt), *x); err != nil {
		return errors.Join(err, pool.Release(held))
	}
	e.tree.Use(&m)
	r := &q.stats.Cache
	r.Hit, r.Rerun = len(x.Tokens), len(x.Tokens)-q.seq.Pos()
	switch {
	case x.Image != nil:
		r.Restore = RestoreSnapshot
	case x.Replay:
		r.Restore = RestoreReplay
	default:
		r.Restore = RestoreRows
		if r.Rerun >= e.opt.Chunk { // others may branch off here too
			q.branch = r.Hit
		}
	}
	q.stats.Reused = q.seq.Pos()
	return errors.Join(err, pool.Release(held[len(x.Tokens)/kv.PageTokens:]))
}

// snapshot is an image of a sequence, and, at the end of a prompt, what predicts the first token.
type snapshot struct {
	image   *model.Image
	prefill model.Prefill
	logits  []float32
}

// whole is the beginning of a request whose whole prompt has run before: nothing is left to run.
func (e *Engine) whole(q *run, m *kv.Match) *model.Prefix {
	n := len(q.Prompt)
	if m.Exact < n || q.OnLogits != nil && q.LogitsFrom < n-1 {
		return nil
	}
	i := e.tree.Deepest(m, n, time.Now(), func(i *kv.Image) bool {
		s := i.Value.(*snapshot)
		return s.logits != nil && s.prefill == q.Prefill
	})
	if i == nil {
		return nil
	}
	s := i.Value.(*snapshot)
	q.logits = s.logits
	return &model.Prefix{Tokens: q.Prompt, Exact: n, Image: s.image, Whole: true}
}

// prefix decides how a request begins on a match, which it cuts to what is used; nil means a cold run.
func (e *Engine) prefix(q *run, m *kv.Match) *model.Prefix {
	exact := *m
	exact.Cut(m.Exact)
	start := e.model.RestartAt(q.Prefill, len(q.Prompt), exact.Tokens)
	var image *model.Image
	if i := e.tree.Deepest(&exact, start+1, time.Now(), func(i *kv.Image) bool {
		return e.model.Continues(i.Value.(*snapshot).image, q.Prefill, len(q.Prompt))
	}); i != nil {
		image, start = i.Value.(*snapshot).image, i.Pos
	}
	replay := q.Cache == CacheReplay && m.Tokens >= e.model.ReplayFrom() && m.Tokens-e.model.Config().Window > start
	if !replay {
		*m = exact
	} else {
		image = nil
	}
	if m.Tokens == 0 {
		return nil
	}
	return &model.Prefix{Tokens: q.Prompt[:m.Tokens], Exact: m.Exact, Image: image, Replay: replay}
}

// store leaves what a request has processed by now to later ones. logits, if any, predict the next token.
func (e *Engine) store(q *run, logits []float32) error {
	seq := q.seq
	if q.Cache == CacheOff || seq.Pos() == q.stored {
		return nil
	}
	if err := q.check(); err != nil {
		return err
	}
	q.stored = seq.Pos()
	e.tree.Insert(q.Salt, seq.Tokens(), seq.Pages(), seq.Exact())
	e.spillPages(q, seq.Tokens(), seq.Exact())
	return e.keep(q, logits)
}

// keep takes a snapshot of a request, whose pages are in the tree.
func (e *Engine) keep(q *run, logits []float32) error {
	if e.opt.Snapshots == 0 {
		return nil
	}
	var old snapshot
	if n := len(e.spare); n > 0 {
		old, e.spare = *e.spare[n-1], e.spare[:n-1]
	}
	seq := q.seq
	image, err := e.model.Save(seq, old.image)
	if err != nil {
		return fmt.Errorf("snapshot of a sequence: %w", err)
	}
	switch {
	case image != nil:
		s := &snapshot{image: image, prefill: q.Prefill}
		if logits != nil && seq.Pos() == len(q.Prompt) {
			s.logits = append(old.logits[:0], logits...)
		}
		e.tree.Keep(q.Salt, seq.Tokens(), s, image.Bytes()+4*len(s.logits), time.Now())
	case old.image != nil:
		e.spare = append(e.spare, &old)
	}
	return nil
}

// mostSpare bounds the snapshots whose memory waits for others; without any, garbage would double what they take.
const mostSpare = 4

// dropped keeps the memory of a snapshot that is gone for the next one. A request that has been found one uses it before
// the next is taken.
func (e *Engine) dropped(value any) {
	if len(e.spare) < mostSpare {
		e.spare = append(e.spare, value.(*snapshot))
	}
}

// check insists that the tokens of a sequence are those of its positions, before others begin on them.
func (q *run) check() error {
	tokens, n := q.seq.Tokens(), len(q.Prompt)
	fed := max(0, len(tokens)-n)
	if !slices.Equal(tokens[:len(tokens)-fed], q.Prompt[:len(tokens)-fed]) || fed != q.stats.DecodeSteps || len(q.seq.Pages()) < kv.PagesFor(len(tokens)) {
		return fmt.Errorf("the KV cache of a prompt of %d tokens and %d decode steps has %d positions in %d pages, not all of them the prompt's: nothing of it is kept", n, q.stats.DecodeSteps, len(tokens), len(q.seq.Pages()))
	}
	return nil
}

// room makes pages free, if it can: those that only the cache has, unused for longest first, then idle sessions'.
func (e *Engine) room(pages int) error {
	pool := e.model.Pool()
	if short := pages - pool.Free(); short > 0 {
		e.tree.Evict(short)
	}
	for len(e.idle) > 0 && pool.Free() < pages {
		if err := e.evict(); err != nil {
			return err
		}
	}
	return nil
}
