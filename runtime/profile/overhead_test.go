package profile

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/engine"
)

// Reports what a decode step costs with and without tracing, side by side: with a trace that is paused, as in a process
// that nobody looks at, and with one that records, two steps of one text each in turn (every second step closes a group of
// two tokens). Of each the first quartile: what else runs on the machine lengthens the others.
// CEDRUN_BENCH_MODEL names a checkpoint; the demo model is used otherwise.
//
//	CEDRUN_BENCH_MODEL=DIR go test -run - -bench Tracing -benchtime 2000x ./runtime/profile
func BenchmarkTracing(b *testing.B) {
	dir := os.Getenv("CEDRUN_BENCH_MODEL")
	if dir == "" {
		dir = "../../testdata/demo"
	}
	f, err := engine.OpenFiles(engine.Source{Dir: dir}, checkpoint.Options{}, "")
	if err != nil {
		b.Fatal(err)
	}
	const kinds = 2 // paused, recording
	trace := ced.NewTrace(stepEvents)
	trace.Pause(true)
	var took [kinds][]time.Duration
	n := 0
	observe := func(s engine.Step) {
		if s.Prefill > 0 {
			return
		}
		kind := n / 2 % kinds
		took[kind] = append(took[kind], s.Took)
		n++
		trace.Reset()
		trace.Pause(n/2%kinds == 0)
	}
	tokens := min(b.N+1, f.Config.MaxPositions-2)
	inst, err := engine.Start(f, engine.Setup{Backend: ced.CPU, Context: tokens + 2, NoSelfTest: true, Trace: trace, Observe: observe})
	if err != nil {
		b.Fatal(err)
	}
	defer inst.Close()
	for b.ResetTimer(); n < b.N; {
		q := request(inst, 1, min(tokens, b.N-n+1))
		g, err := inst.Submit(context.Background(), q)
		if err != nil {
			b.Fatal(err)
		}
		if r := g.Wait(); r.Err != nil {
			b.Fatal(r.Err)
		}
		time.Sleep(time.Millisecond) // for the observer of the last step
	}
	if len(took[1]) == 0 {
		return
	}
	paused, recording := quartile(took[0]), quartile(took[1])
	b.ReportMetric(float64(paused.Nanoseconds()), "paused-ns/step")
	b.ReportMetric(float64(recording.Nanoseconds()), "recording-ns/step")
	b.ReportMetric(100*(float64(recording)/float64(paused)-1), "recording-%")
}

func quartile(v []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(v))
	return s[(len(s)-1)/4]
}
