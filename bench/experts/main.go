// Command experts shows how many of a model's expert choices are found in device memory, for several sizes of it and
// policies, on traces that are made up and on those given; and records traces.
//
//	go run ./bench/experts testdata/experts/demo.trace
//	go run ./bench/experts --record out.trace --model DIR --text FILE --tokens 600
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"cedrun/runtime/experts/trace"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "experts:", err)
		os.Exit(1)
	}
}

type options struct {
	record, model, text string
	tokens, rows, moves int
}

func run(args []string, out io.Writer) error {
	f := flag.NewFlagSet("experts", flag.ContinueOnError)
	var o options
	f.StringVar(&o.record, "record", "", "write the choices of a model to `FILE` instead")
	f.StringVar(&o.model, "model", "testdata/demo", "of the checkpoint `DIR`")
	f.StringVar(&o.text, "text", "testdata/demo/heldout.txt", "reading `FILE`")
	f.IntVar(&o.tokens, "tokens", 600, "so many steps of a token of every text")
	f.IntVar(&o.rows, "rows", 1, "`N` texts at a time, from equally distant places of the file")
	f.IntVar(&o.moves, "moves", 4, "copies of a step")
	if err := f.Parse(args); err != nil {
		return err
	}
	if o.tokens < 1 || o.rows < 1 || o.moves < 1 {
		return errors.New("--tokens, --rows and --moves must be positive")
	}
	if o.record != "" {
		return record(o)
	}
	traces := made()
	for _, name := range f.Args() {
		t, err := read(name)
		if err != nil {
			return err
		}
		traces = append(traces, t)
	}
	return table(out, traces, o.moves)
}

func read(name string) (*trace.Trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return trace.Read(name, f)
}

// made are the traces of trace.Standard, and a larger one.
func made() []*trace.Trace {
	return append(trace.Standard(), trace.Generate(trace.Shape{
		Name: "Zipf 0.8, 128 experts, batch 8", Layers: 12, Experts: 128, TopK: 6, Steps: 1500, Rows: 8, Skew: 0.8, Seed: 9,
	}))
}

func table(out io.Writer, traces []*trace.Trace, moves int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "trace\tslots")
	for _, p := range trace.Policies() {
		fmt.Fprintf(w, "\t%s", p.Name)
	}
	fmt.Fprintln(w, "\tmoves")
	for _, t := range traces {
		all := t.Layers * t.Experts
		for _, slots := range []int{all / 8, all / 4, all / 2, 3 * all / 4} {
			fmt.Fprintf(w, "%s\t%d of %d", t.Name, slots, all)
			copies := ""
			for _, p := range trace.Policies() {
				s, err := p.Run(t, slots, moves)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "\t%.1f%%", 100*s.Rate())
				copies += fmt.Sprintf(" %.2f", float64(s.Moves)/float64(len(t.Steps)))
			}
			fmt.Fprintf(w, "\t%s a step\n", copies[1:])
		}
	}
	return w.Flush()
}
