package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	ced "cedrun/cuda"
	"cedrun/runtime/kv"
	"cedrun/runtime/kv/disk"
	"cedrun/runtime/model"
	"cedrun/runtime/plan"
	"cedrun/runtime/sample"
)

// Options shape the step loop.
type Options struct {
	Context int // tokens a sequence may have
	Chunk   int // prefill rows of a step, shared by all prompts
	// Snapshots bounds the bytes of snapshots (CacheSnapshot), SnapshotTTL the time since their last use; 0 = for ever.
	Snapshots   int
	SnapshotTTL time.Duration
	// Slowdown is how many times as long a step may take with prompt rows as without them while sequences decode; prompts
	// keep some three tenths of the speed that they have alone even so. 0 = prompts always get whole chunks.
	Slowdown float64
	// Store, if set, keeps pages of the prefix cache on disk. The engine does not close it.
	Store *disk.Store
	// NoStore, if not empty, is why there is no Store though there should be.
	NoStore string
	Observe func(Step)
}

// Step tells an observer what the engine just did. Tokens of the step have been handed out.
type Step struct {
	Prefill, Decode int       // rows
	Depth           int       // mean position of those that decode, as of the last step that had any
	Began           time.Time // when the step before ended, or idleness
	Took            time.Duration
}

// ErrClosed is returned by Submit after Close.
var ErrClosed = errors.New("the engine is closed")

// Engine owns a model and runs requests on it until Close.
type Engine struct {
	model *model.Model
	s     *ced.Stream
	opt   Options
	// forward is the model's Forward without a probe, or what a measurement puts in its place.
	forward func([]model.Span) (logits ced.Addr, n int, err error)

	submit chan *run
	stop   chan struct{}
	done   chan struct{}
	once   sync.Once

	waiting, running []*run     // of the loop's goroutine only, like what follows
	ended            []ending   // whose readers are not yet told
	idle             []*Session // that hold a sequence, longest idle first
	tree             *kv.Tree   // pages for requests to come
	row              []float32
	ids              []int32   // of the largest logits of a step's rows, where a device found them
	began            time.Time // when the last step ended, or idleness did
	load             load
	meter            meter
	batch            batch
	order            order
	pace             pace
	spare            []*snapshot // whose memory the next ones take
	arrived          uint64      // requests
	placed           int         // requests that got their places
	fault            error       // of the device, which works no more
	tier
}

// run is a request on its way.
type run struct {
	Request
	ctx    context.Context
	gen    *Generation
	seq    *model.Sequence
	number uint64 // in the order of arrival

	sampler *sample.Sampler // nil when nothing is sampled
	history *sample.History // nil when nothing is penalised
	largest bool            // only the largest logit's token is wanted

	next    int32    // token that the next decode step feeds
	fed     [1]int32 // where it stands then
	sampled int
	forced  int         // forced tokens fed
	stored  int         // tokens that the cache has got
	names   []disk.Page // of the prompt's pages
	fetch   *fetch      // while pages are read
	fetched bool        // it has what there is on disk
	held    []kv.Page   // that were read for it, until it is placed
	logits  []float32   // that predict its first token, if nothing of its prompt is run
	placed  int         // when it got its place, in the order of places
	leader  *run        // whose prompt begins alike, while it is read up to shared tokens
	shared  int
	branch  int // where it takes a snapshot on its way: its prompt left there what the cache knows, or others may leave it
	looked  int // place of the last request that it was compared with
	stats   Stats
	admit   time.Time
	first   time.Time
}

// New starts the step loop of a model whose StepRows hold a chunk and a decode row per slot.
func New(m *model.Model, s *ced.Stream, opt Options) *Engine {
	e := &Engine{
		model: m, s: s, opt: opt, submit: make(chan *run), stop: make(chan struct{}), done: make(chan struct{}),
		row: make([]float32, m.Config().VocabSize), tree: kv.NewTree(m.Pool()),
		order: newOrder(), pace: pace{slowdown: opt.Slowdown},
		forward: func(spans []model.Span) (ced.Addr, int, error) { return m.Forward(spans, nil) },
	}
	e.tier.open(opt.Store, m.PageBytes())
	e.tree.OnDroppedImage(e.dropped)
	e.tree.LimitImages(opt.Snapshots, opt.SnapshotTTL)
	go e.loop()
	return e
}

// Close cancels what runs and ends the loop. The model stays open.
func (e *Engine) Close() {
	e.once.Do(func() { close(e.stop) })
	<-e.done
}

// Submit queues a request. Cancelling ctx ends it within one step.
func (e *Engine) Submit(ctx context.Context, r Request) (*Generation, error) {
	if err := r.validate(e); err != nil {
		return nil, err
	}
	q := &run{Request: r, ctx: ctx, gen: newGeneration()}
	if r.MaxTokens > 0 {
		var err error
		if q.sampler, err = sample.New(r.Sampling); err != nil {
			return nil, err
		}
		q.history = q.sampler.History(r.Prompt)
		q.largest = r.Sampling.Largest() && r.Constraint == nil && r.TopLogprobs == 0 && r.OnLogits == nil
	}
	e.name(q)
	select {
	case e.submit <- q:
		return q.gen, nil
	case <-e.stop:
		return nil, ErrClosed
	case <-e.done:
		return nil, cmp.Or(e.fault, ErrClosed)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (e *Engine) loop() {
	defer close(e.done)
	for {
		idle := len(e.running)+len(e.waiting) == 0
		if idle {
			e.s.EndSection() // of requests that ended without a step
		}
		if !e.receive() {
			for _, q := range append(e.running, e.waiting...) {
				e.end(q, FinishCancelled, ErrClosed)
			}
			e.running, e.waiting = nil, nil
			e.settle()
			e.reads.Wait()
			e.drain()
			return
		}
		if idle {
			e.began = time.Now()
		}
		e.s.Mark(plan.PartScheduler.String(), -1)
		e.dropCancelled()
		e.admit()
		e.settle()
		if len(e.running) > 0 && e.fault == nil {
			e.step()
			e.settle()
			e.writeBehind(spillStep)
			e.began = time.Now()
			e.measure()
		}
		if e.fault != nil {
			e.fail()
			return
		}
	}
}

// receive takes new requests and pages that were read: all that are there, or, when there is nothing to run, the next
// one. False means stop.
func (e *Engine) receive() bool {
	idle := len(e.running) == 0 && (len(e.waiting) == 0 || e.fetching())
	for {
		if idle {
			var tick <-chan time.Time
			if len(e.waiting)+len(e.spill) > 0 {
				tick = time.After(idleTick)
			}
			select {
			case q := <-e.submit:
				e.queue(q)
				idle = false
			case p := <-e.parts:
				idle = !e.arrive(p)
			case <-tick:
				e.writeBehind(spillIdle)
				e.measure()
				idle = len(e.waiting) == 0 // one may have been cancelled
			case <-e.stop:
				return false
			}
			continue
		}
		select {
		case q := <-e.submit:
			e.queue(q)
		case p := <-e.parts:
			e.arrive(p)
		case <-e.stop:
			return false
		default:
			return true
		}
	}
}

func (e *Engine) dropCancelled() {
	drop := func(q *run) bool {
		if q.ctx.Err() == nil {
			return false
		}
		e.end(q, FinishCancelled, context.Cause(q.ctx))
		return true
	}
	e.running, e.waiting = slices.DeleteFunc(e.running, drop), slices.DeleteFunc(e.waiting, drop)
}

func (e *Engine) queue(q *run) {
	q.number = e.arrived
	e.arrived++
	e.order.arrive(q.Owner)
	e.waiting = append(e.waiting, q)
}

// admit gives waiting requests, in their order, a slot and pages for all their tokens. One that waits for its session lets
// others pass; the first that has not enough pages holds them up, so that its turn comes.
func (e *Engine) admit() {
	e.order.sort(e.waiting)
	for n := 0; n < len(e.waiting) && len(e.running) < e.model.Options().Slots; {
		q := e.waiting[n]
		if q.Session != nil && q.Session.user != nil {
			n++
			continue
		}
		if e.follows(q) {
			n++
			continue
		}
		wait, err := e.fetch(q)
		if wait {
			n++
			continue
		}
		tokens := len(q.Prompt) + len(q.Forced) + q.MaxTokens
		if tokens-len(q.held)*kv.PageTokens > e.available() && err == nil {
			if len(e.running) > 0 || e.fetching() {
				return
			}
			err = e.letGoOthers(q)
		}
		e.waiting = slices.Delete(e.waiting, n, n+1)
		if err == nil {
			err = e.place(q, tokens)
		}
		if err = errors.Join(err, e.letGo(q)); err != nil {
			e.end(q, FinishError, err)
			continue
		}
		q.admit = time.Now()
		e.placed++
		q.placed = e.placed
		e.meter.admit(q)
		if q.OnAdmit != nil {
			q.OnAdmit(q.stats.Cache)
		}
		if q.logits != nil {
			if err := e.begin(q); err != nil {
				e.end(q, FinishError, err)
			}
			if q.seq == nil { // the first token ended it
				continue
			}
		}
		e.running = append(e.running, q)
		e.order.serve(q.Owner, len(q.Prompt)-q.seq.Pos())
		e.order.sort(e.waiting)
		n = 0
	}
}

// end finishes a request and returns what it held.
func (e *Engine) end(q *run, f Finish, err error) {
	if f == FinishError {
		err = e.judge(err)
	}
	e.order.leave(q.Owner)
	if rerr := errors.Join(e.letGo(q), e.leave(q, f != FinishError)); rerr != nil && err == nil {
		f, err = FinishError, rerr
	}
	if !q.first.IsZero() {
		q.stats.Prefill, q.stats.Decode = q.first.Sub(q.admit), time.Since(q.first)
	} else if !q.admit.IsZero() {
		q.stats.Prefill = time.Since(q.admit)
	}
	e.ended = append(e.ended, ending{q.gen, Result{Finish: f, Err: err, Stats: q.stats}})
}

// ending is a request that ended, until its reader is told.
type ending struct {
	gen    *Generation
	result Result
}

// settle publishes the load and then tells the readers of ended requests: who knows of an end sees the load, and the
// counters, with it.
func (e *Engine) settle() {
	e.measure()
	for _, end := range e.ended {
		end.gen.finish(end.result)
	}
	clear(e.ended)
	e.ended = e.ended[:0]
}

// step runs one batch: a row of every sequence that decodes, then prompt rows.
func (e *Engine) step() {
	b := &e.batch
	b.gather(e.running, &e.pace, e.opt.Chunk)
	for _, t := range b.tails {
		if err := e.model.RunTail(t.run.seq, t.rows); err != nil {
			e.end(t.run, FinishError, fmt.Errorf("step: %w", err))
		}
	}
	logits, n, err := e.run(b)
	e.s.Mark(plan.PartSampling.String(), -1)
	if err == nil && n != b.outputs {
		err = fmt.Errorf("%d rows of logits where %d were wanted", n, b.outputs)
	}
	if err == nil {
		err = e.findLargest(b)
	}
	if err != nil {
		for _, q := range b.owners {
			e.end(q, FinishError, fmt.Errorf("step: %w", err))
		}
		e.forget()
		return
	}
	row := 0
	for i, q := range b.owners {
		if b.spans[i].Seq.Pos() > len(q.Prompt) {
			e.order.serve(q.Owner, 1)
		}
		id := none
		if q.takesLargest(b.rows[i]) && len(e.ids) > 0 {
			id = e.ids[row]
		}
		row += b.rows[i]
		if err := e.advance(q, b.rows[i], logits, id); err != nil {
			e.end(q, FinishError, err)
		}
		logits += ced.Addr(4 * b.rows[i] * len(e.row))
	}
	e.forget()
	e.s.EndSection()
	took := time.Since(e.began)
	e.pace.observe(b.decode, b.prefill, took)
	e.meter.step(b, took)
	if e.opt.Observe != nil {
		e.opt.Observe(Step{Prefill: b.prefill, Decode: b.decode, Depth: int(e.meter.depth.Load()), Began: e.began, Took: took})
	}
}

// none is no token: the row of logits decides.
const none int32 = -1

// findLargest brings the tokens of the largest logits from a device, if a sequence that decodes wants no more of its row.
func (e *Engine) findLargest(b *batch) error {
	e.ids = e.ids[:0]
	if e.s.Host() {
		return nil
	}
	for i, q := range b.owners {
		if q.takesLargest(b.rows[i]) {
			e.ids = slices.Grow(e.ids, b.outputs)[:b.outputs]
			return e.model.Greedy(e.ids)
		}
	}
	return nil
}

// takesLargest reports whether a step's only row of logits is asked for its largest one and for nothing else.
func (q *run) takesLargest(rows int) bool {
	return q.largest && rows == 1 && q.seq.Pos() > len(q.Prompt)
}

// batch is what a step runs. The next step uses its memory again.
type batch struct {
	spans           []model.Span
	owners          []*run // of the spans
	rows            []int  // of logits, per span
	outputs         int    // all of them
	prefill, decode int    // tokens
	depth           int    // sum of the positions of sequences that decode
	tails           []decoderTail
	reading         []*run // whose prompts are being read, in the order of their share
	odd             bool   // every other batch
}

// decoderTail are rows that a request runs through the last layers only (model.RunTail).
type decoderTail struct {
	run  *run
	rows int
}

// gather builds a step of running requests, with at most chunk prompt rows.
func (b *batch) gather(running []*run, p *pace, chunk int) {
	*b = batch{spans: b.spans[:0], owners: b.owners[:0], rows: b.rows[:0], tails: b.tails[:0], reading: b.reading[:0], odd: !b.odd}
	for _, q := range running {
		if q.left() > 0 {
			b.reading = append(b.reading, q)
			continue
		}
		q.fed[0] = q.next
		b.add(q, q.fed[:])
		b.decode++
		b.depth += q.seq.Pos()
	}
	if len(b.reading) == 0 {
		return
	}
	slices.SortStableFunc(b.reading, func(x, y *run) int { return cmp.Compare(x.Priority, y.Priority) })
	share(b.reading, p.rows(b.decode, chunk), b.odd, b.read)
}

// read adds n rows of a request's prompt.
func (b *batch) read(q *run, n int) {
	if left := q.seq.TailLeft(); left > 0 {
		n = min(n, left)
		b.tails = append(b.tails, decoderTail{q, n})
	} else {
		if pos := q.seq.Pos(); pos < q.branch {
			n = min(n, q.branch-pos)
		}
		b.add(q, q.Prompt[q.seq.Pos():q.seq.Pos()+n])
	}
	b.prefill += n
}

func (b *batch) add(q *run, tokens []int32) {
	end := q.seq.Pos() + len(tokens)
	from := end // no logits
	if q.OnLogits != nil {
		from = max(q.LogitsFrom, q.seq.Pos(), q.seq.FirstLogits())
	}
	if q.MaxTokens > 0 && end >= len(q.Prompt) {
		from = min(from, end-1)
	}
	b.spans = append(b.spans, model.Span{Seq: q.seq, Tokens: tokens, Logits: from})
	b.owners = append(b.owners, q)
	b.rows = append(b.rows, max(0, end-from))
	b.outputs += max(0, end-from)
}

// advance hands out the logits of a sequence's last rows and decides what it does next. id: what the device took from its
// only row, or none.
func (e *Engine) advance(q *run, rows int, logits ced.Addr, id int32) error {
	end := q.seq.Pos()
	for i := range rows {
		if id != none {
			break
		}
		if err := e.s.Download(floatBytes(e.row), logits+ced.Addr(4*i*len(e.row))); err != nil {
			return err
		}
		if p := end - rows + i; q.OnLogits != nil && p >= q.LogitsFrom {
			if err := q.OnLogits(p, e.row); err != nil {
				return err
			}
		}
	}
	if end <= len(q.Prompt) {
		q.stats.PromptTokens = end
		if q.OnPrefill != nil {
			q.OnPrefill(end, len(q.Prompt))
		}
	} else {
		q.stats.DecodeSteps++
	}
	if end == q.branch && end < len(q.Prompt) {
		if err := e.store(q, nil); err != nil {
			return err
		}
		q.branch = max(q.branch, q.Branch)
	}
	if end < len(q.Prompt) {
		return nil
	}
	if q.first.IsZero() {
		q.first = time.Now()
		row := e.row
		if rows == 0 {
			row = nil
		}
		if err := e.store(q, row); err != nil {
			return err
		}
	}
	return e.choose(q, end, id)
}

// begin gives a request whose prompt has run before its first token.
func (e *Engine) begin(q *run) error {
	copy(e.row, q.logits)
	q.logits = nil
	n := len(q.Prompt)
	if q.OnLogits != nil {
		if err := q.OnLogits(n-1, e.row); err != nil {
			return err
		}
	}
	q.stats.PromptTokens, q.stored, q.first = n, n, time.Now()
	if q.OnPrefill != nil {
		q.OnPrefill(n, n)
	}
	return e.choose(q, n, none)
}

// choose picks the token at position pos: the next forced one, id, or if that is none one from e.row.
func (e *Engine) choose(q *run, pos int, id int32) error {
	if q.forced < len(q.Forced) {
		q.next = q.Forced[q.forced]
		q.forced++
		return nil
	}
	if q.sampled >= q.MaxTokens {
		e.end(q, FinishLength, nil)
		return nil
	}
	t := sample.Choice{ID: int(id)}
	if id == none {
		var err error
		if t, err = q.pick(e.row, pos); err != nil {
			return err
		}
	}
	for _, s := range q.Stop {
		if int32(t.ID) == s {
			e.end(q, FinishStop, nil)
			return nil
		}
	}
	q.sampled++
	q.next = int32(t.ID)
	if q.history != nil {
		q.history.Add(q.next)
	}
	tok := Token{ID: q.next, Logprob: t.Logprob}
	if q.TopLogprobs > 0 {
		var err error
		if tok.Top, err = sample.Top(e.row, q.TopLogprobs); err != nil {
			return err
		}
	}
	if c := q.Constraint; c != nil {
		if err := c.Accept(q.next); err != nil {
			return fmt.Errorf("constrained output: %w", err)
		}
	}
	q.gen.emit(tok)
	switch {
	case q.Constraint != nil && q.Constraint.Done():
		e.end(q, FinishStop, nil)
	case q.sampled == q.MaxTokens:
		e.end(q, FinishLength, nil)
	}
	return nil
}

// pick samples the token at position pos, among those that the constraint allows.
func (q *run) pick(row []float32, pos int) (sample.Choice, error) {
	if q.Constraint == nil {
		return q.sampler.Next(row, q.history, q.Choice, pos)
	}
	return q.sampler.NextOf(q.Constraint.Mask(), row, q.history, q.Choice, pos)
}

// floatBytes is the memory of v.
func floatBytes(v []float32) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
}

// forget drops ended requests from the running list.
func (e *Engine) forget() {
	e.running = slices.DeleteFunc(e.running, func(q *run) bool { return q.seq == nil })
}
