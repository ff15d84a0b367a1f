package verify

import (
	"encoding/binary"
	"math/bits"

	"cedrun/runtime/checkpoint"
)

// pattern finds elements of one format that stand for no number, eight bytes at a time. An element is one when its
// masked bits are all ones: adding one to the lowest of them then carries into the bit above, which no other bit can
// reach.
type pattern struct {
	width    int // bytes of an element
	mask     uint64
	one, top uint64
	sign     bool // the top bit must be set in the element itself too
	what     string
}

var patterns = map[checkpoint.DType]*pattern{
	checkpoint.F8E4M3: {width: 1, mask: every8(0x7f), one: every8(0x01), top: every8(0x80), what: "with E4M3 NaN codes (0x7F or 0xFF)"},
	checkpoint.F8E8M0: {width: 1, mask: every8(0x7f), one: every8(0x01), top: every8(0x80), sign: true, what: "with scales of 0xFF (E8M0 NaN)"},
	checkpoint.BF16:   {width: 2, mask: every16(0x7f80), one: every16(0x0080), top: every16(0x8000), what: "with infinite or NaN values (BF16)"},
	checkpoint.F16:    {width: 2, mask: every16(0x7c00), one: every16(0x0400), top: every16(0x8000), what: "with infinite or NaN values (F16)"},
	checkpoint.F32:    {width: 4, mask: every32(0x7f800000), one: every32(0x00800000), top: every32(0x80000000), what: "with infinite or NaN values (F32)"},
	checkpoint.F64:    {width: 8, mask: 0x7ff << 52, one: 1 << 52, top: 1 << 63, what: "with infinite or NaN values (F64)"},
}

func every8(b uint64) uint64  { return b * 0x0101010101010101 }
func every16(b uint64) uint64 { return b * 0x0001000100010001 }
func every32(b uint64) uint64 { return b * 0x0000000100000001 }

// count returns how many elements of b match and the index of the first, -1 if there is none. b must start with a whole
// element.
func (p *pattern) count(b []byte) (n int, first int64) {
	first = -1
	var always uint64
	if !p.sign {
		always = ^uint64(0)
	}
	see := func(at int, w uint64) {
		if hit := ((w & p.mask) + p.one) & (w | always) & p.top; hit != 0 {
			if n == 0 {
				first = int64((at + bits.TrailingZeros64(hit)/8) / p.width)
			}
			n += bits.OnesCount64(hit)
		}
	}
	at := 0
	mask, one, top := p.mask, p.one, p.top
	for ; at+8 <= len(b); at += 8 {
		w := binary.LittleEndian.Uint64(b[at:])
		if ((w&mask)+one)&(w|always)&top != 0 {
			see(at, w)
		}
	}
	if at < len(b) {
		var tail [8]byte // zero is a number in every format
		copy(tail[:], b[at:])
		see(at, binary.LittleEndian.Uint64(tail[:]))
	}
	return n, first
}
