// Command cedside is cedrun's side of bench/peers: it opens a checkpoint, then answers one JSON line for each on stdin.
//
//	{"ids": [..], "decode": 64}                        -> {"first": s, "rest": s, "tokens": [..]}
//	{"ids": [..], "forced": [..], "logits": "FILE"}    -> the same; FILE gets f32 rows, one after each of the ids' last
//	                                                      and the forced tokens
//	{"batch": [[..], ..], "decode": 64}                -> {"firsts": [s, ..], "lasts": [s, ..], "tokens": [[..], ..]}
//
// Texts never end early: the end-of-text token is not sampled. "first" is the time from submitting to the first token,
// "rest" from there to the last one; of a batch, both count from submitting all of it. ftllm_side.py answers the same
// lines by the same stopwatch.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/model"
	"cedrun/runtime/sample"
)

type request struct {
	IDs    []int32 `json:"ids"`
	Decode int     `json:"decode"`
	Forced []int32 `json:"forced"`
	Logits string  `json:"logits"`

	Batch [][]int32 `json:"batch"`
}

type answer struct {
	First  float64 `json:"first"`
	Rest   float64 `json:"rest"`
	Tokens []int32 `json:"tokens"`
}

type batchAnswer struct {
	Firsts []float64 `json:"firsts"`
	Lasts  []float64 `json:"lasts"`
	Tokens [][]int32 `json:"tokens"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cedside:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	dir := flag.String("model", "", "checkpoint `DIR`")
	threads := flag.Int("threads", 0, "CPU threads; 0 = one per core")
	longest := flag.Int("context", 4096, "tokens of the longest request")
	chunk := flag.Int("chunk", 512, "prefill tokens of a step")
	prefill := flag.String("prefill", model.Exact.String(), "exact, cone or replay")
	streams := flag.Int("streams", 1, "requests at a time")
	flag.Parse()
	mode, err := model.ParsePrefill(*prefill)
	if err != nil {
		return err
	}
	inst, err := engine.Open(engine.Source{Dir: *dir}, engine.Setup{
		Backend: ced.CPU, Threads: *threads, Context: *longest, Chunk: *chunk, Slots: *streams,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, inst.Close()) }()

	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(map[string]any{"ready": true, "threads": inst.Threads()}); err != nil {
		return err
	}
	in := json.NewDecoder(os.Stdin)
	for {
		var q request
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		var a any
		if q.Batch != nil {
			a, err = serveBatch(inst, q, mode)
		} else {
			a, err = serve(inst, q, mode)
		}
		if err != nil {
			return err
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// greedy is a request whose text does not end early.
func greedy(inst *engine.Instance, ids []int32, q request, mode model.Prefill) engine.Request {
	return engine.Request{
		Prompt: ids, Forced: q.Forced, MaxTokens: q.Decode, Prefill: mode,
		Sampling: sample.Params{TopP: 1, Banned: []int{inst.Config.EOS}}, LogitsFrom: len(ids) - 1,
	}
}

func serveBatch(inst *engine.Instance, q request, mode model.Prefill) (batchAnswer, error) {
	n := len(q.Batch)
	a := batchAnswer{make([]float64, n), make([]float64, n), make([][]int32, n)}
	errs := make([]error, n)
	var readers sync.WaitGroup
	begin := time.Now()
	for i, ids := range q.Batch {
		readers.Go(func() {
			g, err := inst.Submit(context.Background(), greedy(inst, ids, q, mode))
			if err != nil {
				errs[i] = err
				return
			}
			for {
				t, ok := g.Next(context.Background())
				if !ok {
					break
				}
				a.Lasts[i] = time.Since(begin).Seconds()
				if len(a.Tokens[i]) == 0 {
					a.Firsts[i] = a.Lasts[i]
				}
				a.Tokens[i] = append(a.Tokens[i], t.ID)
			}
			errs[i] = g.Result().Err
		})
	}
	readers.Wait()
	return a, errors.Join(errs...)
}

func serve(inst *engine.Instance, q request, mode model.Prefill) (answer, error) {
	req := greedy(inst, q.IDs, q, mode)
	var rows *bufio.Writer
	if q.Logits != "" {
		file, err := os.Create(q.Logits)
		if err != nil {
			return answer{}, err
		}
		defer file.Close()
		rows = bufio.NewWriter(file)
		req.OnLogits = func(_ int, row []float32) error { return writeRow(rows, row) }
	}
	begin := time.Now()
	g, err := inst.Submit(context.Background(), req)
	if err != nil {
		return answer{}, err
	}
	a := answer{Tokens: []int32{}}
	var first time.Time
	for {
		t, ok := g.Next(context.Background())
		if !ok {
			break
		}
		if len(a.Tokens) == 0 {
			first = time.Now()
		}
		a.Tokens = append(a.Tokens, t.ID)
		a.Rest = time.Since(first).Seconds()
	}
	if len(a.Tokens) > 0 {
		a.First = first.Sub(begin).Seconds()
	}
	if r := g.Result(); r.Err != nil {
		return a, r.Err
	}
	if rows != nil {
		return a, rows.Flush()
	}
	return a, nil
}

func writeRow(w io.Writer, row []float32) error {
	b := make([]byte, 0, 4*len(row))
	for _, x := range row {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	_, err := w.Write(b)
	return err
}
