package profile

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
)

const (
	stepEvents = 1 << 15 // room for a step of a model of some hundred layers
	keptEvents = 1 << 20 // of a recording, 56 bytes each
)

// Step is what the engine did in a step. Times count from the beginning of the recorder.
type Step struct {
	Prefill, Decode int // rows
	Depth           int // mean position of the rows that decode; 0 = not known
	Began, Took     time.Duration
	Events          []ced.Event // each when it ended
}

// end is when the step ended.
func (s *Step) end() time.Duration { return s.Began + s.Took }

// Recording is what was recorded.
type Recording struct {
	Steps []Step
	// Dropped counts calls and sections that there was no room for: their time is in their section's host row, or
	// unaccounted. LeftOut counts the steps after those that filled the recording.
	Dropped, LeftOut int
	Used             Used
	Graphs           uint64 // decode steps that were one launch; stays in its process
}

// Used is what the process took of the machine meanwhile.
type Used struct {
	Wall   time.Duration `json:"wall_ns"`
	CPU    time.Duration `json:"cpu_ns"`            // of all threads
	Faults int64         `json:"major_page_faults"` // pages that were read from disk
}

// usage is what the process has taken so far.
func usage() Used {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return Used{}
	}
	return Used{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano()), Faults: int64(r.Majflt)}
}

// Recorder records the steps of an engine when asked. The engine is started with its Trace and Observe.
type Recorder struct {
	trace *ced.Trace
	on    atomic.Bool

	mu    sync.Mutex
	since time.Duration // steps that began before are left out
	kept  int           // events
	seen  int           // rows of steps
	rec   *Recording
	used  Used // before the recording
}

// NewRecorder returns one that records nothing yet.
func NewRecorder() *Recorder {
	r := &Recorder{trace: ced.NewTrace(stepEvents)}
	r.trace.Pause(true)
	return r
}

// Trace is for engine.Setup.Trace.
func (r *Recorder) Trace() *ced.Trace { return r.trace }

// Observe is for engine.Setup.Observe.
func (r *Recorder) Observe(s engine.Step) {
	if !r.on.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.trace.Reset()
	began := r.trace.At(s.Began)
	if r.rec == nil || began < r.since {
		return
	}
	r.seen += s.Prefill + s.Decode
	all := r.trace.Events()
	if r.kept += len(all); r.kept > keptEvents {
		r.rec.LeftOut++
		return
	}
	r.rec.Dropped += r.trace.Dropped()
	step := Step{Prefill: s.Prefill, Decode: s.Decode, Depth: s.Depth, Began: began, Took: s.Took, Events: make([]ced.Event, 0, len(all))}
	for _, e := range all {
		if e.Start >= began { // not of requests that ended without a step
			step.Events = append(step.Events, e)
		}
	}
	r.rec.Steps = append(r.rec.Steps, step)
}

// errBusy is returned by Start while another recording runs.
var errBusy = errors.New("another profile of this process is being recorded: wait for its end")

// Start records steps that begin from now on.
func (r *Recorder) Start() error { return r.start(true) }

// start records steps, traced or not.
func (r *Recorder) start(traced bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rec != nil {
		return errBusy
	}
	r.rec, r.kept, r.seen, r.since = &Recording{}, 0, 0, r.trace.At(time.Now())
	r.used = usage()
	r.on.Store(true)
	r.trace.Pause(!traced)
	return nil
}

// Stop ends the recording, without the step that runs.
func (r *Recorder) Stop() *Recording {
	r.trace.Pause(true)
	r.on.Store(false)
	r.mu.Lock()
	defer r.mu.Unlock()
	out, now := r.rec, usage()
	out.Used = Used{r.trace.At(time.Now()) - r.since, now.CPU - r.used.CPU, now.Faults - r.used.Faults}
	r.rec = nil
	return out
}

// For records for a time, or until ctx ends, which is no error.
func (r *Recorder) For(ctx context.Context, span time.Duration) (*Recording, error) {
	if err := r.Start(); err != nil {
		return nil, err
	}
	select {
	case <-time.After(span):
	case <-ctx.Done():
	}
	return r.Stop(), nil
}

// Record runs a request to its end under the recorder that its engine was started with. When ctx ends it, what was
// recorded until then comes beside the error.
func Record(ctx context.Context, r *Recorder, inst *engine.Instance, q engine.Request) (*Recording, error) {
	return record(ctx, r, inst, q, true)
}

// Time runs a request as Record does, without a trace: for the time of steps that nothing disturbs, which on a device are
// graphs where they decode.
func Time(ctx context.Context, r *Recorder, inst *engine.Instance, q engine.Request) (*Recording, error) {
	return record(ctx, r, inst, q, false)
}

func record(ctx context.Context, r *Recorder, inst *engine.Instance, q engine.Request, traced bool) (*Recording, error) {
	before := inst.Load().Graphs.Replayed
	if err := r.start(traced); err != nil {
		return nil, err
	}
	g, err := inst.Submit(ctx, q)
	if err != nil {
		r.Stop()
		return nil, err
	}
	result := g.Wait()
	r.settle(result.Stats.PromptTokens - result.Stats.Reused + result.Stats.DecodeSteps)
	out := r.Stop()
	out.Graphs = inst.Load().Graphs.Replayed - before
	if result.Finish == engine.FinishCancelled {
		return out, context.Cause(ctx)
	}
	return out, result.Err
}

// settle waits for the observer to be told of the last step, which happens after its tokens are handed out.
func (r *Recorder) settle(rows int) {
	for tries := 0; tries < 50; tries++ {
		r.mu.Lock()
		seen := r.seen
		r.mu.Unlock()
		if seen >= rows {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}
