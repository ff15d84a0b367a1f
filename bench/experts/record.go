package main

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/engine"
	"cedrun/runtime/experts/trace"
	"cedrun/runtime/model"
	"cedrun/runtime/tokenizer"
)

// routes is a probe that keeps what the router chose.
type routes struct {
	s    *ced.Stream
	step [][]int32
}

func (r *routes) Sub(name string, t model.Tensor) error {
	if !strings.HasSuffix(name, ".route_idx") {
		return nil
	}
	var layer int
	if _, err := fmt.Sscanf(name, "L%d.", &layer); err != nil {
		return err
	}
	ids := make([]int32, t.Rows*t.Width)
	r.step[layer] = ids
	return r.s.Download(unsafe.Slice((*byte)(unsafe.Pointer(&ids[0])), t.Bytes()), t.Addr)
}

func (r *routes) KV(int) error { return nil }

// record reads a text token by token, several of its places at a time, on the CPU.
func record(o options) error {
	files, err := engine.OpenFiles(engine.Source{Dir: o.model}, checkpoint.Options{}, "")
	if err != nil {
		return err
	}
	defer files.Close()
	text, err := os.ReadFile(o.text)
	if err != nil {
		return err
	}
	if files.Tokenizer == nil {
		return fmt.Errorf("%s has no tokenizer", o.model)
	}
	ids := files.Tokenizer.Encode(string(text), tokenizer.Options{})
	if len(ids) < o.tokens*o.rows {
		return fmt.Errorf("%s has %d tokens, %d are wanted", o.text, len(ids), o.tokens*o.rows)
	}
	s, err := ced.Open(ced.CPU, 0, 0)
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := model.New(s, files.Checkpoint, files.Config, files.Rows(), model.Options{Slots: o.rows, Context: o.tokens, StepRows: o.rows})
	if err != nil {
		return err
	}
	defer m.Close()
	spans := make([]model.Span, o.rows)
	for r := range spans {
		if spans[r].Seq, err = m.NewSequence(model.Exact, 1); err != nil {
			return err
		}
		if err := m.Reserve(spans[r].Seq, o.tokens); err != nil {
			return err
		}
	}
	t := &trace.Trace{Layers: files.Config.Layers, Experts: files.Config.Experts}
	probe := &routes{s: s, step: make([][]int32, t.Layers)}
	for n := range o.tokens {
		for r := range spans {
			at := r*(len(ids)/o.rows) + n
			spans[r].Tokens, spans[r].Logits = ids[at:at+1], n
		}
		clear(probe.step)
		if _, _, err := m.Forward(spans, probe); err != nil {
			return err
		}
		t.Add(probe.step)
	}
	f, err := os.Create(o.record)
	if err != nil {
		return err
	}
	if err := t.Write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
