// Command levels measures what a long prompt does to texts that are being written, and they to it: tokens come at
// intervals, whose percentiles it gives for the texts alone and beside the prompt, and the prompt's speed alone and beside
// the texts, all in one run.
//
//	go run ./bench/levels --model DIR --prompt 32768 --streams 4
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

type options struct {
	model                  string
	prompt, streams, chunk int
	alone                  time.Duration
	slowdown               float64
	mode                   model.Prefill
	threads                int
	json                   bool
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "levels:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("levels", flag.ContinueOnError)
	mode := "cone"
	f.StringVar(&o.model, "model", "", "checkpoint `DIR`")
	f.IntVar(&o.prompt, "prompt", 32768, "read a prompt of `N` tokens")
	f.IntVar(&o.streams, "streams", 4, "while `N` texts are written")
	f.IntVar(&o.chunk, "chunk", 256, "at most `N` prompt tokens a step")
	f.DurationVar(&o.alone, "alone", 20*time.Second, "write the texts alone for `T` first")
	f.Float64Var(&o.slowdown, "decode-slowdown", 1.75, "let a step take `X` times as long with prompt tokens; 0 = whole chunks")
	f.StringVar(&mode, "prefill", mode, "prefill `MODE`: exact, cone or replay")
	f.IntVar(&o.threads, "threads", 0, "use `N` threads; 0 = one per core")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case o.model == "":
		return o, errors.New("--model is missing: give a checkpoint, as made by cedrun synth --preset bench-s")
	case o.prompt < 1 || o.streams < 1 || o.chunk < 1 || o.alone <= 0:
		return o, errors.New("--prompt, --streams, --chunk and --alone must be positive")
	}
	o.mode, err = model.ParsePrefill(mode)
	return o, err
}

// intervals are times between a text's tokens, in milliseconds.
type intervals struct {
	Tokens  int     `json:"tokens"`
	Median  float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Longest float64 `json:"max_ms"`
}

func summarise(ms []float64) intervals {
	if len(ms) == 0 {
		return intervals{}
	}
	slices.Sort(ms)
	at := func(q float64) float64 { return ms[int(q*float64(len(ms)-1))] }
	return intervals{len(ms), at(0.5), at(0.99), ms[len(ms)-1]}
}

// report is what a run found. Speeds are prompt tokens a second.
type report struct {
	Prompt  int       `json:"prompt_tokens"`
	Streams int       `json:"streams"`
	Alone   intervals `json:"decode_alone"`
	Beside  intervals `json:"decode_beside_prefill"`
	Ratio   float64   `json:"p99_ratio"`
	Lone    float64   `json:"prefill_alone_tok_s"`
	Mixed   float64   `json:"prefill_beside_decode_tok_s"`
	Share   float64   `json:"prefill_share"`
}

func run(ctx context.Context, args []string, w io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(w).Encode(r)
	}
	_, err = fmt.Fprintf(w, "%d texts alone          p50 %7.1f ms  p99 %7.1f ms  longest %7.1f ms  (%d tokens)\n"+
		"%d beside the prompt    p50 %7.1f ms  p99 %7.1f ms  longest %7.1f ms  (%d tokens)\n"+
		"p99: %.2f times as long\n"+
		"prompt of %d alone   %7.1f tok/s\n"+
		"beside the texts        %7.1f tok/s, %.0f %% of it\n",
		r.Streams, r.Alone.Median, r.Alone.P99, r.Alone.Longest, r.Alone.Tokens,
		r.Streams, r.Beside.Median, r.Beside.P99, r.Beside.Longest, r.Beside.Tokens,
		r.Ratio, r.Prompt, r.Lone, r.Mixed, 100*r.Share)
	return err
}

func measure(ctx context.Context, o options) (r report, err error) {
	i, err := engine.Open(engine.Source{Dir: o.model}, engine.Setup{
		Backend: ced.CPU, Threads: o.threads, Context: o.prompt + 2, Slots: o.streams + 1, Chunk: o.chunk, Slowdown: o.slowdown, HugePages: true,
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, i.Close()) }()
	random := rand.New(rand.NewPCG(1, 1))
	prompt := make([]int32, o.prompt)
	for n := range prompt {
		prompt[n] = int32(random.IntN(i.Config.VocabSize))
	}
	read := func() (float64, error) {
		began := time.Now()
		g, err := i.Submit(ctx, engine.Request{Prompt: prompt, MaxTokens: 1, Prefill: o.mode, Sampling: sample.Params{TopP: 1}})
		if err != nil {
			return 0, err
		}
		if res := g.Wait(); res.Err != nil {
			return 0, res.Err
		}
		return float64(o.prompt) / time.Since(began).Seconds(), nil
	}
	if r.Lone, err = read(); err != nil {
		return r, err
	}

	var phase atomic.Int32 // 0: alone, 1: between, 2: beside
	writing, stop := context.WithCancel(ctx)
	defer stop()
	var wait sync.WaitGroup
	var mu sync.Mutex
	var got [3][]float64
	for n := range o.streams {
		// A text ends with its context's room; then the next one begins.
		wait.Go(func() {
			var own [3][]float64
			for k := 0; writing.Err() == nil; k++ {
				g, err := i.Submit(writing, engine.Request{
					Prompt: prompt[n : n+8], MaxTokens: o.prompt - 8, Prefill: o.mode, Sampling: sample.Params{TopP: 1, Temperature: 1, Seed: uint64(n + k<<8)},
				})
				if err != nil {
					break
				}
				var last time.Time
				for {
					if _, ok := g.Next(context.Background()); !ok {
						break
					}
					now, p := time.Now(), phase.Load()
					if !last.IsZero() {
						own[p] = append(own[p], now.Sub(last).Seconds()*1e3)
					}
					last = now
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for p := range got {
				got[p] = append(got[p], own[p]...)
			}
		})
	}
	time.Sleep(o.alone)
	phase.Store(2)
	r.Mixed, err = read()
	phase.Store(1)
	stop()
	wait.Wait()
	r.Prompt, r.Streams = o.prompt, o.streams
	r.Alone, r.Beside = summarise(got[0]), summarise(got[2])
	r.Ratio, r.Share = r.Beside.P99/r.Alone.P99, r.Mixed/r.Lone
	return r, err
}
