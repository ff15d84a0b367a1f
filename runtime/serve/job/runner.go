package job

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"cedrun/runtime/engine"
	"cedrun/runtime/grammar"
	"cedrun/runtime/prompt"
	"cedrun/runtime/sample"
	"cedrun/runtime/serve/metrics"
	"cedrun/runtime/serve/wire"
	"cedrun/runtime/text"
)

// MaxChoices bounds the texts of one request.
const MaxChoices = 128

// MaxPriority bounds the size of Spec.Priority.
const MaxPriority = 1000

// Spec is what a request asks for.
type Spec struct {
	Prompts   [][]int32    // each is continued
	Start     prompt.Start // of a conversation: where its output begins
	Plain     bool         // the output is text throughout, not a conversation
	Choices   int          // texts per prompt; 0 = 1
	MaxTokens int          // per text; below 0 = the default
	Stops     []string
	Grammar   *grammar.Grammar // of the texts; nil: any
	Sampling  sample.Params
	Top       int  // with Sampling.Logprobs: alternatives per token
	Score     bool // log-probabilities of the prompts' tokens as well
	Caller    string
	Owner     string // whom the scheduler counts its texts for
	Priority  int    // lowest first
	Cache     Cache
}

// Limits bound what a Runner takes on.
type Limits struct {
	Slots   int           // texts at a time
	Queue   int           // texts that may wait
	PerKey  int           // texts of one owner that may run or wait; 0 = as many as there are places
	Timeout time.Duration // for a request from arrival to end; 0 = none
}

// Runner takes requests to an engine.
type Runner struct {
	Model  *Model
	engine Engine
	limits Limits
	log    zerolog.Logger
	m      meters
	ctx    context.Context // of all jobs
	abort  context.CancelCauseFunc

	mu       sync.Mutex
	texts    int            // admitted and not ended
	owners   map[string]int // their owners
	draining bool
	idle     chan struct{} // closed when draining and texts is 0
	mean     float64       // seconds of a text lately
}

// NewRunner makes the Runner of a model's engine. Its metrics join s.
func NewRunner(m *Model, e Engine, l Limits, s *metrics.Set, log zerolog.Logger) *Runner {
	r := &Runner{Model: m, engine: e, limits: l, log: log, m: newMeters(s), idle: make(chan struct{}), mean: 1, owners: map[string]int{}}
	r.ctx, r.abort = context.WithCancelCause(context.Background())
	r.gauges(s)
	return r
}

// Load is how many texts run and how many wait.
func (r *Runner) Load() (running, waiting int) {
	r.mu.Lock()
	texts := r.texts
	r.mu.Unlock()
	running = min(r.engine.Load().Running, texts)
	return running, texts - running
}

// Drain refuses new jobs and waits until those that run have ended, or ctx has; then it aborts them.
func (r *Runner) Drain(ctx context.Context) error {
	r.mu.Lock()
	r.draining = true
	if r.texts == 0 {
		r.closeIdle()
	}
	r.mu.Unlock()
	select {
	case <-r.idle:
		return nil
	case <-ctx.Done():
	}
	r.abort(ShuttingDown())
	<-r.idle
	return ctx.Err()
}

func (r *Runner) closeIdle() {
	select {
	case <-r.idle:
	default:
		close(r.idle)
	}
}

// ShuttingDown is the refusal of a server that ends.
func ShuttingDown() *wire.Error {
	return &wire.Error{Status: http.StatusServiceUnavailable, Code: "shutting_down", Message: "the server is shutting down", RetryAfter: 10 * time.Second}
}

// deviceFailed is the answer of a server that ends because its device did.
func deviceFailed() *wire.Error {
	return &wire.Error{Status: http.StatusServiceUnavailable, Code: "device_failed", Message: "the device failed and the server ends; its log says why", RetryAfter: 30 * time.Second}
}

var errTimeout = &wire.Error{Status: http.StatusGatewayTimeout, Code: "timeout", Message: "the request took longer than this server allows"}

// admit takes n places for an owner, or says when to come again.
func (r *Runner) admit(owner string, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		r.m.refused.Add(1, "draining")
		return ShuttingDown()
	}
	if most := r.limits.Slots + r.limits.Queue; r.texts+n > most {
		if n > most {
			return wire.Invalid("n", "the request asks for %d texts; this server runs %d and queues %d", n, r.limits.Slots, r.limits.Queue)
		}
		r.m.refused.Add(1, "full")
		after := r.until(r.texts + n - most)
		return &wire.Error{
			Status: http.StatusServiceUnavailable, Code: "queue_full", RetryAfter: after,
			Message: fmt.Sprintf("the queue is full: %d texts run or wait; try again in %.0f s", r.texts, after.Seconds()),
		}
	}
	if most := r.limits.PerKey; most > 0 && r.owners[owner]+n > most {
		if n > most {
			return wire.Invalid("n", "the request asks for %d texts; this server takes %d of one key", n, most)
		}
		r.m.refused.Add(1, "key")
		after := r.until(r.owners[owner] + n - most)
		return &wire.Error{
			Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded", RetryAfter: after,
			Message: fmt.Sprintf("%d texts of this key run or wait, and one key may have %d; try again in %.0f s", r.owners[owner], most, after.Seconds()),
		}
	}
	r.texts += n
	r.owners[owner] += n
	return nil
}

// until is about how long it takes until n texts have ended.
func (r *Runner) until(n int) time.Duration {
	wait := r.mean * float64(n) / float64(r.limits.Slots)
	return time.Duration(min(max(wait, 1), 600) * float64(time.Second))
}

// leave gives back the place of an owner's text that began to run at start, if it did.
func (r *Runner) leave(owner string, start time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owners[owner]--; r.owners[owner] <= 0 {
		delete(r.owners, owner)
	}
	if !start.IsZero() {
		r.mean += 0.1 * (time.Since(start).Seconds() - r.mean)
	}
	if r.texts--; r.texts == 0 && r.draining {
		r.closeIdle()
	}
}

// Start admits a job and runs it. The caller must call Each or Collect.
func (r *Runner) Start(ctx context.Context, s Spec) (*Job, error) {
	s.Choices = max(s.Choices, 1)
	n := len(s.Prompts) * s.Choices
	if n > MaxChoices {
		return nil, wire.Invalid("n", "the request asks for %d texts; at most %d are possible", n, MaxChoices)
	}
	j := &Job{runner: r, spec: s, began: time.Now(), events: make(chan Event, 16), admitted: make(chan Event, n)}
	for p, ids := range s.Prompts {
		limit, err := r.room(p, ids, s)
		if err != nil {
			return nil, err
		}
		for k := range s.Choices {
			c := &choice{index: len(j.choices), k: k, prompt: ids, limit: limit, thinking: s.Start.Reasoning}
			if s.Plain {
				c.reader, err = text.Plain(r.Model.Tokenizer, s.Stops)
			} else {
				c.reader, err = text.Conversation(r.Model.Tokenizer, s.Start, s.Stops)
			}
			if err != nil {
				return nil, wire.Invalid("stop", "%v", err)
			}
			j.choices = append(j.choices, c)
		}
	}
	if err := r.admit(s.Owner, n); err != nil {
		return nil, err
	}
	ctx, j.cancel = context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.ctx, func() { j.cancel(context.Cause(r.ctx)) })
	var timer *time.Timer
	if r.limits.Timeout > 0 {
		timer = time.AfterFunc(r.limits.Timeout, func() { j.cancel(errTimeout) })
	}
	var all sync.WaitGroup
	for _, c := range j.choices {
		all.Go(func() { j.follow(ctx, c) })
	}
	go func() {
		all.Wait()
		stop()
		if timer != nil {
			timer.Stop()
		}
		close(j.events)
	}()
	return j, nil
}

// room is how many tokens may be written after a prompt.
func (r *Runner) room(p int, ids []int32, s Spec) (int, error) {
	param := "messages"
	if s.Plain {
		param = "prompt"
	}
	if len(ids) == 0 {
		return 0, wire.Invalid(param, "prompt %d is empty", p)
	}
	context := r.Model.Context
	if kv := r.engine.Load().KVTokens; kv > 0 {
		context = min(context, kv)
	}
	room := context - len(ids)
	if room < 1 && s.MaxTokens != 0 || room < 0 {
		return 0, &wire.Error{
			Status: http.StatusBadRequest, Code: "context_length_exceeded", Param: param,
			Message: fmt.Sprintf("the prompt has %d tokens and this server's context holds %d, with at least one to write: shorten the prompt, or start the server with a larger --context", len(ids), context),
		}
	}
	limit := s.MaxTokens
	if limit < 0 {
		if limit = r.Model.MaxTokens; limit == 0 {
			limit = room
		}
	}
	return min(limit, room), nil
}

// failure is the error of a result as a client may see it; the log has it all.
func (r *Runner) failure(res engine.Result) error {
	switch {
	case errors.Is(res.Err, engine.ErrDevice):
		return deviceFailed()
	case res.Finish == engine.FinishError:
		r.log.Error().Err(res.Err).Msg("a generation failed")
		if errors.Is(res.Err, engine.ErrNoMemory) {
			return &wire.Error{Status: http.StatusServiceUnavailable, Code: "out_of_memory", Message: "the device has no memory left for this request; try again", RetryAfter: time.Second}
		}
		return fmt.Errorf("generation: %w", res.Err)
	case res.Finish != engine.FinishCancelled:
		return nil
	case errors.Is(res.Err, engine.ErrClosed):
		return ShuttingDown()
	case res.Err == nil:
		return context.Canceled
	}
	return res.Err
}
