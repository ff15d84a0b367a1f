package model

import "testing"

// What a layer of a step pays for being counted.
func BenchmarkCountingALayer(b *testing.B) {
	var l layerMeter
	for range b.N {
		l.chosen.Add(8)
		l.missed.Add(1)
	}
}
