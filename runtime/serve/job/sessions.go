package job

import (
	"slices"
	"sync"

	"cedrun/runtime/engine"
)

// sessions are the conversations whose KV cache may still be there. There are as many as the engine has slots; the
// engine may have dropped one, which costs no more than a prefill.
type sessions struct {
	mu   sync.Mutex
	most int
	idle []*conversation // longest idle first
}

// conversation is a session with what it has processed.
type conversation struct {
	*engine.Session
	owner  string // who may continue it
	tokens []int32
}

// take gives the owner's conversation that is the longest beginning of a prompt, or a new one.
func (s *sessions) take(owner string, prompt []int32) *conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	best := -1
	for i, c := range s.idle {
		if c.owner != owner || len(c.tokens) >= len(prompt) || best >= 0 && len(c.tokens) <= len(s.idle[best].tokens) {
			continue
		}
		if slices.Equal(c.tokens, prompt[:len(c.tokens)]) {
			best = i
		}
	}
	if best < 0 {
		return &conversation{Session: &engine.Session{}, owner: owner}
	}
	c := s.idle[best]
	s.idle = slices.Delete(s.idle, best, best+1)
	return c
}

// give takes a conversation back with what it has processed by now.
func (s *sessions) give(c *conversation, tokens []int32) {
	if len(tokens) == 0 {
		return
	}
	c.tokens = tokens
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, c)
	if over := len(s.idle) - s.most; over > 0 {
		s.idle = slices.Delete(s.idle, 0, over)
	}
}
