package machine

import (
	"context"
	"errors"
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
		p, err := NewProber(t.Context(), s)
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

// Who does not want to know any longer does not wait for a GiB to be written.
func TestAProberEndsWithItsContext(t *testing.T) {
	s, err := ced.Open(ced.CPU, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewProber(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
