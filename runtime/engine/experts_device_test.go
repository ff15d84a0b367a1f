//go:build sim || cuda

package engine

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/plan"
	"cedrun/runtime/sample"
)

// write generates a text on a device with so many bytes for experts and returns it with what was counted.
func write(t *testing.T, setup Setup) (text []int32, load ExpertLoad, first string) {
	t.Helper()
	i, err := Open(Source{Dir: mini + "calm"}, setup)
	if err != nil {
		t.Fatal(err)
	}
	g, err := i.Submit(context.Background(), Request{Prompt: goldenIDs(t, "calm")[:6], MaxTokens: 10, Sampling: sample.Params{TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for {
		tok, ok := g.Next(context.Background())
		if !ok {
			break
		}
		text = append(text, tok.ID)
	}
	if r := g.Result(); r.Err != nil {
		t.Fatal(r.Err)
	}
	load = i.Load().Experts
	if u := i.Counters().Model.Slots; u != nil {
		first = u.First
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	return text, load, first
}

// The experts that a run used most are those that the next one begins with, which finds more of them there; the texts are
// the same.
func TestExpertsOfAnEarlierRunAreThereFirst(t *testing.T) {
	if ced.Devices(ced.CUDA) == 0 {
		t.Skip("no CUDA device")
	}
	setup := Setup{Backend: ced.CUDA, Context: 64, Chunk: 8, NoSelfTest: true, CacheDir: t.TempDir()}
	i, err := Open(Source{Dir: mini + "calm"}, setup)
	if err != nil {
		t.Fatal(err)
	}
	layers, perToken := i.Config.Layers, i.Config.ExpertsPerToken
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	setup.ExpertBytes = 1
	_, err = Open(Source{Dir: mini + "calm"}, setup)
	if err == nil || !strings.Contains(err.Error(), "give at least") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("one byte for experts: %v", err)
	}
	one := expertBytes(t)
	setup.ExpertBytes = one * layers * perToken * 2
	text, cold, first := write(t, setup)
	if !strings.HasPrefix(first, "by number") || cold.Slots < layers*perToken || cold.Misses == 0 {
		t.Errorf("%+v, first %q", cold, first)
	}
	again, warm, first := write(t, setup)
	if !strings.HasPrefix(first, "what an earlier run used most") {
		t.Errorf("the second run begins %q", first)
	}
	if warm.Hits <= cold.Hits {
		t.Errorf("%d hits, %d without knowing what is used", warm.Hits, cold.Hits)
	}
	if !slices.Equal(text, again) {
		t.Errorf("%v, then %v", text, again)
	}
	t.Logf("cold %+v, then %+v", cold, warm)

	// A start whose server nobody asks anything, with all that it captures, counts for nothing: neither in what
	// the device holds first nor in what the next run is told.
	files, err := filepath.Glob(filepath.Join(setup.CacheDir, "experts-*.txt"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	order, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	idle, err := Open(Source{Dir: mini + "calm"}, setup)
	if err != nil {
		t.Fatal(err)
	}
	u := idle.Counters().Model
	if load := idle.Load().Experts; load.Hits+load.Misses+load.MovedBytes+load.StreamedBytes > 0 || u.EngramRows > 0 || u.Graphs.Plain+u.Graphs.Replayed > 0 || u.Graphs.Captured != 1 {
		t.Errorf("before the first request: %+v, %+v", load, u.Graphs)
	}
	if err := idle.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(got, order) {
		t.Errorf("%v: the order was\n%s\nand is\n%s", err, order, got)
	}
	// What a run did not use stays in the order, behind what it used.
	if i, err = Open(Source{Dir: mini + "calm"}, setup); err != nil {
		t.Fatal(err)
	}
	g, err := i.Submit(context.Background(), Request{Prompt: goldenIDs(t, "calm")[:1], MaxTokens: 2, Sampling: sample.Params{TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if r := g.Wait(); r.Err != nil {
		t.Fatal(r.Err)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(files[0]); err != nil || bytes.Count(got, []byte{'\n'}) < bytes.Count(order, []byte{'\n'}) || bytes.Equal(got, order) {
		t.Errorf("%v: the order was\n%s\nand is\n%s", err, order, got)
	}
}

// expertBytes is the room of an expert of calm.
func expertBytes(t *testing.T) int {
	t.Helper()
	return int(plan.ExpertSlot(openFiles(t, "calm", checkpoint.Options{}).Config))
}
