// Package ucd classifies code points by Unicode 16.0, the version that the reference tokenizer was built with. The
// tables of package unicode follow the Go release (15.0 in Go 1.26) and differ for thousands of code points, each of
// which would be split into other tokens.
//
// ranges.go is generated: see gen/gen.mjs.
package ucd

import "sync"

// Class is a set of the properties below.
type Class uint8

const (
	Letter      Class = 1 << iota // general category L*
	Mark                          // general category M*
	Number                        // general category N*
	PunctSymbol                   // general categories P* and S*
	Space                         // property White_Space
)

type classRange struct {
	lo, hi rune
	class  Class
}

const (
	pageBits = 8
	pageSize = 1 << pageBits
	pages    = (0x10FFFF + 1) >> pageBits
)

// Page holds the classes of 256 consecutive code points.
type Page [pageSize]Class

// Table gives the class of a code point in two look-ups; pages with equal content are shared.
type Table [pages]*Page

// Of returns the class of r, which must be in 0..0x10FFFF.
func (t *Table) Of(r rune) Class { return t[r>>pageBits][r&(pageSize-1)] }

// Classes returns the shared read-only table.
var Classes = sync.OnceValue(func() *Table { return NewTable(func(r rune, c Class) Class { return c }) })

// NewTable builds a table whose entries are refine(r, class of r), so that a caller can add bits of its own.
func NewTable(refine func(r rune, c Class) Class) *Table {
	t := new(Table)
	shared := make(map[Page]*Page)
	next := 0
	for i := range t {
		var p Page
		for j := range p {
			r := rune(i<<pageBits | j)
			for next < len(ranges) && ranges[next].hi < r {
				next++
			}
			var c Class
			if next < len(ranges) && ranges[next].lo <= r {
				c = ranges[next].class
			}
			p[j] = refine(r, c)
		}
		if shared[p] == nil {
			shared[p] = &p
		}
		t[i] = shared[p]
	}
	return t
}
