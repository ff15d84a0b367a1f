package engine

import (
	"errors"
	"slices"

	"cedrun/runtime/kv"
	"cedrun/runtime/model"
)

// Session keeps the sequence of a conversation, with its windows and KV pages, from one request to the next, so that
// only what is new is prefilled. The zero value is a new one; it belongs to the engine of its first request.
//
// A session is a cache: when a request needs a slot or pages that idle sessions hold, those that idled longest lose
// theirs. A request that failed leaves its session empty; one that was cancelled leaves what was processed.
type Session struct {
	seq  *model.Sequence // while idle; of the loop's goroutine only, like user
	user *run            // that has the sequence now
}

// place gives a request its sequence, that of its session or a new one, and room for tokens.
func (e *Engine) place(q *run, tokens int) error {
	if s := q.Session; s != nil {
		s.user = q
		if err := e.resume(q, s); err != nil {
			return err
		}
	}
	if q.seq == nil {
		for len(e.running)+len(e.idle) >= e.model.Options().Slots {
			if err := e.evict(); err != nil {
				return err
			}
		}
		if q.Cache != CacheOff {
			if err := e.adopt(q, tokens); err != nil {
				return err
			}
		}
	}
	if q.seq == nil {
		var err error
		if q.seq, err = e.model.NewSequence(q.Prefill, len(q.Prompt)); err != nil {
			return err
		}
	}
	if q.branch == 0 {
		q.branch = q.Branch
	}
	if err := e.room(kv.PagesFor(tokens) - len(q.seq.Pages())); err != nil {
		return err
	}
	if err := e.model.Reserve(q.seq, tokens); err != nil || q.Filled == 0 {
		return err
	}
	return e.model.Fill(q.seq, q.Prompt[:q.Filled], uint64(len(e.running)))
}

// resume takes the session's sequence if the prompt begins with its tokens, and gives it back otherwise.
func (e *Engine) resume(q *run, s *Session) error {
	seq := s.seq
	if seq == nil {
		return nil
	}
	s.seq = nil
	e.idle = slices.DeleteFunc(e.idle, func(o *Session) bool { return o == s })
	if n := seq.Pos(); n < len(q.Prompt) && slices.Equal(seq.Tokens(), q.Prompt[:n]) {
		ok, err := e.model.Extend(seq, q.Prefill, len(q.Prompt))
		if ok && err == nil {
			q.seq, q.stats.Reused, q.stats.Cache.Hit = seq, n, n
			return nil
		}
		if err != nil {
			return errors.Join(err, e.model.Release(seq))
		}
	}
	return e.model.Release(seq)
}

// evict empties the session that idled longest.
func (e *Engine) evict() error {
	s := e.idle[0]
	e.idle = e.idle[1:]
	seq := s.seq
	s.seq = nil
	return e.model.Release(seq)
}

// available is how many tokens a request could have pages for if idle sessions and cached pages gave way.
func (e *Engine) available() int {
	n := e.model.FreeTokens() + e.model.Pool().Idle()*kv.PageTokens
	for _, s := range e.idle {
		n += s.seq.Reserved()
	}
	return n
}

// leave takes a request's sequence from it: its session or the cache keeps what was processed well, or it is released.
func (e *Engine) leave(q *run, keep bool) error {
	var err error
	if keep && q.seq != nil {
		err = e.store(q, nil)
	}
	seq := q.seq
	q.seq = nil
	if s := q.Session; s != nil && s.user == q {
		s.user = nil
		if keep && seq != nil {
			s.seq = seq
			e.idle = append(e.idle, s)
			return nil
		}
	}
	if seq == nil {
		return nil
	}
	return errors.Join(err, e.model.Release(seq))
}
