package verify

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"cedrun/runtime/checkpoint"
)

// notNumber says of one element, by the definition of its format, whether it is a number.
var notNumber = map[checkpoint.DType]func(b []byte) bool{
	checkpoint.F8E4M3: func(b []byte) bool { return b[0] == 0x7f || b[0] == 0xff },
	checkpoint.F8E8M0: func(b []byte) bool { return b[0] == 0xff },
	checkpoint.BF16:   func(b []byte) bool { return !finite(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)) },
	checkpoint.F16:    func(b []byte) bool { return binary.LittleEndian.Uint16(b)>>10&31 == 31 },
	checkpoint.F32:    func(b []byte) bool { return !finite(math.Float32frombits(binary.LittleEndian.Uint32(b))) },
	checkpoint.F64: func(b []byte) bool {
		v := math.Float64frombits(binary.LittleEndian.Uint64(b))
		return math.IsNaN(v) || math.IsInf(v, 0)
	},
}

func finite(v float32) bool { return v-v == 0 }

func slow(d checkpoint.DType, b []byte) (n int, first int64) {
	first = -1
	width := int(d.Size())
	for i := 0; i+width <= len(b); i += width {
		if notNumber[d](b[i : i+width]) {
			if n == 0 {
				first = int64(i / width)
			}
			n++
		}
	}
	return n, first
}

func TestEveryCodeIsJudgedByItsFormat(t *testing.T) {
	for d, p := range patterns {
		if p.width != int(d.Size()) {
			t.Errorf("%s: width %d", d, p.width)
		}
		for code := range 1 << 16 { // all codes of the narrow formats, the upper half of the wide ones
			b := make([]byte, max(2, p.width))
			binary.LittleEndian.PutUint16(b[len(b)-2:], uint16(code))
			wantN, wantFirst := slow(d, b)
			if n, first := p.count(b); n != wantN || first != wantFirst {
				t.Fatalf("%s, bytes %x: %d from %d, want %d from %d", d, b, n, first, wantN, wantFirst)
			}
		}
	}
}

func TestCountEqualsElementByElement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]checkpoint.DType{checkpoint.F8E4M3, checkpoint.F8E8M0, checkpoint.BF16, checkpoint.F16, checkpoint.F32, checkpoint.F64}).Draw(t, "dtype")
		b := slices.Concat(rapid.SliceOfN(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0x7b, 0x7c, 0x7e, 0x7f, 0x80, 0xf0, 0xfe, 0xff}), int(d.Size()), int(d.Size())), 0, 40).Draw(t, "elements")...)
		wantN, wantFirst := slow(d, b)
		if n, first := patterns[d].count(b); n != wantN || first != wantFirst {
			t.Errorf("%s %x: %d from %d, want %d from %d", d, b, n, first, wantN, wantFirst)
		}
	})
}

func TestCoordinates(t *testing.T) {
	for _, c := range []struct {
		element int64
		shape   []int64
		want    []int64
	}{
		{0, nil, []int64{}}, {7, []int64{9}, []int64{7}}, {7, []int64{3, 4}, []int64{1, 3}}, {23, []int64{2, 3, 4}, []int64{1, 2, 3}},
	} {
		if got := coordinates(c.element, c.shape); !slices.Equal(got, c.want) {
			t.Errorf("%d of %v: %v, want %v", c.element, c.shape, got, c.want)
		}
	}
}
