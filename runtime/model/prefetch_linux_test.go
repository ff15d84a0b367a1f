package model

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/residency"
)

// evicted copies a checkpoint below testdata to a directory whose files are not in memory.
func evicted(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../testdata/"+name)); err != nil {
		t.Fatal(err)
	}
	evict(t, dir)
	return dir
}

func evict(t *testing.T, dir string) {
	t.Helper()
	shards, err := filepath.Glob(dir + "/model*.safetensors")
	if err != nil || len(shards) == 0 {
		t.Fatal("no shards", err)
	}
	for _, s := range shards {
		f, err := os.Open(s)
		if err != nil {
			t.Fatal(err)
		}
		err = unix.Fsync(int(f.Fd())) // dirty pages stay
		if err == nil {
			err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
		if cerr := f.Close(); err != nil || cerr != nil {
			t.Fatal(err, cerr)
		}
	}
}

// logits runs a prompt and some decode steps.
func logits(t *testing.T, m *Model) []float32 {
	t.Helper()
	q, prompt := sequence(t, m, Exact, 30, 40), ids(40)
	out := make([]float32, m.Config().VocabSize)
	var all []float32
	at := 0
	for _, n := range []int{17, 13, 1, 1, 1} {
		a := feed(t, m, nil, Span{q, prompt[at : at+n], at + n - 1})
		at += n
		if err := m.s.Download(bytesOf(out), a); err != nil {
			t.Fatal(err)
		}
		all = append(all, out...)
	}
	return all
}

// The bits do not depend on where weights come from and what is read ahead.
func TestReadingAheadChangesNothing(t *testing.T) {
	for _, name := range []string{"mini/wide", "mini/edge"} { // edge has a table in the decoder
		t.Run(name, func(t *testing.T) {
			opt := Options{Slots: 1, Context: 64, StepRows: 32}
			want := logits(t, openModel(t, name, checkpoint.Options{}, opt))
			for what, o := range map[string]struct {
				ck  checkpoint.Options
				opt Options
			}{
				"mapped, may go":             {checkpoint.Options{}, Options{Prefetch: true}},
				"mapped, stays":              {checkpoint.Options{}, Options{Prefetch: true, Stays: true}},
				"mapped, all experts there":  {checkpoint.Options{}, Options{Prefetch: true, Stays: true, Warmed: true}},
				"mapped, in huge pages":      {checkpoint.Options{HugePages: true}, Options{Prefetch: true, HugePages: true}},
				"read":                       {checkpoint.Options{NoMap: true}, Options{}},
				"read, backed by huge pages": {checkpoint.Options{NoMap: true, HugeCopies: true}, Options{HugePages: true}},
			} {
				o.opt.Slots, o.opt.Context, o.opt.StepRows = opt.Slots, opt.Context, opt.StepRows
				m := openModelAt(t, evicted(t, name), o.ck, o.opt)
				if !slices.Equal(logits(t, m), want) {
					t.Errorf("%s: other logits", what)
				}
			}
		})
	}
}

func TestExpertsAreAskedForOnceIfTheyStay(t *testing.T) {
	dir := evicted(t, "mini/wide")
	m := openModelAt(t, dir, checkpoint.Options{}, Options{Slots: 1, Context: 64, StepRows: 32, Prefetch: true, Stays: true})
	e := m.w.layers[4].pages
	if e == nil {
		t.Fatal("nothing would be read ahead")
	}
	if asked := e.fetch([]int32{2, 0, 2}, true); asked == 0 {
		t.Skip("this file system keeps its pages in memory")
	}
	if e.count != 2 || !e.held[0] || !e.held[2] || e.held[1] {
		t.Errorf("%d held: %v", e.count, e.held)
	}
	evict(t, dir)
	if asked := e.fetch([]int32{0, 2}, true); asked != 0 {
		t.Errorf("%d experts asked for again", asked)
	}
}

func TestExpertsThatMayGoAreLookedForAgain(t *testing.T) {
	dir := evicted(t, "mini/wide")
	m := openModelAt(t, dir, checkpoint.Options{}, Options{Slots: 1, Context: 64, StepRows: 32, Prefetch: true})
	e := m.w.layers[4].pages
	if asked := e.fetch([]int32{1}, false); asked == 0 {
		t.Skip("this file system keeps its pages in memory")
	}
	if err := residency.Populate(t.Context(), e.parts[1], nil); err != nil {
		t.Fatal(err)
	}
	if asked := e.fetch([]int32{1}, false); asked != 0 || e.count != 0 {
		t.Errorf("%d experts asked for that are in memory, %d taken for granted", asked, e.count)
	}
}

func TestNothingIsReadAheadOfWeightsInMemory(t *testing.T) {
	for what, m := range map[string]*Model{
		"not mapped": openModel(t, "mini/wide", checkpoint.Options{NoMap: true}, Options{Slots: 1, Context: 64, StepRows: 8, Prefetch: true}),
		"warmed":     openModel(t, "mini/wide", checkpoint.Options{}, Options{Slots: 1, Context: 64, StepRows: 8, Prefetch: true, Stays: true, Warmed: true}),
	} {
		for l := range m.w.layers {
			if m.w.layers[l].pages != nil {
				t.Errorf("%s: experts of layer %d would be", what, l)
			}
		}
	}
}

func TestATableFoundInMemoryIsLeftAlone(t *testing.T) {
	m := openModelAt(t, evicted(t, "mini/wide"), checkpoint.Options{}, Options{Slots: 1, Context: 256, StepRows: 8, Prefetch: true, Stays: true})
	f := m.w.layers[3].engram.fetch
	if f == nil {
		t.Skip("this file system keeps its pages in memory")
	}
	if err := residency.Populate(t.Context(), [][]byte{f.table, f.scales}, nil); err != nil {
		t.Fatal(err)
	}
	q := sequence(t, m, Exact, 1, 200)
	for n := 1; n <= 2*stepsOfLook; n++ {
		feed(t, m, nil, Span{q, []int32{int32(n)}, q.Pos() + 1})
		m.waitForRows()
		if f.held != (n >= stepsOfLook) {
			t.Fatalf("after %d steps: taken to be in memory: %v", n, f.held)
		}
	}
}
