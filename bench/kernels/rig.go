package main

import (
	"math"
	"math/rand/v2"
	"unsafe"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/kv"
)

const (
	pieceBytes = 1 << 20
	cachePages = 2048
	// decodeRows and fewer are rows of sequences of their own, more rows are a chunk of one sequence.
	decodeRows = 8
)

// rig lays out operands of kernels on a stream. The first error stays in err, so that cases need not look.
type rig struct {
	s      *ced.Stream
	c      *config.Config
	random *rand.Rand

	arena  ced.Addr // weights, taken in turn so that they come from memory and not from a cache
	size   int
	cursor int
	scales ced.Addr // of any weights
	layout kv.Layout
	pages  ced.Addr

	owned []ced.Addr // of the case at hand
	err   error
}

func newRig(s *ced.Stream, c *config.Config, arena int) (*rig, error) {
	r := &rig{s: s, c: c, size: max(arena, 2*c.VocabSize*c.HiddenSize), random: rand.New(rand.NewPCG(1, 2))}
	// A byte of 0x30 with another sign and low half is a sane number, or part of one, in every format.
	r.arena = r.repeat(r.size, func(v byte) byte { return v&0x8F | 0x30 })
	r.scales = r.repeat(r.size/16, func(v byte) byte { return 0x79 + v&3 })
	ratios := make([]int, len(c.KVSources))
	for i, l := range c.KVSources {
		ratios[i] = c.CompressRatios[l]
	}
	r.layout = kv.NewLayout(c.HeadDim, c.IndexHeadDim, c.KVSources, ratios)
	r.pages = r.cache()
	r.owned = nil // until the process ends
	return r, r.err
}

// reset frees the operands of a case.
func (r *rig) reset() {
	for _, a := range r.owned {
		r.s.Free(a)
	}
	r.owned, r.err = nil, nil
}

func (r *rig) space(n int) ced.Addr {
	if r.err != nil {
		return 0
	}
	a, err := r.s.Alloc(max(n, 64))
	if err != nil {
		r.err = err
		return 0
	}
	r.owned = append(r.owned, a)
	return a
}

// repeat fills n bytes with a random piece, over and over.
func (r *rig) repeat(n int, f func(byte) byte) ced.Addr {
	a := r.space(n)
	piece := make([]byte, min(n, pieceBytes))
	for i := range piece {
		piece[i] = f(byte(r.random.Uint32()))
	}
	for at := 0; at < n && r.err == nil; at += len(piece) {
		r.err = r.s.Upload(a+ced.Addr(at), piece[:min(len(piece), n-at)])
	}
	return a
}

// cache makes pages of random rows, with scales as they are found.
func (r *rig) cache() ced.Addr {
	page, a := make([]byte, r.layout.PageBytes), r.space(cachePages*r.layout.PageBytes)
	noise := rand.NewChaCha8([32]byte{1})
	set := func(at, n int, v byte) {
		for i := range n {
			page[at+i] = v
		}
	}
	for p := range cachePages {
		_, _ = noise.Read(page) // never fails
		for _, o := range r.layout.Owners {
			set(o.MainScales, o.PageRows*r.c.HeadDim/16, 0x2A)
			set(o.IndexScales, o.PageRows*r.c.IndexHeadDim/32, 0x7D)
		}
		if r.err == nil {
			r.err = r.s.Upload(a+ced.Addr(p*len(page)), page)
		}
	}
	return a
}

// weights are the next n bytes of the arena.
func (r *rig) weights(n int) ced.Addr {
	n = (n + 63) &^ 63
	if r.cursor+n > r.size {
		r.cursor = 0
	}
	a := r.arena + ced.Addr(r.cursor)
	r.cursor += n
	return a
}

func put[T any](r *rig, v []T) ced.Addr {
	if len(v) == 0 {
		return r.space(0)
	}
	b := bytesOf(v)
	a := r.space(len(b))
	if r.err == nil {
		r.err = r.s.Upload(a, b)
	}
	return a
}

// bytesOf views plain data as bytes.
func bytesOf[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}

// bf16s are n numbers in [-1, 1).
func (r *rig) bf16s(n int) ced.Addr {
	v := make([]uint16, n)
	for i := range v {
		v[i] = uint16(math.Float32bits(2*r.random.Float32()-1) >> 16)
	}
	return put(r, v)
}

// f32s are n numbers from low to high.
func (r *rig) f32s(n int, low, high float32) ced.Addr {
	v := make([]float32, n)
	for i := range v {
		v[i] = low + (high-low)*r.random.Float32()
	}
	return put(r, v)
}

// fp8s are n e4m3 codes of numbers up to 60.
func (r *rig) fp8s(n int) ced.Addr {
	return r.repeat(n, func(v byte) byte { return v & 0xEF })
}

func (r *rig) bytes(n int, v byte) ced.Addr { return r.repeat(n, func(byte) byte { return v }) }

// slots is the number of sequences of n rows.
func slots(n int) int {
	if n <= decodeRows {
		return n
	}
	return 1
}

// rows are n rows whose last is at position last.
func (r *rig) rows(n, last int) ced.Addr {
	zero, pos, slot, first := make([]int32, n), make([]int32, n), make([]int32, n), make([]int32, slots(n))
	for i := range pos {
		if n <= decodeRows {
			pos[i], slot[i], first[i] = int32(last), int32(i), int32(i)
		} else {
			pos[i] = int32(last - n + 1 + i)
		}
	}
	return put(r, []ced.Rows{{
		Count: int32(n), Slots: int32(slots(n)), Token: put(r, zero), Pos: put(r, pos), Slot: put(r, slot), Flags: put(r, zero), SeqFirst: put(r, first),
	}})
}

// groups are n/ratio groups that close in n rows of a chunk; one for a decode row.
func (r *rig) groups(n, ratio int) (addr ced.Addr, count int) {
	var row []int32
	for i := range n {
		if n <= decodeRows || i%ratio == ratio-1 {
			row = append(row, int32(i))
		}
	}
	return put(r, []ced.Groups{{Count: int32(len(row)), Row: put(r, row)}}), len(row)
}

// kv describes the pages of the last owner of a ratio, for sequences of up to tokens each.
func (r *rig) kv(ratio, n, tokens int) (k ced.KV, ok bool) {
	for _, o := range r.layout.Owners {
		if o.Ratio != ratio {
			continue
		}
		pages := tokens/kv.PageTokens + 1
		table := make([]int32, slots(n)*pages)
		for i := range table {
			table[i] = int32(i * 7 % cachePages) // 7 does not divide their number
		}
		k, ok = ced.KV{
			Pages: r.pages, Table: put(r, table), PageBytes: uint64(r.layout.PageBytes), MaxPages: uint32(pages), PageRows: uint32(o.PageRows), Ratio: uint32(ratio),
			HeadDim: uint32(r.c.HeadDim), IndexDim: uint32(r.c.IndexHeadDim), MainCodes: uint32(o.MainCodes), MainScales: uint32(o.MainScales),
			IndexCodes: uint32(o.IndexCodes), IndexScales: uint32(o.IndexScales),
		}, true
	}
	return k, ok
}

// ring makes packed window rows.
func (r *rig) ring(n int) ced.Addr {
	size := r.c.WindowRowBytes()
	b := make([]byte, n*size)
	for i := range b {
		if b[i] = byte(r.random.Uint32()) & 0xBF; i%size >= r.c.HeadDim {
			b[i] = 0x7C
		}
	}
	return put(r, b)
}

func (r *rig) freqs() ced.Addr { return put(r, r.c.RopeFreqs(true)) }
