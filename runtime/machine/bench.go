package machine

import (
	"math"
	"unsafe"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/kv"
	"cedrun/runtime/plan"
	"cedrun/runtime/sample"
)

const (
	arenaMost = 256 << 20
	noiseSize = 1 << 20
	// pattern is a sane value in every format: FP8 0.69, FP4 1.5 and 1.5, BF16 and F32 4e-8.
	pattern = 0x33
	scaleOf = 0x7B // UE8M0 2^-4
	// realPages hold the keys; longer sequences see them again and again.
	realPages = 64
)

// bench holds synthetic weights, activations and a KV cache.
type bench struct {
	s      *ced.Stream
	c      *config.Config
	owned  []ced.Addr
	limits limits

	arena     ced.Addr // weights of any format; calls take them from here in turn
	arenaSize int
	cursor    int
	scales    ced.Addr // of weights and activations
	in, out   ced.Addr // activations
	zeros     ced.Addr // window starts, expert numbers
	rows      map[int]ced.Addr
	layout    kv.Layout
	pages     ced.Addr
}

// limits bound a single call: weights read, multiplications, rows.
type limits struct{ weights, work, rows int }

func limitsOf(k ced.Kind) limits {
	if k == ced.Ref {
		return limits{1 << 20, 2 << 20, 8}
	}
	return limits{48 << 20, 256 << 20, 32}
}

func (b *bench) close() {
	for _, a := range b.owned {
		b.s.Free(a)
	}
}

// filled allocates n bytes of value v.
func (b *bench) filled(n int, v byte) (ced.Addr, error) {
	a, err := b.s.Alloc(n + 64)
	if err != nil {
		return 0, err
	}
	b.owned = append(b.owned, a)
	return a, b.s.Fill(a, v, n+64)
}

// upload allocates a copy of v.
func upload[T any](b *bench, v []T) (ced.Addr, error) {
	n := len(v) * int(unsafe.Sizeof(v[0]))
	a, err := b.s.Alloc(n)
	if err != nil {
		return 0, err
	}
	b.owned = append(b.owned, a)
	return a, b.s.Upload(a, unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), n))
}

// allocate makes buffers for the largest of the shapes, and an arena for the weights that a step streams.
func (b *bench) allocate(shapes []*span, streamed float64) error {
	c := b.c
	b.limits, b.rows = limitsOf(b.s.Kind()), map[int]ced.Addr{}
	least, perRow := 1<<16, 0
	for _, x := range shapes {
		in, out := x.K*max(x.Groups, 1), x.N*max(x.Groups, 1)
		switch x.Kernel {
		case plan.Product:
			least = max(least, 2*32*x.K*x.Groups*bytes32[x.Weights]/32)
		case plan.Experts, plan.Shared:
			least = max(least, 3*x.N*x.K)
		case plan.Mix, plan.Border:
			least = max(least, (2+x.N)*x.N*x.N*x.K*4)
		case plan.Sample:
			out = 0
		}
		switch x.Kernel {
		case plan.Index, plan.Attend, plan.Rotate, plan.Mix, plan.Collapse, plan.Expand, plan.Border:
			in = x.N * x.K
		}
		perRow = max(perRow, in, min(out, b.limits.weights))
	}
	b.arenaSize = max(int(min(streamed, arenaMost)), least)
	r := max(b.limits.rows, 1) + 1
	ratios := make([]int, len(c.KVSources))
	for i, l := range c.KVSources {
		ratios[i] = c.CompressRatios[l]
	}
	b.layout = kv.NewLayout(c.HeadDim, c.IndexHeadDim, c.KVSources, ratios)
	var err error
	for _, a := range []struct {
		dst   *ced.Addr
		n     int
		value byte
	}{
		{&b.scales, max(b.arenaSize/16, r*perRow/16), scaleOf},
		{&b.out, 4 * r * perRow, 0}, {&b.zeros, 4 * r * max(c.ExpertsPerToken, 1), 0},
	} {
		if *a.dst, err = b.filled(a.n, a.value); err != nil {
			return err
		}
	}
	if b.arena, err = b.varied(b.arenaSize); err != nil {
		return err
	}
	if b.in, err = b.varied(2 * r * perRow); err != nil {
		return err
	}
	return b.keys()
}

// varied allocates n bytes of numbers that are sane in every format, of both signs: branches of scalar kernels go both
// ways. Every byte is pattern with another sign and another low half.
func (b *bench) varied(n int) (ced.Addr, error) {
	a, err := b.s.Alloc(n + noiseSize)
	if err != nil {
		return 0, err
	}
	b.owned = append(b.owned, a)
	piece := make([]byte, min(n+64, noiseSize))
	noise(piece, 1)
	for i, v := range piece {
		piece[i] = v&0x8F | pattern&0x70
	}
	for at := 0; at < n+64; at += len(piece) {
		if err := b.s.Upload(a+ced.Addr(at), piece); err != nil {
			return 0, err
		}
	}
	return a, nil
}

// keys fills pages with different codes, so that selection has something to select.
func (b *bench) keys() error {
	if len(b.layout.Owners) == 0 {
		return nil
	}
	data := make([]byte, realPages*b.layout.PageBytes)
	for p := range realPages {
		page := data[p*b.layout.PageBytes:]
		for _, o := range b.layout.Owners {
			noise(page[o.MainCodes:o.MainCodes+o.PageRows*b.c.HeadDim/2], p)
			noise(page[o.IndexCodes:o.IndexCodes+o.PageRows*b.c.IndexHeadDim/2], p)
			flat(page[o.MainScales:o.MainScales+o.PageRows*b.c.HeadDim/16], pattern)
			flat(page[o.IndexScales:o.IndexScales+o.PageRows*b.c.IndexHeadDim/32], scaleOf)
		}
	}
	var err error
	b.pages, err = upload(b, data)
	return err
}

func flat(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// noise fills b with bytes of a multiplicative generator.
func noise(b []byte, seed int) {
	x := uint64(seed)*0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
}

// weights is the next piece of n bytes of the arena.
func (b *bench) weights(n int) ced.Addr {
	n = (n + 63) &^ 63
	if b.cursor+n > b.arenaSize {
		b.cursor = 0
	}
	a := b.arena + ced.Addr(b.cursor)
	b.cursor += n
	return a
}

// rowSet is a step of n rows of one sequence that ends at a position.
func (b *bench) rowSet(n, last int) (ced.Addr, error) {
	zero := make([]int32, n)
	pos := make([]int32, n)
	for i := range pos {
		pos[i] = int32(last - n + 1 + i)
	}
	r := ced.Rows{Count: int32(n), Slots: 1}
	var err error
	for _, f := range []struct {
		dst *ced.Addr
		v   []int32
	}{{&r.Token, zero}, {&r.Pos, pos}, {&r.Slot, zero}, {&r.Flags, zero}, {&r.SeqFirst, []int32{0}}} {
		if *f.dst, err = upload(b, f.v); err != nil {
			return 0, err
		}
	}
	return upload(b, []ced.Rows{r})
}

// plainRows is a row set for kernels that do not look at positions.
func (b *bench) plainRows(n int) (ced.Addr, error) {
	if a, ok := b.rows[n]; ok {
		return a, nil
	}
	a, err := b.rowSet(n, max(n, 1024))
	b.rows[n] = a
	return a, err
}

// sampling is the choice of a token from logits that fall off as a trained model's do: by a power of the rank, so that a
// few tokens hold most of the probability.
func sampling(vocab int) (func() error, error) {
	s, err := sample.New(sample.Params{Temperature: 0.8, TopP: 0.95})
	if err != nil {
		return nil, err
	}
	logits := make([]float32, vocab)
	for i := range logits {
		rank := i * 7919 % vocab
		logits[i] = -1.5 * float32(math.Log1p(float64(rank)))
	}
	return func() error {
		_, err := s.Next(logits, nil, 0, 1)
		return err
	}, nil
}
