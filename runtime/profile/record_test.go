package profile

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/engine"
	"cedrun/runtime/model"
	"cedrun/runtime/plan"
	"cedrun/runtime/sample"
)

const chunk = 16

// start starts a small model under a recorder.
func start(t testing.TB, name string) (*engine.Instance, *Recorder) {
	t.Helper()
	return startOn(t, name, ced.CPU)
}

func startOn(t testing.TB, name string, backend ced.Kind) (*engine.Instance, *Recorder) {
	t.Helper()
	return startWith(t, name, engine.Setup{Backend: backend})
}

func startWith(t testing.TB, name string, setup engine.Setup) (*engine.Instance, *Recorder) {
	t.Helper()
	f, err := engine.OpenFiles(engine.Source{Dir: "../../testdata/mini/" + name}, checkpoint.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	r := NewRecorder()
	setup.Context, setup.Chunk, setup.Slots, setup.NoSelfTest, setup.Trace, setup.Observe = 128, chunk, 2, true, r.Trace(), r.Observe
	inst, err := engine.Start(f, setup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := inst.Close(); err != nil {
			t.Error(err)
		}
	})
	return inst, r
}

func request(inst *engine.Instance, prompt, tokens int) engine.Request {
	q := engine.Request{Prompt: make([]int32, prompt), MaxTokens: tokens, Prefill: model.Exact, Sampling: sample.Params{Temperature: 1, TopP: 1, Seed: 7}}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range q.Prompt {
		q.Prompt[i] = int32(random.IntN(inst.Config.VocabSize))
	}
	return q
}

// sums checks that rows and what no row has are the phases, and phases the recording, to the nanosecond.
func sums(t *testing.T, r *Report) {
	t.Helper()
	steps := time.Duration(0)
	for _, p := range r.Phases {
		rows := time.Duration(0)
		for _, x := range p.Rows {
			rows += x.Took
			if x.Took < 0 {
				t.Errorf("%s: %+v took less than nothing", p.Name, x)
			}
		}
		if rows+p.Unaccounted != p.Took || p.Unaccounted < 0 {
			t.Errorf("%s: rows sum to %v, unaccounted %v, steps took %v", p.Name, rows, p.Unaccounted, p.Took)
		}
		kernels, layers := time.Duration(0), time.Duration(0)
		for _, x := range p.Kernels() {
			kernels += x.Took
		}
		for _, x := range p.Layers() {
			layers += x.Took
			part := time.Duration(0)
			for _, d := range x.Parts {
				part += d
			}
			if part != x.Took {
				t.Errorf("%s: the parts of layer %d sum to %v of %v", p.Name, x.Layer, part, x.Took)
			}
		}
		if kernels != rows || layers != rows {
			t.Errorf("%s: rows %v, by kernel %v, by layer %v", p.Name, rows, kernels, layers)
		}
		steps += p.Took
	}
	if steps+r.Outside != r.Recorded || r.Outside < 0 {
		t.Errorf("steps took %v, outside %v, recorded %v", steps, r.Outside, r.Recorded)
	}
}

func TestRowsAndWhatIsUnaccountedSumToTheSteps(t *testing.T) {
	for _, name := range []string{"base", "wide"} { // with an Engram and without candidates, and the other way round
		t.Run(name, func(t *testing.T) {
			inst, recorder := start(t, name)
			const prompt, tokens = 40, 5
			least := 0.
			for range 20 { // somebody else may take the processor between two sections, but not each time
				rec, err := Record(context.Background(), recorder, inst, request(inst, prompt, tokens))
				if err != nil {
					t.Fatal(err)
				}
				r := New(Subject{Model: name}, rec, nil, nil)
				sums(t, r)
				if len(r.Phases) != 2 || r.Dropped != 0 || r.LeftOut != 0 {
					t.Fatalf("%d phases, %d events dropped, %d steps left out", len(r.Phases), r.Dropped, r.LeftOut)
				}
				p, d := r.Phases[0], r.Phases[1]
				if p.Name != Prefill || p.Tokens != prompt || p.Steps != 3 || d.Name != Decode || d.Tokens != tokens-1 || d.Steps != tokens-1 {
					t.Errorf("%s of %d in %d steps, %s of %d in %d steps", p.Name, p.Tokens, p.Steps, d.Name, d.Tokens, d.Steps)
				}
				if least = max(least, min(p.Accounted, d.Accounted)); least >= 0.95 {
					return
				}
			}
			t.Errorf("rows hold %.3f of a phase at best, want 0.95", least)
		})
	}
}

// Every byte and FLOP that the plan counts is in a row of a kernel that ran: names of layers, parts and kernels agree.
func TestWorkOfThePlanIsInRowsOfTheTrace(t *testing.T) {
	for _, name := range []string{"base", "wide", "sched40"} {
		t.Run(name, func(t *testing.T) {
			inst, recorder := start(t, name)
			const prompt, tokens = 40, 4
			rec, err := Record(context.Background(), recorder, inst, request(inst, prompt, tokens))
			if err != nil {
				t.Fatal(err)
			}
			checkWork(t, inst, rec, prompt, tokens)
		})
	}
}

func checkWork(t *testing.T, inst *engine.Instance, rec *Recording, prompt, tokens int) {
	t.Helper()
	works := Works{Prefill: {}, Decode: {}}
	works[Prefill].AddPrompt(inst.Config, plan.Thresholds(model.NewPlan(inst.Config, model.Exact, prompt)), prompt, chunk)
	for i := range tokens - 1 {
		works[Decode].AddDecode(inst.Config, 1, prompt+i)
	}
	limits := &Limits{Read: 10, BF16: 100, F32: 200}
	for _, p := range New(Subject{}, rec, works, limits).Phases {
		var got, want plan.Work
		for _, w := range works[p.Name] {
			want.Bytes += w.Bytes
			want.FLOPs += w.FLOPs
		}
		least := 0.
		for _, x := range p.Rows {
			got.Bytes += x.Bytes
			got.FLOPs += x.FLOPs
			least += x.Limit
			if x.Bound != (Bound{}) && (x.Calls == 0 || x.OfLimit <= 0 || x.By == "") {
				t.Errorf("%s: %+v", p.Name, x)
			}
		}
		if math.Abs(got.Bytes/want.Bytes-1) > 1e-9 || math.Abs(got.FLOPs/want.FLOPs-1) > 1e-9 {
			t.Errorf("%s: rows hold %+v, the plan %+v", p.Name, got, want)
		}
		sum := 0.
		for _, x := range p.Kernels() {
			sum += x.Limit
		}
		if math.Abs(sum/least-1) > 1e-9 {
			t.Errorf("%s: limits sum to %v by kernel, %v by row", p.Name, sum, least)
		}
	}
}

func waitFor(r *Recorder) {
	for !r.on.Load() {
		time.Sleep(time.Millisecond)
	}
}

func TestOnlyWhatRunsUnderTheRecordingIsInIt(t *testing.T) {
	inst, recorder := start(t, "base")
	run := func() {
		g, err := inst.Submit(context.Background(), request(inst, 8, 3))
		if err != nil {
			t.Fatal(err)
		}
		if r := g.Wait(); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	run()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan *Recording)
	go func() {
		rec, err := recorder.For(ctx, time.Hour)
		if err != nil {
			t.Error(err)
		}
		done <- rec
	}()
	waitFor(recorder)
	if _, err := recorder.For(ctx, 0); !errors.Is(err, errBusy) {
		t.Errorf("a second recording: %v", err)
	}
	run()
	recorder.settle(8 + 2)
	cancel()
	rec := <-done
	run()
	if len(rec.Steps) != 3 {
		t.Fatalf("%d steps recorded, want a prompt's and two of decode", len(rec.Steps))
	}
	sums(t, New(Subject{}, rec, nil, nil))
	if rec, err := recorder.For(context.Background(), 0); err != nil || len(rec.Steps) != 0 {
		t.Errorf("an empty recording has %d steps, %v", len(rec.Steps), err)
	}
}

func TestACancelledRequestLeavesWhatWasRecorded(t *testing.T) {
	inst, recorder := start(t, "base")
	ctx, cancel := context.WithCancelCause(context.Background())
	q := request(inst, 100, 20)
	gone := errors.New("gone")
	q.OnPrefill = func(done, _ int) {
		if done >= 2*chunk {
			cancel(gone)
		}
	}
	rec, err := Record(ctx, recorder, inst, q)
	if !errors.Is(err, gone) || rec == nil || len(rec.Steps) < 1 {
		t.Fatalf("%+v, %v", rec, err)
	}
	sums(t, New(Subject{}, rec, nil, nil))
}

func TestAFullRecordingLeavesOutWhatFollows(t *testing.T) {
	inst, recorder := start(t, "base")
	if err := recorder.Start(); err != nil {
		t.Fatal(err)
	}
	recorder.mu.Lock()
	recorder.kept = keptEvents - 1
	recorder.mu.Unlock()
	g, err := inst.Submit(context.Background(), request(inst, 8, 3))
	if err != nil {
		t.Fatal(err)
	}
	g.Wait()
	recorder.settle(8 + 2)
	if rec := recorder.Stop(); len(rec.Steps) != 0 || rec.LeftOut != 3 {
		t.Errorf("%d steps, %d left out", len(rec.Steps), rec.LeftOut)
	}
}
