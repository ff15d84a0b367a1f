package experts

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// What the host does between two steps of the release (40 layers of 384 experts, 6 of them for a token), half of whose
// experts have slots.
func BenchmarkBetweenSteps(b *testing.B) {
	for _, rows := range []int{1, 8, 1024} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			const layers, all, topK = 40, 384, 6
			c, err := New(Config{Layers: layers, Experts: all, Slots: layers * all / 2, Floor: topK}, nil)
			if err != nil {
				b.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 1))
			steps := make([][]int32, 16)
			for i := range steps {
				for range rows * topK {
					steps[i] = append(steps[i], int32(min(r.ExpFloat64()*all/4, all-1)))
				}
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				for l := range layers {
					if err := c.Observe(l, steps[(n+l)%len(steps)]); err != nil {
						b.Fatal(err)
					}
				}
				c.End()
				if _, err := c.Land(); err != nil {
					b.Fatal(err)
				}
				if _, err := c.Start(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
