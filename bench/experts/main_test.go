package main

import (
	"bytes"
	"strings"
	"testing"

	"cedrun/runtime/experts/trace"
)

func TestTheTableHasEveryPolicy(t *testing.T) {
	var out bytes.Buffer
	tr := trace.Generate(trace.Shape{Name: "small", Layers: 2, Experts: 8, TopK: 2, Steps: 50, Rows: 1, Skew: 1})
	if err := table(&out, []*trace.Trace{tr}, 2); err != nil {
		t.Fatal(err)
	}
	for _, p := range trace.Policies() {
		if !strings.Contains(out.String(), p.Name) {
			t.Errorf("%s is missing:\n%s", p.Name, &out)
		}
	}
}

func TestAModelsChoicesAreRecorded(t *testing.T) {
	name := t.TempDir() + "/t.trace"
	args := "--record " + name + " --model ../../testdata/demo --text ../../testdata/demo/heldout.txt --tokens 3 --rows 2"
	if err := run(strings.Fields(args), nil); err != nil {
		t.Fatal(err)
	}
	tr, err := read(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.Steps) != 3 || tr.Accesses() < 3*2*tr.Layers {
		t.Errorf("%d steps with %d choices", len(tr.Steps), tr.Accesses())
	}
}
