package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

// Request is one prompt to be continued.
type Request struct {
	Prompt []int32
	// Forced tokens are fed one decode step each after the prompt in place of sampled ones (evaluation, comparison).
	Forced    []int32
	MaxTokens int // tokens to sample; 0 = none
	Sampling  sample.Params
	// Constraint, if set, limits the text to a form. The request has it for itself; it is used on the engine's goroutine.
	// When nothing can follow but the end, the text ends without a stop token.
	Constraint sample.Constraint
	Choice     int // tells the texts apart that one seed gives for one prompt
	Prefill    model.Prefill
	// TopLogprobs is how many alternatives each sampled Token names; at most MaxTopLogprobs.
	TopLogprobs int
	// Filled is how many tokens of the prompt count as processed without being run: random numbers stand in the caches for
	// them (model.Fill), for measurements. At most all but the last.
	Filled int
	Stop   []int32 // token ids that end the text; they are not emitted

	// Session, if set, is the conversation whose sequence the request continues, if its tokens begin the prompt, and
	// otherwise replaces. Requests of one session run one after another.
	Session *Session
	// Cache is how the request, if it has no session, uses the prefix cache; what requests of one Salt leave there is not
	// seen by those of another.
	Cache Cache
	Salt  string

	// Branch, if not 0, is where the prompts that come next may leave this one, before its end: a snapshot is taken there too.
	Branch int
	// Priority orders requests, lowest first; equal ones share the engine fairly between Owners.
	Priority int
	Owner    string

	// OnLogits, if set, gets the logits row of each position from LogitsFrom on, in order, on the engine's goroutine;
	// the row is valid during the call. Rows that a session processed before do not come again; from the cache no hit
	// is taken that reaches beyond LogitsFrom.
	OnLogits   func(pos int, row []float32) error
	LogitsFrom int
	// OnAdmit, if set, is told that the request has got its place and what it begins on, on the engine's goroutine.
	OnAdmit func(Reuse)
	// OnPrefill, if set, is told how many prompt tokens are done, on the engine's goroutine.
	OnPrefill func(done, total int)
}

// MaxTopLogprobs bounds Request.TopLogprobs.
const MaxTopLogprobs = 20

// Token is one sampled token; Logprob is its natural log probability under the model, if Sampling asks for it, and Top
// are the most likely tokens at its place, ranked, if TopLogprobs does.
type Token struct {
	ID      int32
	Logprob float64
	Top     []sample.Choice
}

// Finish says why a generation ended.
type Finish string

// Reasons for the end of a generation.
const (
	FinishStop      Finish = "stop"      // a stop token
	FinishLength    Finish = "length"    // MaxTokens, or the context is full
	FinishCancelled Finish = "cancelled" // the request's context ended
	FinishError     Finish = "error"
)

// Stats measures a generation, prefill and decode apart.
type Stats struct {
	PromptTokens, DecodeSteps int
	Reused                    int // of the prompt tokens: those that were not run, thanks to the session or the cache
	Cache                     Reuse
	Prefill, Decode           time.Duration // time in steps that ran it, waiting included
}

// Result is how a generation ended.
type Result struct {
	Finish Finish
	Err    error
	Stats  Stats
}

// Generation is a running request. Its tokens are queued, so a slow reader never holds the engine up.
type Generation struct {
	mu     sync.Mutex
	wake   chan struct{} // capacity 1
	tokens []Token
	read   int // of tokens
	done   bool
	result Result
}

func newGeneration() *Generation { return &Generation{wake: make(chan struct{}, 1)} }

// Next waits for the next token. ok is false when the generation has ended (Result says how) or ctx has.
func (g *Generation) Next(ctx context.Context) (t Token, ok bool) {
	for {
		g.mu.Lock()
		if g.read < len(g.tokens) {
			t, g.tokens[g.read] = g.tokens[g.read], Token{}
			if g.read++; g.read == len(g.tokens) {
				g.tokens, g.read = g.tokens[:0], 0
			}
			g.mu.Unlock()
			return t, true
		}
		done := g.done
		g.mu.Unlock()
		if done {
			return Token{}, false
		}
		select {
		case <-g.wake:
		case <-ctx.Done():
			return Token{}, false
		}
	}
}

// Wait discards tokens until the generation has ended.
func (g *Generation) Wait() Result {
	for {
		if _, ok := g.Next(context.Background()); !ok {
			return g.Result()
		}
	}
}

// Result is how the generation ended; meaningful once Next has returned false on a live context.
func (g *Generation) Result() Result {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.result
}

func (g *Generation) emit(t Token) {
	g.mu.Lock()
	g.tokens = append(g.tokens, t)
	g.mu.Unlock()
	g.signal()
}

func (g *Generation) finish(r Result) {
	g.mu.Lock()
	g.done, g.result = true, r
	g.mu.Unlock()
	g.signal()
}

func (g *Generation) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// validate rejects what could never run.
func (r *Request) validate(e *Engine) error {
	total := len(r.Prompt) + len(r.Forced) + r.MaxTokens
	switch {
	case len(r.Prompt) == 0:
		return fmt.Errorf("the prompt is empty: give at least one token")
	case r.MaxTokens < 0:
		return fmt.Errorf("max tokens %d: use 0 or more", r.MaxTokens)
	case len(r.Forced) > 0 && r.MaxTokens > 0:
		return fmt.Errorf("a request either forces tokens or samples them")
	case r.TopLogprobs < 0 || r.TopLogprobs > MaxTopLogprobs:
		return fmt.Errorf("log-probabilities of %d alternatives: use 0 to %d", r.TopLogprobs, MaxTopLogprobs)
	case r.MaxTokens > e.opt.Context || total > e.opt.Context: // the sum of huge numbers wraps around
		return fmt.Errorf("prompt of %d tokens plus %d to generate: the context holds %d; shorten the prompt, lower --max-tokens or raise --context",
			len(r.Prompt), total-len(r.Prompt), e.opt.Context)
	}
	if r.Filled < 0 || r.Filled > 0 && (r.Filled >= len(r.Prompt) || r.Session != nil || r.Cache != CacheOff) {
		return fmt.Errorf("%d filled tokens of a prompt of %d: leave one to be processed, and use neither session nor cache", r.Filled, len(r.Prompt))
	}
	if r.Branch < 0 || r.Branch > len(r.Prompt) {
		return fmt.Errorf("a branch at %d of a prompt of %d tokens", r.Branch, len(r.Prompt))
	}
	if r.Session != nil && r.Cache != CacheOff {
		return fmt.Errorf("a request uses either a session or the cache")
	}
	if r.OnLogits != nil {
		if o := e.model.Options(); r.LogitsFrom < len(r.Prompt)-1 && o.Outputs < e.opt.Chunk+o.Slots {
			return fmt.Errorf("logits of several prompt rows: this engine was set up for %d a step, which takes Outputs of %d", o.Outputs, e.opt.Chunk+o.Slots)
		}
		first := model.NewPlan(e.model.Config(), r.Prefill, len(r.Prompt)).FirstLogits()
		if r.LogitsFrom < first {
			return fmt.Errorf("logits from position %d: prefill mode %s computes them from position %d on; use --prefill exact", r.LogitsFrom, r.Prefill, first)
		}
	}
	at := 0
	for _, ids := range [][]int32{r.Prompt, r.Forced} {
		for _, id := range ids {
			if id < 0 || int(id) >= e.model.Config().VocabSize {
				return fmt.Errorf("token %d at position %d: the model's vocabulary is 0 to %d", id, at, e.model.Config().VocabSize-1)
			}
			at++
		}
	}
	return nil
}
