package selftest

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	ced "cedrun/cuda"
)

// kind is the element type of an output.
type kind int

const (
	bf16  kind = iota
	f32        // compared like bf16: within a tolerance of the row
	i32        // compared exactly
	codes      // bytes of quantised values and scales: few may differ
)

var sizes = map[kind]int{bf16: 2, f32: 4, i32: 4, codes: 1}

// output is what a kernel wrote: rows of width elements.
type output struct {
	name  string
	kind  kind
	addr  ced.Addr
	n     int
	width int
}

// arenaBytes holds the operands of any one case.
const arenaBytes = 2 << 20

// rig lays the operands of one case out on a stream. Two rigs that run the same calls hold the same inputs.
type rig struct {
	s     *ced.Stream
	arena ced.Addr
	used  int
	seed  uint64
	out   []output
	err   error
}

func newRig(s *ced.Stream) (*rig, error) {
	a, err := s.Alloc(arenaBytes)
	return &rig{s: s, arena: a}, err
}

func (r *rig) close() { r.s.Free(r.arena) }

// run runs a case from a fresh arena and returns its outputs' bytes.
func (r *rig) run(c kernelCase) ([][]byte, error) {
	r.used, r.seed, r.out, r.err = 0, 0, nil, nil
	call := c.prepare(r)
	if r.err == nil {
		r.err = call()
	}
	var got [][]byte
	for _, o := range r.out {
		b := make([]byte, o.n*sizes[o.kind])
		if r.err == nil {
			r.err = r.s.Download(b, o.addr)
		}
		got = append(got, b)
	}
	return got, r.err
}

func (r *rig) take(n int) ced.Addr {
	a := r.arena + ced.Addr(r.used)
	if r.used += (n + 63) &^ 63; r.used > arenaBytes && r.err == nil {
		r.err = fmt.Errorf("operands of %d bytes: the arena has %d", r.used, arenaBytes)
		return r.arena
	}
	return a
}

// put uploads plain data.
func put[T any](r *rig, v ...T) ced.Addr {
	b := unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
	a := r.take(len(b))
	if r.err == nil {
		r.err = r.s.Upload(a, b)
	}
	return a
}

// poison reserves an output of n elements in rows of width and fills it with NaNs or -1.
func (r *rig) poison(name string, k kind, n, width int) ced.Addr {
	a := r.take(n * sizes[k])
	if r.err == nil {
		r.err = r.s.Fill(a, 0xFF, n*sizes[k])
	}
	return r.watch(name, k, a, n, width)
}

// watch declares an operand that the kernel updates in place as an output.
func (r *rig) watch(name string, k kind, a ced.Addr, n, width int) ced.Addr {
	r.out = append(r.out, output{name, k, a, n, width})
	return a
}

// next is the case's random sequence (splitmix64).
func (r *rig) next() uint64 {
	r.seed += 0x9E3779B97F4A7C15
	z := r.seed
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// uniform is a multiple of 2^-7 in [-1, 1), exact in bf16.
func (r *rig) uniform() float32 { return float32(r.next()>>56)/128 - 1 }

// fill makes n elements by f and uploads them.
func fill[T any](r *rig, n int, f func() T) ced.Addr {
	v := make([]T, n)
	for i := range v {
		v[i] = f()
	}
	return put(r, v...)
}

func (r *rig) bf16s(n int) ced.Addr {
	return fill(r, n, func() uint16 { return uint16(math.Float32bits(r.uniform()) >> 16) })
}

func (r *rig) f32s(n int) ced.Addr { return fill(r, n, r.uniform) }

// positive makes f32 values in (0, 1].
func (r *rig) positive(n int) ced.Addr {
	return fill(r, n, func() float32 { return (r.uniform() + 1.0078125) / 2 })
}

// fp8s makes e4m3 codes of values between 1/4 and 4, either sign.
func (r *rig) fp8s(n int) ced.Addr { return fill(r, n, r.fp8) }

func (r *rig) fp8() byte {
	x := r.next()
	return byte(x>>56)&0x87 | byte(5+x%4)<<3
}

// packed makes packed FP4 codes, two a byte.
func (r *rig) packed(bytes int) ced.Addr {
	return fill(r, bytes, func() byte { return byte(r.next() >> 56) })
}

// scales makes UE8M0 scales from 2^-5 to 2^-2.
func (r *rig) scales(n int) ced.Addr { return fill(r, n, r.scale) }

func (r *rig) scale() byte { return byte(122 + r.next()>>62) }

// judge compares an output with the reference's. why is empty when it holds.
func (o output) judge(got, want []byte) (why string) {
	switch o.kind {
	case i32:
		for i := range o.n {
			if g, w := int32(binary.LittleEndian.Uint32(got[4*i:])), int32(binary.LittleEndian.Uint32(want[4*i:])); g != w {
				return fmt.Sprintf("%s[%d] is %d, the reference has %d", o.name, i, g, w)
			}
		}
	case codes:
		wrong := 0
		for i := range got {
			if got[i] != want[i] {
				wrong++
			}
		}
		if wrong*64 > len(want) {
			return fmt.Sprintf("%d of %d bytes of %s differ from the reference", wrong, len(want), o.name)
		}
	default:
		return o.judgeFloats(floats(o.kind, got), floats(o.kind, want))
	}
	return ""
}

// tolerance of an element, as a part of its size or of its row's rms: two BF16 ulp.
const tolerance = 1.0 / 64

func (o output) judgeFloats(got, want []float64) string {
	constant := true
	for r := 0; r < o.n; r += o.width {
		sum := 0.0
		for _, w := range want[r : r+o.width] {
			sum += w * w
		}
		rms := math.Sqrt(sum / float64(o.width))
		for i := r; i < r+o.width; i++ {
			if d := math.Abs(got[i] - want[i]); !(d <= tolerance*max(math.Abs(want[i]), rms)) {
				return fmt.Sprintf("%s[%d] is %g, the reference has %g", o.name, i, got[i], want[i])
			}
			constant = constant && got[i] == got[0]
		}
	}
	if constant {
		return fmt.Sprintf("every element of %s is %g", o.name, got[0])
	}
	return ""
}

func floats(k kind, b []byte) []float64 {
	v := make([]float64, len(b)/sizes[k])
	for i := range v {
		var bits uint32
		if k == bf16 {
			bits = uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16
		} else {
			bits = binary.LittleEndian.Uint32(b[4*i:])
		}
		v[i] = float64(math.Float32frombits(bits))
	}
	return v
}
