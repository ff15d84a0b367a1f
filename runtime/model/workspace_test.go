package model

import (
	"slices"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/kv"
	"cedrun/runtime/plan"
)

// bare is a model without weights and memory: what its sizes follow from.
func bare(c *config.Config, s *ced.Stream, opt Options) *Model {
	ratios := make([]int, len(c.KVSources))
	for i, l := range c.KVSources {
		ratios[i] = c.CompressRatios[l]
	}
	return &Model{cfg: c, schedule: c.Schedule(), s: s, opt: opt, layout: kv.NewLayout(c.HeadDim, c.IndexHeadDim, c.KVSources, ratios)}
}

// The scratch of the indexer is allocated once: it must do for every layer, whatever the order of ratios.
func TestIndexerScratchDoesForEveryLayer(t *testing.T) {
	s, err := ced.Open(ced.CPU, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, dir := range []string{"mini/base", "mini/edge", "mini/sched40", "release"} { // edge: ratio 1 before ratio 2
		t.Run(dir, func(t *testing.T) {
			c, err := config.Load("../../testdata/" + dir + "/config.json")
			if err != nil {
				t.Fatal(err)
			}
			m := bare(c, s, Options{Slots: 1, Context: 4096, StepRows: 64})
			rows := rowCount{max: uint32(m.opt.StepRows)}
			all := m.indexArgs(nil, rows)
			have := s.CSA2IndexWorkspace(&all)
			for i := range m.schedule {
				l := &m.schedule[i]
				if !l.OwnsIndex {
					continue
				}
				a := m.indexArgs(l, rows)
				if need := s.CSA2IndexWorkspace(&a); need > have {
					t.Errorf("layer %d needs %d bytes, allocated are %d", i, need, have)
				}
			}
		})
	}
}

// A longer context takes 890 bytes a token for the release (spec serving 4.1) and a page table; besides, the host keeps
// the token ids. Everything else is sized by the rows of a step.
func TestMemoryGrowsByTheCacheRowsOfATokenAlone(t *testing.T) {
	s, err := ced.Open(ced.CPU, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, dir := range []string{"release", "mini/base", "mini/edge", "mini/wide", "demo"} {
		t.Run(dir, func(t *testing.T) {
			c, err := config.Load("../../testdata/" + dir + "/config.json")
			if err != nil {
				t.Fatal(err)
			}
			open := func(context int) (stream, host int) {
				m := &Model{cfg: c, schedule: c.Schedule(), s: s, opt: Options{Slots: 1, Context: context, StepRows: 65, Outputs: 1}, open: map[int]ced.Addr{}}
				m.opt.KVTokens, m.freeSlots = context, []int{0}
				defer m.Close()
				if err := m.allocate(); err != nil {
					t.Fatal(err)
				}
				q := sequence(t, m, Replay, context, context)
				return m.bytes, 4 * (cap(q.tokens) + cap(q.pages))
			}
			const short, long = 1 << 18, 1 << 20
			stream1, host1 := open(short)
			stream2, host2 := open(long)
			pages := (long - short) / kv.PageTokens
			layout := 0.
			for _, l := range c.KVSources {
				layout += float64(kv.PageTokens*(c.MainRowBytes()+c.IndexRowBytes())) / float64(c.CompressRatios[l])
			}
			if got, want := stream2-stream1, pages*(int(layout)+4); got != want {
				t.Errorf("%d bytes of stream memory for %d more tokens, want %d", got, long-short, want)
			}
			if per := float64(stream2-stream1) / (long - short); dir == "release" && per > 890.07 {
				t.Errorf("%.2f bytes a token", per)
			}
			if got, most := host2-host1, (long-short)*4+pages*4; got > most+most/50 {
				t.Errorf("%d bytes on the host for %d more tokens, want %d", got, long-short, most)
			}
		})
	}
}

// Few buckets, and none much larger than what it holds.
func TestABucketHoldsItsRows(t *testing.T) {
	var all []uint32
	for n := range 600 {
		b := plan.Bucket(n, 512)
		if int(b) < min(n, 512) || n > 1 && 2*int(b) > 3*n {
			t.Errorf("%d rows are in the bucket of %d", n, b)
		}
		if len(all) == 0 || all[len(all)-1] != b {
			all = append(all, b)
		}
	}
	if want := []uint32{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512}; !slices.Equal(all, want) {
		t.Errorf("buckets %v, want %v", all, want)
	}
	if got := plan.Bucket(9, 10); got != 10 {
		t.Errorf("9 of at most 10 rows are in the bucket of %d", got)
	}
}

// Scratch is sized for the longest step: a shorter one, whose kernels may have another form, needs no more.
func TestScratchDoesForFewerRows(t *testing.T) {
	for _, kind := range []ced.Kind{ced.Ref, ced.CPU, ced.CUDA} {
		if ced.Devices(kind) == 0 {
			continue
		}
		s, err := ced.Open(kind, 0, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, dir := range []string{"mini/base", "mini/edge", "demo", "release"} {
			c, err := config.Load("../../testdata/" + dir + "/config.json")
			if err != nil {
				t.Fatal(err)
			}
			m := bare(c, s, Options{Slots: 1, Context: 1 << 18, StepRows: 8256})
			need := func(rows uint32) [3]int {
				r := rowCount{max: rows}
				ix, at, ex := m.indexArgs(nil, r), ced.CSA2AttendArgs{MaxRows: rows}, m.expertArgs(whole, r)
				m.attendShape(&at)
				return [3]int{s.CSA2IndexWorkspace(&ix), s.CSA2AttendWorkspace(&at), s.ExpertGEMMWorkspace(&ex)}
			}
			most := need(uint32(m.opt.StepRows))
			for rows := 1; rows < m.opt.StepRows; rows = int(plan.Bucket(rows+1, m.opt.StepRows)) {
				for i, n := range need(uint32(rows)) {
					if n > most[i] {
						t.Errorf("%s, %s: %s of %d rows needs %d bytes, of %d rows %d", kind, dir, []string{"csa2_index", "csa2_attend", "expert_gemm"}[i], rows, n, m.opt.StepRows, most[i])
					}
				}
			}
		}
	}
}

// What the plan counts for an expert on a device is what a packed one takes.
func TestAnExpertTakesWhatIsPlanned(t *testing.T) {
	for _, dir := range []string{"mini/base", "mini/calm", "mini/edge", "mini/plain", "release"} {
		c, err := config.Load("../../testdata/" + dir + "/config.json")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := shapeOf(c).bytes, int(plan.ExpertSlot(c)); got != want {
			t.Errorf("%s: %d bytes, planned are %d", dir, got, want)
		}
	}
}
