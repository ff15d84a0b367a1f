package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

const mini = "../../testdata/mini/"

func open(t *testing.T, name string, setup Setup) *Instance {
	t.Helper()
	i, err := Open(Source{Dir: mini + name}, setup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

func goldenIDs(t *testing.T, name string) []int32 {
	t.Helper()
	g, err := checkpoint.OpenFile(filepath.Join(mini, name, "golden.safetensors"), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	v, err := g.Ints("input_ids")
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, len(v))
	for i, x := range v {
		ids[i] = int32(x)
	}
	return ids
}

// job is a request and what came of it.
type job struct {
	Request
	logits map[int][]float32
	tokens []int32
	result Result
}

// watch makes a job keep every row of logits that it may have.
func (j *job) watch(c *config.Config) {
	j.LogitsFrom = model.NewPlan(c, j.Prefill, len(j.Prompt)).FirstLogits()
	j.logits = map[int][]float32{}
	j.OnLogits = func(pos int, row []float32) error {
		j.logits[pos] = slices.Clone(row)
		return nil
	}
}

// read takes all that comes.
func (j *job) read(g *Generation) {
	for {
		tok, ok := g.Next(context.Background())
		if !ok {
			break
		}
		j.tokens = append(j.tokens, tok.ID)
	}
	j.result = g.Result()
}

// runAll submits the jobs together and waits for all.
func runAll(t *testing.T, i *Instance, jobs []*job) {
	t.Helper()
	var all sync.WaitGroup
	for _, j := range jobs {
		g, err := i.Submit(context.Background(), j.Request)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() { j.read(g) })
	}
	all.Wait()
	for n, j := range jobs {
		if j.result.Err != nil {
			t.Fatalf("request %d: %v", n, j.result.Err)
		}
	}
}

// ragged are requests of different lengths, modes and kinds.
func ragged(ids []int32) []*job {
	at := func(n int) []int32 { return ids[:min(n, len(ids))] }
	sampled := sample.Params{Temperature: 1, TopP: 0.9, Seed: 5}
	return []*job{
		{Request: Request{Prompt: at(61), MaxTokens: 3}},
		{Request: Request{Prompt: at(1), MaxTokens: 12, Sampling: sampled}},
		{Request: Request{Prompt: at(17), Forced: ids[17:30]}},
		{Request: Request{Prompt: at(40), MaxTokens: 5, Prefill: model.Replay, Sampling: sampled}},
		{Request: Request{Prompt: at(40), MaxTokens: 5, Prefill: model.Cone}},
		{Request: Request{Prompt: at(9), MaxTokens: 9, Prefill: model.Replay}},
		{Request: Request{Prompt: ids[5:23], MaxTokens: 0}},
	}
}

func watched(c *config.Config, jobs []*job) []*job {
	for _, j := range jobs {
		j.watch(c)
		if j.Sampling.TopP == 0 {
			j.Sampling.TopP = 1
		}
	}
	return jobs
}

// R4: each request of a ragged batch, prefill and decode mixed, has the bits that it has alone.
func TestARaggedBatchEqualsEachAlone(t *testing.T) {
	for _, name := range []string{"base", "wide", "sched40"} {
		t.Run(name, func(t *testing.T) {
			ids := goldenIDs(t, name)
			alone := open(t, name, Setup{Backend: ced.CPU, Context: 128, Chunk: 128, Outputs: 129})
			want := watched(alone.Config, ragged(ids))
			for _, j := range want {
				runAll(t, alone, []*job{j})
			}
			for _, s := range []Setup{{Slots: 7, Chunk: 128}, {Slots: 3, Chunk: 11, Threads: 2}, {Slots: 7, Chunk: 5, Threads: 1}} {
				s.Backend, s.Context, s.Outputs = ced.CPU, 128, s.Chunk+s.Slots
				together := open(t, name, s)
				got := watched(together.Config, ragged(ids))
				runAll(t, together, got)
				for n := range got {
					if why := differ(got[n], want[n]); why != "" {
						t.Errorf("%d slots, chunks of %d: request %d: %s", s.Slots, s.Chunk, n, why)
					}
				}
			}
		})
	}
}

// Every prompt length, so every remainder modulo the window and the groups, open groups at the boundary included: what
// is decoded after it has the bits that prefill gives.
func TestDecodeAfterEveryPromptLengthEqualsPrefill(t *testing.T) {
	ids := goldenIDs(t, "base") // window 8, ratios 1 and 2
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 64, Chunk: 64, Outputs: 72, Slots: 8})
	whole := &job{Request: Request{Prompt: ids}}
	whole.watch(i.Config)
	runAll(t, i, []*job{whole})
	var jobs []*job
	for n := 1; n < len(ids); n++ {
		j := &job{Request: Request{Prompt: ids[:n], Forced: ids[n:min(n+3, len(ids))]}}
		j.watch(i.Config)
		jobs = append(jobs, j)
	}
	runAll(t, i, jobs)
	for n, j := range jobs {
		for pos, row := range j.logits {
			if !slices.Equal(row, whole.logits[pos]) {
				t.Errorf("prompt of %d tokens: logits of position %d differ from one prefill's", n+1, pos)
			}
		}
		if len(j.logits) != len(j.Prompt)+len(j.Forced) {
			t.Errorf("prompt of %d tokens: %d rows of logits", n+1, len(j.logits))
		}
	}
}

func differ(got, want *job) string {
	if !slices.Equal(got.tokens, want.tokens) {
		return fmt.Sprintf("tokens %v, alone %v", got.tokens, want.tokens)
	}
	if len(got.logits) != len(want.logits) {
		return fmt.Sprintf("%d rows of logits, alone %d", len(got.logits), len(want.logits))
	}
	for pos, row := range want.logits {
		if !slices.Equal(got.logits[pos], row) {
			return fmt.Sprintf("logits of position %d differ", pos)
		}
	}
	if got.result.Finish != want.result.Finish || got.result.Stats.DecodeSteps != want.result.Stats.DecodeSteps {
		return fmt.Sprintf("result %+v, alone %+v", got.result, want.result)
	}
	return ""
}

func TestARequestEnds(t *testing.T) {
	i := open(t, "calm", Setup{Backend: ced.CPU, Context: 64})
	ids := goldenIDs(t, "calm")[:20]
	greedy := sample.Params{TopP: 1}
	first := &job{Request: Request{Prompt: ids, MaxTokens: 4, Sampling: greedy}}
	runAll(t, i, []*job{first})
	if first.result.Finish != FinishLength || len(first.tokens) != 4 || first.result.Stats.PromptTokens != 20 || first.result.Stats.DecodeSteps != 3 {
		t.Errorf("%v, %+v", first.tokens, first.result)
	}
	stopped := &job{Request: Request{Prompt: ids, MaxTokens: 4, Sampling: greedy, Stop: first.tokens[2:3]}}
	runAll(t, i, []*job{stopped})
	if want := first.tokens[:slices.Index(first.tokens, first.tokens[2])]; stopped.result.Finish != FinishStop || !slices.Equal(stopped.tokens, want) {
		t.Errorf("%v, %+v; want a stop after %v", stopped.tokens, stopped.result, want)
	}
	banned := &job{Request: Request{Prompt: ids, MaxTokens: 1, Sampling: sample.Params{TopP: 1, Banned: []int{int(first.tokens[0])}}}}
	runAll(t, i, []*job{banned})
	if banned.tokens[0] == first.tokens[0] {
		t.Errorf("banned token %d was sampled", banned.tokens[0])
	}
}

func TestCancellingEndsOneRequestOnly(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 2048, Slots: 2})
	ids := goldenIDs(t, "base")
	ctx, cancel := context.WithCancel(context.Background())
	long, err := i.Submit(ctx, Request{Prompt: ids[:9], MaxTokens: 2000, Sampling: sample.Params{TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	other := &job{Request: Request{Prompt: ids[:9], MaxTokens: 5, Sampling: sample.Params{TopP: 1}}}
	if _, ok := long.Next(context.Background()); !ok {
		t.Fatal(long.Result().Err)
	}
	cancel()
	runAll(t, i, []*job{other})
	r := long.Wait()
	if r.Finish != FinishCancelled || !errors.Is(r.Err, context.Canceled) || r.Stats.DecodeSteps > 1999 {
		t.Errorf("cancelled request: %+v", r)
	}
	if other.result.Finish != FinishLength {
		t.Errorf("other request: %+v", other.result)
	}
}

func TestAFailingCallbackEndsItsRequest(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 64})
	ids := goldenIDs(t, "base")
	full := errors.New("disk full")
	g, err := i.Submit(context.Background(), Request{Prompt: ids[:9], OnLogits: func(int, []float32) error { return full }, LogitsFrom: 8})
	if err != nil {
		t.Fatal(err)
	}
	if r := g.Wait(); r.Finish != FinishError || !errors.Is(r.Err, full) {
		t.Errorf("%+v", r)
	}
	runAll(t, i, []*job{{Request: Request{Prompt: ids[:9], MaxTokens: 1, Sampling: sample.Params{TopP: 1}}}})
}

// The others of the batch go on, from their own rows of logits.
func TestAFailingCallbackEndsNoOtherRequest(t *testing.T) {
	i := open(t, "calm", Setup{Backend: ced.CPU, Context: 64, Slots: 3, Chunk: 64, Outputs: 67})
	ids := goldenIDs(t, "calm")
	request := func() *job {
		return &job{Request: Request{Prompt: ids[:9], MaxTokens: 4, Sampling: sample.Params{TopP: 1}}}
	}
	alone := request()
	runAll(t, i, []*job{alone})

	// The first request holds the loop up until the others are queued, so that they share the next step.
	queued, full := make(chan struct{}), errors.New("disk full")
	submit := func(r Request) *Generation {
		g, err := i.Submit(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	hold := submit(Request{Prompt: ids[:1], LogitsFrom: 0, OnLogits: func(int, []float32) error { <-queued; return nil }})
	var failing *Generation
	other := request()
	var wait sync.WaitGroup
	wait.Go(func() {
		failing = submit(Request{Prompt: ids[:20], OnLogits: func(int, []float32) error { return full }})
	})
	time.Sleep(20 * time.Millisecond) // so that it comes first in the batch
	wait.Go(func() { runAll(t, i, []*job{other}) })
	time.Sleep(20 * time.Millisecond)
	close(queued)
	wait.Wait()
	if r := hold.Wait(); r.Err != nil {
		t.Error(r.Err)
	}
	if r := failing.Wait(); !errors.Is(r.Err, full) {
		t.Errorf("%+v", r)
	}
	if !slices.Equal(other.tokens, alone.tokens) {
		t.Errorf("tokens %v beside a failing request, alone %v", other.tokens, alone.tokens)
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	i, err := Open(Source{Dir: mini + "base"}, Setup{Backend: ced.CPU, Context: 4096})
	if err != nil {
		t.Fatal(err)
	}
	g, err := i.Submit(context.Background(), Request{Prompt: goldenIDs(t, "base"), MaxTokens: 4000, Sampling: sample.Params{TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
	if r := g.Wait(); r.Finish != FinishCancelled || !errors.Is(r.Err, ErrClosed) {
		t.Errorf("%+v", r)
	}
	if _, err := i.Submit(context.Background(), Request{Prompt: []int32{1}}); !errors.Is(err, ErrClosed) {
		t.Errorf("Submit after Close: %v", err)
	}
}

func TestRequestsThatCannotRunAreRefused(t *testing.T) {
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 64, Outputs: 65}) // window 8
	narrow := open(t, "base", Setup{Backend: ced.CPU, Context: 64})
	ids := goldenIDs(t, "base")
	row := func(int, []float32) error { return nil }
	for _, c := range []struct {
		name string
		r    Request
		want string
	}{
		{"empty prompt", Request{}, "the prompt is empty"},
		{"negative max tokens", Request{Prompt: ids[:1], MaxTokens: -1}, "max tokens -1"},
		{"too long a prompt", Request{Prompt: slices.Repeat(ids, 2)}, "the context holds 64"},
		{"more tokens than an int adds up to", Request{Prompt: ids[:60], MaxTokens: math.MaxInt, Sampling: sample.Params{TopP: 1}}, "the context holds 64"},
		{"too many tokens", Request{Prompt: ids[:60], MaxTokens: 5, Sampling: sample.Params{TopP: 1}}, "prompt of 60 tokens plus 5"},
		{"forced and sampled", Request{Prompt: ids[:1], Forced: ids[:1], MaxTokens: 1}, "either forces"},
		{"temperature", Request{Prompt: ids[:1], MaxTokens: 1, Sampling: sample.Params{TopP: 1, Temperature: -1}}, "temperature"},
		{"token beyond the vocabulary", Request{Prompt: []int32{1, 256}}, "token 256 at position 1"},
		{"negative token", Request{Prompt: []int32{1}, Forced: []int32{-1}}, "token -1 at position 1"},
		{"rows that replay skips", Request{Prompt: ids[:40], Prefill: model.Replay, OnLogits: row, LogitsFrom: 31}, "from position 32 on; use --prefill exact"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := i.Submit(context.Background(), c.r); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if _, err := narrow.Submit(context.Background(), Request{Prompt: ids[:40], OnLogits: row}); err == nil || !strings.Contains(err.Error(), "which takes Outputs of 65") {
		t.Errorf("more rows of logits than were planned: %v", err)
	}
}

// The counts of spec model.md 1.4 for the released geometry.
func TestActiveParametersOfTheRelease(t *testing.T) {
	c, err := config.Load("../../testdata/release/config.json")
	if err != nil {
		t.Fatal(err)
	}
	a := CountActive(c)
	const head = 129280*5120 + 5120
	if a.Head != head {
		t.Errorf("head %d, want %d", a.Head, head)
	}
	if got := a.Decode() - head; got != 15_468_670_064 {
		t.Errorf("decode without head %d", got)
	}
	const prompt = 1 << 20
	got := a.Prefill(model.NewPlan(c, model.Replay, prompt), prompt)
	if got < 7_892_875_448 || got > 7_897_000_000 { // the encoder, KV rows of layer 20, and 128 rows of the decoder
		t.Errorf("prefill %d", got)
	}
	if exact := a.Prefill(model.NewPlan(c, model.Exact, 100), 100); exact != a.Decode()-head+head/100 {
		t.Errorf("exact prefill %d", exact)
	}
}

// A prompt whose first tokens are filled, not run, decodes at its depth from rows that are numbers, the same each time.
func TestAFilledPromptDecodes(t *testing.T) {
	for _, name := range []string{"base", "edge", "sched40"} {
		ids := goldenIDs(t, name)
		for n := 1; n < len(ids); n += 13 { // open groups and wrapped rings included
			var rows []int
			run := func(mode model.Prefill) []float32 {
				steps := 0
				i := open(t, name, Setup{Backend: ced.CPU, Context: 128, Chunk: 8, Observe: func(s Step) {
					steps, rows = steps+1, append(rows, s.Prefill, s.Decode)
					if s.Took <= 0 {
						t.Errorf("step %d took %v", steps, s.Took)
					}
				}})
				j := &job{Request: Request{Prompt: ids[:n+1], Filled: n, MaxTokens: 3, Sampling: sample.Params{TopP: 1}, Prefill: mode}, logits: map[int][]float32{}}
				j.LogitsFrom = n
				j.OnLogits = func(pos int, row []float32) error {
					j.logits[pos] = slices.Clone(row)
					return nil
				}
				runAll(t, i, []*job{j})
				i.Engine.Close() // the observer hears of the last step after its tokens are out
				if j.result.Stats.PromptTokens != n+1 || len(j.tokens) != 3 {
					t.Errorf("%s, %d filled: %+v, tokens %v", name, n, j.result, j.tokens)
				}
				return j.logits[n]
			}
			exact := run(model.Exact)
			if want := []int{1, 0, 0, 1, 0, 1}; !slices.Equal(rows, want) {
				t.Errorf("%s, %d filled: steps of %v prefill and decode rows, want %v", name, n, rows, want)
			}
			if !slices.Equal(exact, run(model.Exact)) {
				t.Errorf("%s, %d filled: logits differ from run to run", name, n)
			}
			for i, x := range exact {
				if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
					t.Fatalf("%s, %d filled: logit %d is %v", name, n, i, x)
				}
			}
		}
	}
	i := open(t, "base", Setup{Backend: ced.CPU, Context: 64})
	for _, filled := range []int{-1, 3, 4} {
		if _, err := i.Submit(context.Background(), Request{Prompt: []int32{1, 2, 3}, Filled: filled, MaxTokens: 1}); err == nil {
			t.Errorf("%d of 3 tokens filled: no error", filled)
		}
	}
}
