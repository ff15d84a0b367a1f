package profile

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/engine"
)

// Reports what a decode step costs with and without tracing, side by side: with a trace that is paused, as in a process
// that nobody looks at, and with one that records, two steps of one text each in turn (every second step closes a group of
// two tokens). Processor time of one thread, which other programs lengthen least; of each kind the first quartile.
// CEDRUN_BENCH_MODEL names a checkpoint; the demo model is used otherwise.
//
//	CEDRUN_BENCH_MODEL=DIR go test -run - -bench Tracing -benchtime 400x ./runtime/profile
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
	n, before := 0, processorTime(b)
	observe := func(s engine.Step) {
		now := processorTime(b)
		if s.Prefill == 0 {
			kind := n / 2 % kinds
			took[kind] = append(took[kind], now-before)
			n++
		}
		trace.Reset()
		trace.Pause(n/2%kinds == 0)
		before = processorTime(b)
	}
	tokens := min(b.N+1, f.Config.MaxPositions-2)
	inst, err := engine.Start(f, engine.Setup{Backend: ced.CPU, Threads: 1, Context: tokens + 2, NoSelfTest: true, Trace: trace, Observe: observe})
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

func processorTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

func quartile(v []time.Duration) time.Duration {
	s := slices.Sorted(slices.Values(v))
	return s[(len(s)-1)/4]
}
