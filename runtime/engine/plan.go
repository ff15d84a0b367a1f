package engine

import (
	"bufio"
	"bytes"
	"fmt"
	"os"

	"cedrun/runtime/checkpoint"
)

// Plan is what opening a model will take, known before a weight is read.
type Plan struct {
	Weights   int64 // bytes of all tensors
	Read      int64 // of them, bytes that are read into memory instead of paged in from mapped files on demand
	KV        int64 // bytes of the global KV cache
	Windows   int64 // bytes of window rings
	KVTokens  int
	Available int64 // bytes of memory that can be had without swapping; 0 = unknown
}

// Plan sizes a setup.
func (f *Files) Plan(s Setup) (Plan, error) {
	c := f.Config
	s, err := s.fill(c)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{
		Weights: f.Checkpoint.TotalSize(),
		KV:      int64(s.KVTokens) * int64(c.BytesPerToken()), KVTokens: s.KVTokens,
		Windows:   int64(c.Layers) * int64(s.Slots) * int64(c.Window+c.Draft.BlockSize) * int64(c.WindowRowBytes()),
		Available: available(),
	}
	if !f.Checkpoint.Mapped() && f.Source.FS == nil {
		p.Read = f.Report.ByRole[checkpoint.Backbone].Bytes // rows of Engram tables are read one by one
	}
	return p, nil
}

// Need is the memory that the plan is sure to use.
func (p Plan) Need() int64 { return p.Read + p.KV + p.Windows }

// Check refuses a plan that cannot fit.
func (p Plan) Check() error {
	if p.Available == 0 || p.Need() <= p.Available {
		return nil
	}
	if p.Read > p.KV {
		return fmt.Errorf("%.1f GB of weights are to be read into memory and %.1f GB are free: leave out --no-map, or lift the limit on address space", gb(p.Read), gb(p.Available))
	}
	return fmt.Errorf("the KV cache of %d tokens takes %.1f GB and %.1f GB of memory are free: lower --context", p.KVTokens, gb(p.KV+p.Windows), gb(p.Available))
}

func gb(n int64) float64 { return float64(n) / 1e9 }

// available reads MemAvailable where there is a /proc/meminfo.
func available() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var kb int64
		if n, _ := fmt.Sscanf(s.Text(), "MemAvailable: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	return 0
}
