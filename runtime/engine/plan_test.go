package engine

import (
	"strings"
	"testing"
)

func TestAPlanThatCannotFitIsRefused(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name string
		plan Plan
		want string
	}{
		{"fits", Plan{Weights: 500 * gib, KV: gib, Available: 2 * gib}, ""},
		{"memory unknown", Plan{KV: 100 * gib}, ""},
		{"context too long", Plan{KV: 3 * gib, KVTokens: 1 << 20, Available: 2 * gib}, "KV cache of 1048576 tokens takes 3.2 GB and 2.1 GB of memory are free: lower --context"},
		{"weights cannot be mapped", Plan{Weights: 500 * gib, Read: 280 * gib, KV: gib, Available: 2 * gib}, "leave out --no-map"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.plan.Check()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
