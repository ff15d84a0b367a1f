package load

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
)

// Options say how a trace is run.
type Options struct {
	Concurrency int                        // sessions at a time, in a closed loop
	Retries     int                        // times that a request comes back after 429 or 503 with a Retry-After
	Timeout     time.Duration              // of a request from sending it, waits included; 0 = none
	Extra       map[string]json.RawMessage // fields of all requests
	Progress    func(Progress)             // told of each change, one at a time
}

// Progress is how far a run is.
type Progress struct {
	Done, Failed, Total, InFlight int
	Tokens                        int // written by the server
	Elapsed                       time.Duration
}

// Record is what was measured of a request. Times are seconds after the start of the run.
type Record struct {
	Session int     `json:"session"`
	Turn    int     `json:"turn"`
	Due     float64 `json:"due"`
	Sent    float64 `json:"sent"`            // for the first time
	First   float64 `json:"first,omitempty"` // piece of text
	Last    float64 `json:"last,omitempty"`  // piece of text
	End     float64 `json:"end"`

	Gaps         []float64 `json:"gaps,omitempty"` // seconds between pieces
	PromptTokens int       `json:"prompt_tokens"`
	CachedTokens int       `json:"cached_tokens"`
	Tokens       int       `json:"tokens"`            // written
	Counted      bool      `json:"counted"`           // by the server's usage, not by pieces
	Finish       string    `json:"finish,omitempty"`  // the server's reason
	Retries      int       `json:"retries,omitempty"` // after refusals
	Waited       float64   `json:"waited,omitempty"`  // seconds, for Retry-After
	Kind         string    `json:"error,omitempty"`   // of a failure
	Message      string    `json:"message,omitempty"`
}

// OK says whether the request was answered.
func (r *Record) OK() bool { return r.Kind == "" }

// TTFT is the time to first token in seconds from when the request was due.
func (r *Record) TTFT() float64 { return r.First - r.Due }

// Latency is the time to the end of the answer in seconds from when the request was due.
func (r *Record) Latency() float64 { return r.End - r.Due }

// PerToken is the mean time between tokens in seconds; 0 where there are fewer than two.
func (r *Record) PerToken() float64 {
	if r.Tokens < 2 || r.Last <= r.First {
		return 0
	}
	return (r.Last - r.First) / float64(r.Tokens-1)
}

// Result is what a run measured.
type Result struct {
	Trace       *Trace
	Records     []Record // finished requests, in the order in which they ended
	Unfinished  int      // sent, but cut off by the end of the context
	Elapsed     time.Duration
	Interrupted bool
}

// runner is a run.
type runner struct {
	c     *Client
	opt   Options
	trace *Trace
	start time.Time

	mu         sync.Mutex
	records    []Record
	failed     int
	tokens     int
	inFlight   int
	unfinished int
}

// Run sends the requests of a trace: at their due times if it is scheduled, otherwise Concurrency sessions at a time. When
// ctx ends, it returns what was measured until then.
func Run(ctx context.Context, c *Client, t *Trace, o Options) *Result {
	r := &runner{c: c, opt: o, trace: t, start: time.Now()}
	var wait sync.WaitGroup
	if t.Scheduled {
		for i := range t.Sessions {
			wait.Go(func() { r.session(ctx, i) })
		}
	} else {
		var next atomic.Int64
		for range min(max(1, o.Concurrency), len(t.Sessions)) {
			wait.Go(func() {
				for i := int(next.Add(1)) - 1; i < len(t.Sessions) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
					r.session(ctx, i)
				}
			})
		}
	}
	wait.Wait()
	return &Result{
		Trace: t, Records: r.records, Unfinished: r.unfinished, Elapsed: time.Since(r.start),
		Interrupted: ctx.Err() != nil && len(r.records) < t.Requests(),
	}
}

// session runs the turns of a session. What a failed one would have added is left out of the conversation.
func (r *runner) session(ctx context.Context, n int) {
	var conversation []json.RawMessage
	for i := range r.trace.Sessions[n] {
		turn := &r.trace.Sessions[n][i]
		due := r.start.Add(turn.Due)
		if !r.trace.Scheduled {
			due = time.Now().Add(turn.Think)
		}
		if !sleep(ctx, time.Until(due)) {
			return
		}
		said := append(conversation[:len(conversation):len(conversation)], turn.Messages...)
		reply, ok := r.turn(ctx, Record{Session: n, Turn: i, Due: r.since(due)}, said, turn)
		if ctx.Err() != nil && !ok {
			return
		}
		if ok {
			conversation = append(said, message("assistant", reply))
		}
	}
}

// turn sends a request and records it.
func (r *runner) turn(ctx context.Context, rec Record, said []json.RawMessage, turn *Turn) (reply string, ok bool) {
	r.update(func() { r.inFlight++ })
	within := ctx
	if r.opt.Timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, r.opt.Timeout)
		defer cancel()
	}
	body, err := r.c.body(said, turn, r.opt.Extra)
	if err != nil {
		rec.Kind, rec.Message = KindMalformed, err.Error()
	}
	rec.Sent = r.since(time.Now())
	for rec.OK() {
		a, f := r.c.ask(within, body)
		rec.take(a, r)
		if f == nil {
			reply = a.content.String()
			break
		}
		if f.after < 0 || rec.Retries == r.opt.Retries || !sleep(within, f.after) {
			rec.Kind, rec.Message = f.kind, short(f.Error())
			break
		}
		rec.Retries++
		rec.Waited += f.after.Seconds()
	}
	rec.End = r.since(time.Now())
	r.update(func() {
		r.inFlight--
		if !rec.OK() && ctx.Err() != nil {
			r.unfinished++
			return
		}
		r.records = append(r.records, rec)
		r.tokens += rec.Tokens
		if !rec.OK() {
			r.failed++
		}
	})
	return reply, rec.OK()
}

// take copies what was measured of an answer.
func (rec *Record) take(a *answer, r *runner) {
	rec.Tokens, rec.Finish = len(a.pieces), a.finish
	if n := len(a.pieces); n > 0 {
		rec.First, rec.Last = r.since(a.pieces[0]), r.since(a.pieces[n-1])
		for i := 1; i < n; i++ {
			rec.Gaps = append(rec.Gaps, a.pieces[i].Sub(a.pieces[i-1]).Seconds())
		}
	}
	if u := a.usage; u != nil {
		rec.PromptTokens, rec.Tokens, rec.Counted = u.PromptTokens, u.CompletionTokens, true
		if u.Details != nil {
			rec.CachedTokens = u.Details.Cached
		}
	}
}

func (r *runner) since(t time.Time) float64 { return t.Sub(r.start).Seconds() }

// update changes the run's counters and tells of it.
func (r *runner) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	if r.opt.Progress != nil {
		r.opt.Progress(Progress{
			Done: len(r.records) - r.failed, Failed: r.failed, Total: r.trace.Requests(), InFlight: r.inFlight,
			Tokens: r.tokens, Elapsed: time.Since(r.start),
		})
	}
}

// sleep is false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
