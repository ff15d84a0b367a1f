package job

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"cedrun/runtime/engine"
	"cedrun/runtime/model"
	"cedrun/runtime/prompt"
	"cedrun/runtime/sample"
	"cedrun/runtime/text"
)

// Kind says what an Event tells.
type Kind uint8

// The kinds of events. Each text has one Admitted, unless it failed before, then Scored if asked, Pieces, and one Ended.
const (
	Admitted Kind = iota // Reuse
	Scored               // Tokens: the prompt's, from its second on
	Piece                // Piece, and Tokens if log-probabilities are asked
	Ended                // End
)

// Event is news of one of a job's texts.
type Event struct {
	Kind   Kind
	Choice int // which text: prompt * Choices + choice
	Reuse  engine.Reuse
	Piece  prompt.Event // never Finished, which Ended tells
	Tokens []engine.Token
	End    *End
}

// End is how a text ended.
type End struct {
	prompt.Finish
	Err   error // the text is not complete: a failure, or what ended the job
	Usage Usage
}

// Usage counts tokens.
type Usage struct {
	Prompt, Cached     int
	Written, Reasoning int // Reasoning is part of Written
}

// Job is a running request. One goroutine reads it.
type Job struct {
	runner   *Runner
	spec     Spec
	began    time.Time
	choices  []*choice
	events   chan Event
	admitted chan Event // from the engine's goroutine, which must not wait
	cancel   context.CancelCauseFunc
	usage    Usage
}

// choice is one text.
type choice struct {
	index, k  int
	prompt    []int32
	limit     int
	reader    *text.Reader
	scored    []engine.Token
	done      atomic.Int64 // prompt tokens processed
	placed    atomic.Bool
	reuse     engine.Reuse
	start     time.Time      // when it was placed
	ids       []int32        // sampled
	pending   []engine.Token // whose text is held back
	thinking  bool
	taken     int // of ids: those that are in the text
	reasoning int
	last      time.Time
}

// Each hands events to on until all texts have ended. When nothing came for every, it calls idle, if there is one. The
// first error of either cancels the job and is returned after all texts have ended.
func (j *Job) Each(every time.Duration, idle func() error, on func(Event) error) error {
	defer func() { // also if a callback panics
		j.cancel(context.Canceled)
		for range j.events {
		}
	}()
	var tick <-chan time.Time
	var timer *time.Timer
	if idle != nil && every > 0 {
		timer = time.NewTimer(every)
		defer timer.Stop()
		tick = timer.C
	}
	for {
		var err error
		select {
		case <-tick:
			err = idle()
		case e := <-j.admitted:
			err = on(e)
		case e, ok := <-j.events:
			for err == nil && len(j.admitted) > 0 { // came before it
				err = on(<-j.admitted)
			}
			if !ok {
				return err
			}
			if e.Kind == Ended {
				j.count(e)
			}
			if err == nil {
				err = on(e)
			}
		}
		if err != nil {
			return err
		}
		if timer != nil {
			timer.Reset(every)
		}
	}
}

func (j *Job) count(e Event) {
	u := e.End.Usage
	if e.Choice%j.spec.Choices == 0 {
		j.usage.Prompt += u.Prompt
		j.usage.Cached += u.Cached
	}
	j.usage.Written += u.Written
	j.usage.Reasoning += u.Reasoning
}

// Usage counts the tokens of the texts that have ended; a prompt of several texts counts once.
func (j *Job) Usage() Usage { return j.usage }

// PromptTokens is the length of all prompts.
func (j *Job) PromptTokens() int {
	n := 0
	for _, p := range j.spec.Prompts {
		n += len(p)
	}
	return n
}

// Progress says what a silent job does.
func (j *Job) Progress() string {
	done, total, placed := 0, 0, false
	for _, c := range j.choices {
		done, total, placed = done+int(c.done.Load()), total+len(c.prompt), placed || c.placed.Load()
	}
	switch {
	case !placed:
		return "queued"
	case done < total:
		return fmt.Sprintf("prompt: %d of %d tokens", done, total)
	}
	return "keep-alive"
}

// Output is a complete text.
type Output struct {
	prompt.Result
	Scored                         []engine.Token
	ContentTokens, ReasoningTokens []engine.Token
}

// Collect waits for all texts. It fails if one of them does.
func (j *Job) Collect() ([]Output, error) {
	outs := make([]Output, len(j.choices))
	got := make([]prompt.Collector, len(j.choices))
	err := j.Each(0, nil, func(e Event) error {
		o := &outs[e.Choice]
		switch e.Kind {
		case Scored:
			o.Scored = e.Tokens
		case Piece:
			got[e.Choice].Add(e.Piece)
			switch e.Piece.Kind {
			case prompt.Content:
				o.ContentTokens = append(o.ContentTokens, e.Tokens...)
			case prompt.Reasoning:
				o.ReasoningTokens = append(o.ReasoningTokens, e.Tokens...)
			}
		case Ended:
			o.Result = *got[e.Choice].Result()
			o.Finish = e.End.Finish
			return e.End.Err
		}
		return nil
	})
	return outs, err
}

// follow runs one text to its end.
func (j *Job) follow(ctx context.Context, c *choice) {
	r := j.runner
	var finish prompt.Finish
	var err error
	var result engine.Result
	defer func() {
		if p := recover(); p != nil {
			r.log.Error().Str("stack", string(debug.Stack())).Msgf("panic: %v", p)
			err = fmt.Errorf("panic: %v", p)
		}
		took := time.Since(j.began)
		end := &End{Finish: finish, Err: err, Usage: Usage{Prompt: len(c.prompt), Cached: c.reuse.Hit, Written: c.taken, Reasoning: c.reasoning}}
		r.record(j, end, result, took)
		r.leave(j.spec.Owner, c.start)
		j.events <- Event{Kind: Ended, Choice: c.index, End: end}
	}()
	finish, result, err = j.run(ctx, c)
}

func (j *Job) run(ctx context.Context, c *choice) (finish prompt.Finish, result engine.Result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := j.request(c)
	g, err := j.runner.engine.Submit(ctx, req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return finish, engine.Result{Finish: engine.FinishCancelled}, j.runner.failure(engine.Result{Finish: engine.FinishCancelled, Err: err})
	}
	send := func(events []prompt.Event) {
		for _, e := range events {
			if e.Kind == prompt.Finished {
				finish = *e.Finish
				continue
			}
			j.events <- Event{Kind: Piece, Choice: c.index, Piece: e, Tokens: c.tokensOf(e)}
		}
	}
	for first := true; ; first = false {
		t, ok := g.Next(context.Background()) // the request's own context ends it
		if first && j.spec.Score {
			j.events <- Event{Kind: Scored, Choice: c.index, Tokens: c.scored}
		}
		if !ok {
			break
		}
		c.ids = append(c.ids, t.ID)
		if c.reader.Done() {
			continue // sampled before the cancellation was seen; the KV cache has it
		}
		j.timed(c, first)
		events := c.reader.Next(t.ID)
		c.take(t, events, j)
		send(events)
		if c.reader.Done() {
			cancel()
		}
	}
	result = g.Result()
	if !c.reader.Done() {
		err = j.runner.failure(result)
		send(c.reader.Close(reason(result.Finish)))
	}
	return finish, result, err
}

// request is what the engine is asked for.
func (j *Job) request(c *choice) engine.Request {
	s, m := &j.spec, j.runner.Model
	req := engine.Request{
		Prompt: c.prompt, MaxTokens: c.limit, Sampling: s.Sampling, Choice: c.k, Prefill: m.Prefill, TopLogprobs: s.Top,
		Priority: s.Priority, Owner: s.Owner,
		Stop:      []int32{m.EOS},
		OnPrefill: func(done, _ int) { c.done.Store(int64(done)) },
	}
	if s.Grammar != nil {
		req.Constraint = s.Grammar.Start()
	}
	req.OnAdmit = func(reuse engine.Reuse) {
		c.reuse, c.start = reuse, time.Now()
		c.placed.Store(true)
		j.runner.m.queued.Observe(time.Since(j.began).Seconds())
		j.admitted <- Event{Kind: Admitted, Choice: c.index, Reuse: reuse} // there is room for one of each
	}
	if s.Score {
		req.Prefill = model.Exact // which alone computes the logits of every token
		req.OnLogits = func(pos int, row []float32) error { return c.score(pos, row, s.Top) }
	} else {
		req.Cache, req.Salt = s.Cache.engine(), s.Caller
		if s.Start.Reasoning && !s.Start.Continues {
			req.Branch = len(c.prompt) - 1 // the next turn drops the reasoning, and has its end where this one begins it
		}
	}
	return req
}

// score keeps the log-probability of the prompt token after a position.
func (c *choice) score(pos int, row []float32, top int) (err error) {
	if pos+1 >= len(c.prompt) {
		return nil
	}
	id := c.prompt[pos+1]
	t := engine.Token{ID: id, Logprob: sample.Logprob(row, int(id))}
	if top > 0 {
		t.Top, err = sample.Top(row, top)
	}
	c.scored = append(c.scored, t)
	return err
}

// timed observes the arrival of a token.
func (j *Job) timed(c *choice, first bool) {
	now := time.Now()
	if first {
		j.runner.m.first.Observe(now.Sub(j.began).Seconds())
	} else {
		j.runner.m.between.Observe(now.Sub(c.last).Seconds())
	}
	c.last = now
}

// take counts a token by what it gave.
func (c *choice) take(t engine.Token, events []prompt.Event, j *Job) {
	c.taken++
	tok := j.runner.Model.Tokenizer
	markup := !j.spec.Plain && tok.IsAdded(int(t.ID))
	if c.thinking {
		c.reasoning++
		if markup && tok.Token(int(t.ID)) == prompt.ThinkEnd {
			c.thinking = false
		}
	}
	for _, e := range events {
		switch e.Kind {
		case prompt.Content:
			c.thinking = false
		case prompt.ToolCallStart, prompt.ToolCallArguments, prompt.ToolCallEnd:
			c.thinking, c.pending = false, nil
			return
		}
	}
	if j.spec.Sampling.Logprobs && !markup {
		c.pending = append(c.pending, t)
	}
}

// tokensOf are the tokens whose text an event brings.
func (c *choice) tokensOf(e prompt.Event) []engine.Token {
	if e.Kind != prompt.Content && e.Kind != prompt.Reasoning {
		return nil
	}
	t := c.pending
	c.pending = nil
	return t
}

// reason is the finish of a text that the engine ended.
func reason(f engine.Finish) prompt.Reason {
	switch f {
	case engine.FinishStop:
		return prompt.ReasonStop
	case engine.FinishLength:
		return prompt.ReasonLength
	}
	return prompt.Reason(f)
}

// record counts a text that has ended.
func (r *Runner) record(j *Job, e *End, res engine.Result, took time.Duration) {
	if x := res.Stats.Cache; j.spec.Cache != CacheOff && !j.spec.Score {
		way := "none"
		if x.Restore != engine.RestoreNone {
			way = string(x.Restore)
		}
		r.m.restored.Add(1, way)
		r.m.rerun.Add(float64(x.Rerun))
		r.m.loaded.Add(float64(x.Loaded))
	}
	finish := string(e.Reason)
	if e.Err != nil {
		finish = "error"
		if res.Finish == engine.FinishCancelled {
			finish = "cancelled"
		}
	}
	r.m.ended.Add(1, finish)
	r.m.whole.Observe(took.Seconds())
	r.m.prompt.Add(float64(e.Usage.Prompt))
	r.m.cached.Add(float64(e.Usage.Cached))
	r.m.written.Add(float64(e.Usage.Written))
	r.m.reasoning.Add(float64(e.Usage.Reasoning))
	r.m.prefill.Add(res.Stats.Prefill.Seconds())
	r.m.decode.Add(res.Stats.Decode.Seconds())
	if e.UnclosedThinking && e.Err == nil {
		r.log.Info().Int("tokens", e.Usage.Written).Msg("a text ended within its reasoning: a larger max_tokens or a lower effort leaves room for the answer")
	}
	if e.Finish.Err != nil {
		r.log.Warn().Str("problem", e.Finish.Err.Problem).Msg("the model wrote a tool call that cannot be read")
	}
}
