package machine

import (
	"testing"

	ced "cedrun/cuda"
)

func TestRatesAreMeasuredOnHostStreams(t *testing.T) {
	for _, kind := range []ced.Kind{ced.CPU, ced.Ref} {
		s, err := ced.Open(kind, 0, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p, err := NewProber(s)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for range 2 {
			if err := p.Probe(); err != nil {
				t.Fatal(err)
			}
		}
		r := p.Rates()
		if len(p.all) != 1 || r.Read <= 0 || r.BF16 <= 0 || r.F32 <= 0 || r.Multiply() < r.F32 {
			t.Errorf("%s: %+v of %v", kind, r, p.all)
		}
		t.Logf("%s: %.1f GB/s, BF16 %.0f GFLOP/s, F32 %.0f GFLOP/s", kind, r.Read/1e9, r.BF16/1e9, r.F32/1e9)
	}
}
