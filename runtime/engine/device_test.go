//go:build sim

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/kv"
	"cedrun/runtime/kv/disk"
	"cedrun/runtime/model"
	"cedrun/runtime/plan"
	"cedrun/runtime/sample"
)

var greedy = sample.Params{TopP: 1}

func onDevice(setup Setup) Setup {
	setup.Backend, setup.Slots, setup.Chunk, setup.NoSelfTest = ced.CUDA, 2, 16, true
	setup.Context = max(setup.Context, 256)
	return setup
}

func freeBytes(t *testing.T, device int) int64 {
	t.Helper()
	d, err := ced.DeviceInfo(device)
	if err != nil {
		t.Fatal(err)
	}
	return d.Free
}

// Everything that steps use is allocated at the start, as planned: prompts in chunks, decode in batches, the cache, a
// request that fills all pages.
func TestStepsAllocateNothingOnADevice(t *testing.T) {
	before := freeBytes(t, 0)
	setup := onDevice(Setup{Snapshots: 1 << 20})
	i := open(t, "calm", setup)
	free, load := freeBytes(t, 0), plan.Load{}
	load, err := i.Files.Plan(setup)
	if err != nil {
		t.Fatal(err)
	}
	if planned := load.Device.Need() - load.Device.Reserve; before-free > planned {
		t.Errorf("%d bytes taken, %d planned: %+v", before-free, planned, load.Device)
	}
	ids := someIDs(i, 20, 1)
	for _, batch := range [][]int{{5, 20}, {9}} {
		var jobs []*job
		for n, length := range batch {
			jobs = append(jobs, &job{Request: Request{Prompt: ids[n:length], MaxTokens: 3, Sampling: greedy, Prefill: model.Exact, Cache: CacheSnapshot}})
		}
		runAll(t, i, jobs)
	}
	full := Request{Prompt: someIDs(i, i.Setup.Context-1, 2), MaxTokens: 1, Sampling: greedy, Prefill: model.Exact, Filled: i.Setup.Context - 5}
	runAll(t, i, []*job{{Request: full}})
	if now := freeBytes(t, 0); now != free {
		t.Errorf("%d bytes of the device are free after steps, %d before", now, free)
	}
}

// A greedy text is the same whether the device takes the largest logit or, for who wants more of a row, the host.
func TestTheDeviceTakesTheTokenThatTheHostTakes(t *testing.T) {
	i := open(t, "calm", onDevice(Setup{}))
	ids := someIDs(i, 9, 3)
	write := func(top ...int) (texts [][]int32) {
		var jobs []*job
		for n, k := range top {
			jobs = append(jobs, &job{Request: Request{Prompt: ids[n:], MaxTokens: 6, Sampling: greedy, TopLogprobs: k}})
		}
		runAll(t, i, jobs)
		for _, j := range jobs {
			texts = append(texts, j.tokens)
		}
		return texts
	}
	want := write(1, 1)
	for _, top := range [][]int{{0, 0}, {0, 1}, {1, 0}} {
		if got := write(top...); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%v, want %v: rows read by the host %v", got, want, top)
		}
	}
}

// What is planned can be had: on a device that is as small as a plan allows, a model opens and writes; one MiB less, and
// one sentence says what is too large.
func TestThePlanOfADeviceIsEnough(t *testing.T) {
	var least int64
	for mib := int64(16); mib <= 64; mib++ {
		f, err := OpenFiles(Source{Dir: mini + "calm"}, checkpoint.Options{}, "")
		if err != nil {
			t.Fatal(err)
		}
		dev := plan.Device{Name: "a device", Total: mib << 20, Free: mib << 20}
		sizes, err := onDevice(Setup{}).sizes().Fill(f.Config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = plan.PlaceOnDevice(f.Config, f.counts(), sizes, dev, plan.DeviceWorkspaceBytes(f.Config, sizes), 0)
		f.Close()
		if err == nil {
			least = mib
			break
		}
	}
	t.Logf("%d MiB are enough", least)
	for mib, want := range map[int64]string{least: "wrote", least - 1: "needs "} {
		out := child(t, "write", fmt.Sprintf("CED_SIM_MEMORY=%d", mib))
		if !strings.Contains(out, want) {
			t.Errorf("%d MiB: %s", mib, out)
		}
	}
}

// Where a device has the host's memory, as much is free as the system would give back, if that is more than the driver says;
// elsewhere what the driver says.
func TestFreeMemoryOfADeviceThatSharesTheHosts(t *testing.T) {
	for env, want := range map[string]string{
		"CED_SIM_UNIFIED=1": "true 48 of 64\ntrue 24 of 64\ntrue 64 of 64\ntrue 24 of 64\n",
		"CED_SIM_UNIFIED=0": "false 24 of 64\nfalse 24 of 64\nfalse 24 of 64\nfalse 24 of 64\n",
	} {
		if out := child(t, "unified", env, "CED_SIM_MEMORY=64"); !strings.Contains(out, want) {
			t.Errorf("%s: %s", env, out)
		}
	}
}

// Memory that a step lacks costs the requests of that step; the next ones are answered.
func TestAStepWithoutMemoryFailsItsRequestsOnly(t *testing.T) {
	out := child(t, "write twice", "CED_SIM_NOMEM=60")
	if !strings.Contains(out, "first: the device has no memory left for this step") || !strings.Contains(out, "wrote") {
		t.Error(out)
	}
}

// After an illegal address all requests fail with the reason, the engine is done, and what was on disk is there for the
// next process.
func TestADeviceThatFailedEndsTheEngineAndLeavesTheDiskIntact(t *testing.T) {
	dir := t.TempDir()
	if out := child(t, "store", "CHILD_DIR="+dir); !strings.Contains(out, "stored 1 pages") {
		t.Fatal(out)
	}
	out := child(t, "fail", "CHILD_DIR="+dir, "CED_SIM_FAULT=60")
	for _, want := range []string{
		"running: the device failed and takes no more work: download: an illegal memory access was encountered (CUDA error 700)",
		"waiting: the device failed", "later: the device failed", "engine: the device failed",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q: %s", want, out)
		}
	}
	if out := child(t, "load", "CHILD_DIR="+dir); !strings.Contains(out, "loaded 64 tokens") || strings.Contains(out, "warning") {
		t.Error(out)
	}
}

// child runs TestChild in a process of its own, whose simulated device is as env says.
func child(t *testing.T, what string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(append(os.Environ(), "CHILD="+what), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("%s: %v", what, err)
	}
	return string(out)
}

func TestChild(t *testing.T) {
	what := os.Getenv("CHILD")
	if what == "" {
		t.Skip("only as a process of another test")
	}
	setup := onDevice(Setup{Snapshots: 1 << 20})
	setup.NoGraphs = what != "write" // else the start has launches too, where the fault would be
	if dir := os.Getenv("CHILD_DIR"); dir != "" {
		setup.KVDir, setup.KVDisk, setup.Warn = dir, 16<<20, func(s string) { fmt.Println("warning:", s) }
	}
	if what == "unified" {
		unified(t)
		return
	}
	i, err := Open(Source{Dir: mini + "calm"}, setup)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer i.Close()
	ids := someIDs(i, kv.PageTokens+21, 3)
	write := func(prompt []int32) (Result, error) {
		g, err := i.Submit(context.Background(), Request{Prompt: prompt, MaxTokens: 1, Sampling: greedy, Prefill: model.Exact, Cache: CacheSnapshot})
		if err != nil {
			return Result{}, err
		}
		r := g.Wait()
		return r, r.Err
	}
	switch what {
	case "write":
		_, err = write(ids[:9])
		fmt.Println("wrote", err)
	case "write twice":
		_, err = write(ids[:9])
		fmt.Println("first:", err)
		if !errors.Is(err, ErrNoMemory) || i.Err() != nil {
			t.Errorf("%v, engine %v", err, i.Err())
		}
		if _, err = write(ids[:9]); err == nil {
			fmt.Println("wrote")
		}
	case "store":
		_, err = write(ids)
		fmt.Println(err, "stored", written(t, i).Pages, "pages")
	case "load":
		r, err := write(slices.Concat(ids[:kv.PageTokens], ids[:3]))
		fmt.Println(err, "loaded", r.Stats.Cache.Loaded, "tokens")
	case "fail":
		fail(t, i, ids)
	}
}

// unified takes half of a device's memory and then asks what is free, where the system says that it would give back three
// quarters.
func unified(t *testing.T) {
	s, err := ced.Open(ced.CUDA, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d, err := ced.DeviceInfo(0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Alloc(int(d.Total / 2))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Free(a)
	for _, have := range []int64{d.Total / 4 * 3, d.Total / 4, 2 * d.Total, 0} {
		m, err := deviceMemory(0, have)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%v %.0f of 64\n", m.Unified, float64(m.Free*64)/float64(m.Total)) // a stream takes 8 MiB and some KiB
	}
}

// fail has three requests of which two run, and one after the device failed.
func fail(t *testing.T, i *Instance, ids []int32) {
	var all []*Generation
	for n := range 3 {
		g, err := i.Submit(context.Background(), Request{Prompt: ids[n*7 : n*7+40], MaxTokens: 20, Sampling: greedy, Prefill: model.Exact})
		if err != nil {
			break // it has failed already
		}
		all = append(all, g)
	}
	for n, g := range all {
		if r := g.Wait(); !errors.Is(r.Err, ErrDevice) || r.Finish != FinishError {
			t.Errorf("request %d: %+v", n, r)
		} else {
			fmt.Println(map[bool]string{false: "running:", true: "waiting:"}[n == 2 || n == len(all)-1], r.Err)
		}
	}
	<-i.Done()
	_, err := i.Submit(context.Background(), Request{Prompt: ids[:9], MaxTokens: 1, Sampling: greedy, Prefill: model.Exact})
	fmt.Println("later:", err)
	fmt.Println("engine:", i.Err())
	if s := i.Load().Disk; s.State != disk.StateOn {
		t.Errorf("the store: %+v", s)
	}
}
