package ced

import "testing"

func TestArgumentStructsMatchTheHeader(t *testing.T) {
	for _, l := range layouts() {
		if l.cSize != l.goSize || l.cLast != l.goLast {
			t.Errorf("%s: C size %d, last member at %d; Go size %d, last member at %d", l.name, l.cSize, l.cLast, l.goSize, l.goLast)
		}
	}
}
