package plan

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"cedrun/runtime/config"
)

const gib = 1 << 30

func released(t testing.TB) *config.Config {
	t.Helper()
	c, err := config.Load("../../testdata/release/config.json")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func filled(t testing.TB, c *config.Config, s Setup) Setup {
	t.Helper()
	s, err := s.Fill(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReleasedModelIsLaidOutInMemory(t *testing.T) {
	c := released(t)
	w := CountWeights(c)
	if want := int64(40 * 384 * 3 * 5120 * 2304 * 17 / 32); w.Experts != want {
		t.Errorf("routed experts %d bytes, want %d", w.Experts, want)
	}
	if want := int64(129280 * 5120 * 2); w.Embedding != want || w.Head != want+2*5120 {
		t.Errorf("embedding %d, head %d bytes, want %d", w.Embedding, w.Head, want)
	}
	if want := int64(384006168+384016682) * 264; w.Engram != want {
		t.Errorf("Engram tables %d bytes, want %d", w.Engram, want)
	}
	b := CountBuffers(c, filled(t, c, Setup{Context: 1 << 20, Slots: 2}), 8)
	if want := int64(2 * (1 << 20) * 890); b.KV < want || b.KV > want+1<<18 {
		t.Errorf("KV %d bytes, want %d and page tables", b.KV, want)
	}
	if want := int64(2 * (40*(128+5)*528 + 3*7*2*512*4)); b.Windows != want {
		t.Errorf("windows %d bytes, want %d", b.Windows, want)
	}
	s := CountBuffers(c, filled(t, c, Setup{Context: 1 << 20, Slots: 2, Snapshots: 1 << 30}), 8)
	if want := int64(2 * 128 * (4*5120*2 + 4*4 + (c.IndexTopK+c.CandidateTopKBlocks)*4)); s.Windows-b.Windows != want || s.Total()-b.Total() != want+1<<30 {
		t.Errorf("snapshots of 1 GiB take %d bytes and %d per sequence, want %d", s.Total()-b.Total(), (s.Windows-b.Windows)/2, want/2)
	}
}

// The calls of a decode step read every weight that the census lists as read by every token: no kernel is forgotten.
func TestDecodeReadsAllWeightsOfTheCensus(t *testing.T) {
	for _, name := range []string{"release", "mini/base", "mini/wide", "mini/sched40"} {
		t.Run(name, func(t *testing.T) {
			c, err := config.Load("../../testdata/" + name + "/config.json")
			if err != nil {
				t.Fatal(err)
			}
			var dense, experts float64
			Decode(c, 1, 4095, func(k Call, times float64) {
				if k.Kernel == Experts {
					experts += k.Bytes()
				} else if times < 1 {
					dense += k.Bytes() // in every second step
				} else {
					dense += times * k.Bytes()
				}
			})
			w := CountWeights(c)
			// Norms, biases, sinks and bases of mixes are vectors; blocks of 32 x 32 are rounded up.
			if want := float64(w.Always()); dense > want*1.001 || dense < want*0.97 {
				t.Errorf("dense weights of a step %.0f bytes, census %.0f", dense, want)
			}
			if want := float64(w.Experts) * float64(c.ExpertsPerToken) / float64(c.Experts); math.Abs(experts/want-1) > 1e-9 {
				t.Errorf("experts of a step %.0f bytes, census %.0f", experts, want)
			}
		})
	}
}

func TestWhatDoesNotFitIsSaidWithARemedy(t *testing.T) {
	c := released(t)
	w := CountWeights(c)
	for _, tc := range []struct {
		name  string
		setup Setup
		have  int64
		want  []string
	}{
		{"fits", Setup{Context: 32768}, 24 * gib, nil},
		{"memory unknown", Setup{Context: 1 << 20, Slots: 64}, 0, nil},
		{"context and batch", Setup{Context: 1 << 20, Slots: 32}, 24 * gib, []string{"and has 25.8 GB", "30.0 GB of KV cache and windows for 32 x 1048576 tokens", "lower --context to", "or lower --batch to"}},
		{"context", Setup{Context: 1 << 20}, 9 * gib, []string{"lower --context to"}},
		{"context and all but one text", Setup{Context: 1 << 20, Slots: 32}, 9 * gib, []string{"lower --batch to 1 and --context to "}},
		{"weights", Setup{Context: 4096}, 4 * gib, []string{"no context is short enough", "has 4.3 GB", "free memory"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Fit(c, w, filled(t, c, tc.setup), 2, tc.have)
			if tc.want == nil {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var fit *FitError
			if !errors.As(err, &fit) || fit.Need <= fit.Have {
				t.Fatalf("error %v", err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q, want %q", err, part)
				}
			}
		})
	}
}

// Following the remedy makes the wish fit, and a page more would not.
func TestRemediesAreExact(t *testing.T) {
	c := released(t)
	w := CountWeights(c)
	rapid.Check(t, func(t *rapid.T) {
		have := rapid.Int64Range(9*gib, 64*gib).Draw(t, "have")
		s, err := Setup{Context: rapid.IntRange(1, c.MaxPositions).Draw(t, "context"), Slots: rapid.IntRange(1, 200).Draw(t, "batch")}.Fill(c)
		if err != nil {
			t.Fatal(err)
		}
		fits := func(context int) bool {
			shorter, err := Setup{Context: context, Slots: s.Slots}.Fill(c)
			return err == nil && Fit(c, w, shorter, 2, have) == nil
		}
		var fit *FitError
		if err := Fit(c, w, s, 2, have); !errors.As(err, &fit) {
			return
		}
		_, after, found := strings.Cut(fit.Remedy, "lower --context to ")
		if !found {
			if fits(64) {
				t.Fatalf("64 tokens would fit: %v", fit)
			}
			return
		}
		n := 0
		for _, d := range after {
			if d < '0' || d > '9' {
				break
			}
			n = 10*n + int(d-'0')
		}
		if !fits(n) || fits(n+64) && n+64 <= s.Context {
			t.Fatalf("remedy %d does not hold: %v", n, fit)
		}
	})
}

func TestMoreMemoryHoldsMoreAndIsNeverSlower(t *testing.T) {
	c := released(t)
	w := CountWeights(c)
	m := flat(1e-10)
	m.Disk = Disk{Bandwidth: 1e9, Latency: 1e-4}
	rapid.Check(t, func(t *rapid.T) {
		s, err := Setup{Context: rapid.IntRange(64, 1<<18).Draw(t, "context"), Slots: rapid.IntRange(1, 8).Draw(t, "batch")}.Fill(c)
		if err != nil {
			t.Fatal(err)
		}
		have := rapid.Int64Range(10*gib, 700*gib).Draw(t, "have")
		less, more := Place(c, w, s, 2, have), Place(c, w, s, 2, have+rapid.Int64Range(0, 100*gib).Draw(t, "more"))
		if less.ExpertShare > more.ExpertShare || less.KVFit > more.KVFit || less.OnDisk() < more.OnDisk() {
			t.Fatalf("%+v, with more memory %+v", less, more)
		}
		slow, fast := less.DecodeSpeed(m, c, s.Slots, s.Context-1), more.DecodeSpeed(m, c, s.Slots, s.Context-1)
		if slow.Rate > fast.Rate*(1+1e-9) {
			t.Fatalf("%v tok/s, with more memory %v", slow.Rate, fast.Rate)
		}
	})
}

// flat is a machine whose kernels take per second of every weight byte, row and unit of depth.
func flat(second float64) *Machine {
	m := &Machine{Costs: map[Shape]Cost{}}
	seen := func(c Call, _ float64) {
		k := Cost{Call: second * c.Bytes(), Row: second, Each: second}
		if c.Kernel == Experts {
			k = Cost{Depth: second * c.Bytes() / c.Depth, Row: second}
		}
		m.Costs[c.Shape] = k
	}
	Decode(mustReleased, 1, 1<<20-1, seen)
	return m
}

var mustReleased = func() *config.Config {
	c, err := config.Load("../../testdata/release/config.json")
	if err != nil {
		panic(err)
	}
	return c
}()

func TestSpeedFollowsBatchAndContext(t *testing.T) {
	c, m := mustReleased, flat(1e-10)
	mem := Place(c, CountWeights(c), filled(t, c, Setup{}), 2, 0)
	one := mem.DecodeSpeed(m, c, 1, 1023)
	// 7.0 GB of dense weights and head, 8.5 * 17/32 GB of experts.
	if one.Bytes < 12e9 || one.Bytes > 14e9 {
		t.Errorf("a decode step reads %.2f GB", one.Bytes/1e9)
	}
	if deep := mem.DecodeSpeed(m, c, 1, 1<<20-1); deep.Rate >= one.Rate {
		t.Errorf("%v tok/s at the end of a million tokens, %v after 1024", deep.Rate, one.Rate)
	}
	eight := mem.DecodeSpeed(m, c, 8, 1023)
	if eight.Rate <= one.Rate || eight.Rate >= 8*one.Rate {
		t.Errorf("batch of 8: %v tok/s, of 1: %v", eight.Rate, one.Rate)
	}
}

func TestPromptsAreSummedOverChunks(t *testing.T) {
	c := mustReleased
	zero := make([]int, c.Layers)
	all := Thresholds{zero, zero, zero}
	tail := make([]int, c.Layers)
	const prompt = 100_000
	for l := range tail {
		if l >= 20 {
			tail[l] = prompt - 128
		}
	}
	enter := append([]int{}, tail...)
	enter[20] = 0
	replay := Thresholds{enter, tail, tail}
	queries := func(th Thresholds, chunk int) (rows, head float64) {
		Prompt(c, th, prompt, chunk, func(k Call, times float64) {
			if k.Kernel == Attend {
				rows += times * k.Rows
			}
			if k.Kernel == Product && k.N == c.VocabSize {
				head += times * k.Rows
			}
		})
		return rows, head
	}
	for _, chunk := range []int{64, 256, 1000} { // the last layer attends for the row of logits alone
		if rows, head := queries(all, chunk); math.Abs(rows-(39*prompt+1)) > 1 || head != 1 {
			t.Errorf("exact in chunks of %d: %v attention rows, %v rows of logits", chunk, rows, head)
		}
		if rows, head := queries(replay, chunk); math.Abs(rows-(20*prompt+19*128+1)) > 1 || head != 1 {
			t.Errorf("replay in chunks of %d: %v attention rows, %v rows of logits", chunk, rows, head)
		}
	}
}

func TestAvailableIsTheTightestLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	meminfo := file("MemTotal: 100 kB\nMemAvailable:   1000 kB\n")
	for _, tc := range []struct {
		name string
		fs   fstest.MapFS
		want int64
	}{
		{"nothing known", fstest.MapFS{}, 0},
		{"no groups", fstest.MapFS{"proc/meminfo": meminfo}, 1000 << 10},
		{"v2, parent is tighter", fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/b/memory.current": file("1\n"),
			"sys/fs/cgroup/a/memory.max": file("500000\n"), "sys/fs/cgroup/a/memory.current": file("400000\n"),
			"sys/fs/cgroup/a/memory.stat": file("anon 7\nactive_file 1000\ninactive_file 20000\n"),
		}, 121000},
		{"v1, path of the host is not visible", fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("4:memory:/docker/xyz\n0::/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("300000\n"), "sys/fs/cgroup/memory/memory.usage_in_bytes": file("100000\n"),
		}, 200000},
		{"v1 without a limit", fstest.MapFS{
			"proc/meminfo": meminfo, "proc/self/cgroup": file("4:cpu,memory:/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"), "sys/fs/cgroup/memory/memory.usage_in_bytes": file("5\n"),
		}, 1000 << 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Available(tc.fs); got != tc.want {
				t.Errorf("%d bytes, want %d", got, tc.want)
			}
		})
	}
}

func TestALoadThatCannotFitIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		load Load
		want string
	}{
		{"fits", Load{Weights: 500 * gib, Buffers: Buffers{KV: gib}, Available: 2 * gib}, ""},
		{"memory unknown", Load{Buffers: Buffers{KV: 100 * gib}}, ""},
		{"context too long", Load{Buffers: Buffers{KV: 3 * gib}, KVTokens: 1 << 20, Available: 2 * gib}, "KV cache of 1048576 tokens takes 3.2 GB and 2.1 GB of memory are free: lower --context"},
		{"too many texts", Load{Setup: Setup{Context: 8192, Slots: 128}, Buffers: Buffers{KV: 3 * gib}, KVTokens: 1 << 20, Available: 2 * gib}, "are free: lower --context or --max-batch"},
		{"too much for pages", Load{Setup: Setup{Context: 8192, Slots: 8}, Buffers: Buffers{KV: 3 * gib}, KVTokens: 1 << 20, Available: 2 * gib}, "are free: lower --kv-device or --kv-host"},
		{"weights cannot be mapped", Load{Weights: 500 * gib, Read: 280 * gib, Buffers: Buffers{KV: gib}, Available: 2 * gib}, "leave out --no-map"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.load.Check()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
