package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/plan"
)

func mini(t *testing.T, name string) *config.Config {
	t.Helper()
	c, err := config.Load("../../testdata/mini/" + name + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// step lists the calls of a decode step and of a prompt through all layers.
func step(c *config.Config, prompt int) (calls []plan.Call, streamed float64) {
	plan.Decode(c, 2, prompt, func(k plan.Call, n float64) {
		calls, streamed = append(calls, k), streamed+n*k.Bytes()
	})
	zero := make([]int, c.Layers)
	plan.Prompt(c, plan.Thresholds{Enter: zero, Window: zero, Query: zero}, prompt, 64, func(k plan.Call, _ float64) { calls = append(calls, k) })
	return calls, streamed
}

func TestEveryKernelOfAStepHasACost(t *testing.T) {
	for _, kind := range []ced.Kind{ced.CPU, ced.Ref} {
		for _, name := range []string{"base", "wide", "sched40"} {
			t.Run(kind.String()+"/"+name, func(t *testing.T) {
				c := mini(t, name)
				s, err := ced.Open(kind, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				calls, streamed := step(c, 600)
				costs, err := Costs(s, c, calls, streamed)
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range calls {
					cost, ok := costs[k.Shape]
					if !ok || cost.Seconds(k.Rows, max(k.Depth, 1)) <= 0 {
						t.Errorf("%+v costs %+v", k, cost)
					}
				}
			})
		}
	}
}

func TestCostsAreSolvedFromPoints(t *testing.T) {
	at := func(rows, depth int, seconds float64) *point {
		p := &point{rows: rows, depth: depth, scale: 1}
		p.times = append(p.times, time.Duration(seconds*float64(time.Second)))
		return p
	}
	for _, tc := range []struct {
		name   string
		kernel plan.Kernel
		points []*point
		want   plan.Cost
	}{
		{"one point", plan.Product, []*point{at(1, 0, 3)}, plan.Cost{Call: 3}},
		{"rows", plan.Product, []*point{at(1, 0, 3), at(5, 0, 11)}, plan.Cost{Call: 1, Row: 2}},
		{"keys of one row", plan.Index, []*point{at(1, 10, 12), at(1, 20, 22)}, plan.Cost{Call: 2, Depth: 1}},
		{"keys of rows", plan.Attend, []*point{at(1, 10, 2+3+10+20), at(1, 20, 2+3+20+40), at(3, 10, 2+9+10+60), at(3, 20, 2+9+20+120)}, plan.Cost{Call: 2, Depth: 1, Row: 3, Each: 2}},
		{"experts", plan.Experts, []*point{at(1, 2, 10), at(5, 2, 18)}, plan.Cost{Depth: 4, Row: 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := &span{Shape: plan.Shape{Kernel: tc.kernel, Groups: 2}, points: tc.points}
			if got := x.cost(); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestWorkspacesAreThoseOfTheKernels(t *testing.T) {
	for _, name := range []string{"base", "wide", "sched40"} {
		c := mini(t, name)
		setup, err := plan.Setup{Context: 512, Slots: 3, Chunk: 100}.Fill(c)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ced.Open(ced.CPU, 0, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		rows := uint32(setup.Chunk + setup.Slots)
		last := c.KVSources[len(c.KVSources)-1]
		ix := ced.CSA2IndexArgs{
			MaxRows: rows, Heads: uint32(c.IndexHeads), TopK: uint32(c.IndexTopK), MaxGroups: uint32(512 / c.CompressRatios[last]),
			Block: uint32(c.CandidateBlock), MaxBlocks: uint32(c.CandidateTopKBlocks), Publish: 1, KV: ced.KV{IndexDim: uint32(c.IndexHeadDim)},
		}
		at := ced.CSA2AttendArgs{Heads: uint32(c.Heads), HeadDim: uint32(c.HeadDim)}
		ex := ced.ExpertGEMMArgs{
			MaxRows: rows, ExpertsCount: uint32(c.Experts), TopK: uint32(c.ExpertsPerToken), Dim: uint32(c.HiddenSize), Inter: uint32(c.MoEIntermediate),
		}
		want := int64(s.CSA2IndexWorkspace(&ix) + s.CSA2AttendWorkspace(&at) + s.ExpertGEMMWorkspace(&ex))
		if got := plan.WorkspaceBytes(c, setup, 2); got > want || got < want-32*256 { // alignment apart
			t.Errorf("%s: workspaces planned with %d bytes, kernels ask for %d", name, got, want)
		}
	}
}

func TestDiskIsMeasuredOnTheLargestShard(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int64{"a.safetensors": 1 << 20, "b.safetensors": 80 << 20} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	d, err := Disk(dir, 2)
	if err != nil || d.Bandwidth <= 0 || d.Latency <= 0 || !strings.Contains(d.Note, "b.safetensors") || !strings.Contains(d.Note, "sparse") {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := Disk(t.TempDir(), 2); err != nil || d.Bandwidth != 0 {
		t.Errorf("without shards: %+v, %v", d, err)
	}
}
