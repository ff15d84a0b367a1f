package model

import (
	"slices"
	"unsafe"

	ced "cedrun/cuda"
	"cedrun/runtime/plan"
)

// Span is a run of consecutive tokens of one sequence in a step, starting at the sequence's position.
type Span struct {
	Seq    *Sequence
	Tokens []int32
	// Logits is the first absolute position of the span whose logits are wanted; >= the span's end for none.
	Logits int
}

// rowCount is what a kernel is told of its rows: where their number and geometry are in stream memory, which is data, and
// how many there are at most, which sizes its grid.
type rowCount struct {
	addr ced.Addr
	max  uint32
}

// rowSet is a subset of a step's rows: of every span the rows from an offset on. Its address is that of its ced_rows,
// index the rows' places in the set it was compacted from.
type rowSet struct {
	rowCount
	offs  []int // per span: first row that is in the set
	count int
	index ced.Addr
}

// step is the geometry of one Forward: its spans and the row sets that its layers use. Its memory is used again by the
// next step.
type step struct {
	spans  []Span
	first  []int    // per span: first position
	sets   []rowSet // as many as a step can need
	used   int      // of sets
	packed packed
}

// begin starts the geometry of a step of spans.
func (s *step) begin(spans []Span) {
	s.spans, s.first, s.used = spans, s.first[:0], 0
	for _, sp := range spans {
		s.first = append(s.first, sp.Seq.Pos())
	}
}

// all makes the set of all rows.
func (s *step) all(m *Model) (*rowSet, error) {
	r := s.next()
	for range s.spans {
		r.offs = append(r.offs, 0)
	}
	return r, s.add(m, nil, r)
}

// set finds or makes the set of rows at or after a threshold position per span; from is the set that its rows are
// compacted from.
func (s *step) set(m *Model, from *rowSet, threshold func(*Span) int) (*rowSet, error) {
	r, same := s.next(), true
	for i := range s.spans {
		sp := &s.spans[i]
		off := max(min(max(threshold(sp)-s.first[i], 0), len(sp.Tokens)), from.offs[i])
		same = same && off == from.offs[i]
		r.offs = append(r.offs, off)
	}
	if same {
		return from, nil
	}
	return r, s.add(m, from, r)
}

// next is an empty set, which is only taken when it is added.
func (s *step) next() *rowSet {
	r := &s.sets[s.used]
	*r = rowSet{offs: r.offs[:0]}
	return r
}

// add uploads the rows of a set that has its offsets.
func (s *step) add(m *Model, from, r *rowSet) error {
	buf := m.rowBuffer(s.used)
	s.used++
	for i := range s.spans {
		r.count += len(s.spans[i].Tokens) - r.offs[i]
	}
	head := ced.Rows{Count: int32(r.count), Slots: int32(m.opt.Slots)}
	b := s.packed.begin(buf, int(unsafe.Sizeof(head)))
	var token, pos, slot, flags, embed, index, seqFirst []int32
	for _, f := range []struct {
		addr *ced.Addr
		v    *[]int32
		n    int
	}{
		{&head.Token, &token, r.count}, {&head.Pos, &pos, r.count}, {&head.Slot, &slot, r.count}, {&head.Flags, &flags, r.count},
		{&head.EmbedRow, &embed, r.count}, {&head.SeqFirst, &seqFirst, m.opt.Slots}, {&r.index, &index, r.count},
	} {
		*f.addr, *f.v = b.array(f.n)
	}
	for i := range seqFirst {
		seqFirst[i] = -1
	}
	n, at := 0, 0 // row; row of the span's first token in the set that the rows come from
	for i := range s.spans {
		sp := &s.spans[i]
		if r.offs[i] < len(sp.Tokens) {
			seqFirst[sp.Seq.slot] = int32(n)
		}
		skip := 0
		if from != nil {
			skip = from.offs[i]
		}
		for j := r.offs[i]; j < len(sp.Tokens); j++ {
			token[n], pos[n], slot[n], flags[n], embed[n] = sp.Tokens[j], int32(s.first[i]+j), int32(sp.Seq.slot), 0, -1
			index[n] = int32(at + j - skip)
			n++
		}
		at += len(sp.Tokens) - skip
	}
	*(*ced.Rows)(b.head()) = head
	r.addr, r.max = buf, plan.Bucket(r.count, m.opt.StepRows)
	return b.upload(m.s)
}

// decodes reports whether the step is one more token for every sequence: then all layers take all rows, and all are wanted.
func (s *step) decodes() bool {
	for i := range s.spans {
		sp := &s.spans[i]
		if len(sp.Tokens) != 1 || s.first[i] < sp.Seq.steady || sp.Logits > s.first[i] {
			return false
		}
	}
	return len(s.spans) > 0
}

// closing lists the rows of in that close a group of layer l, a KV source.
func (p *pass) closing(l, ratio int) (n int, groups rowCount, err error) {
	groups.addr = p.ws.groups + ced.Addr(slices.Index(p.cfg.KVSources, l)*p.ws.groupBytes)
	if p.uploaded {
		groups.max = p.in.max
		return 0, groups, nil
	}
	n, err = p.groups(p.Model, p.in, ratio, groups.addr)
	groups.max = plan.Bucket(n, p.opt.StepRows)
	return n, groups, err
}

// wanted lists the rows of in whose logits are wanted.
func (p *pass) wanted() (n int, rows rowCount, index ced.Addr, err error) {
	rows.addr = p.ws.outputs
	if p.uploaded {
		rows.max = min(p.in.max, uint32(p.opt.Outputs))
		return p.in.count, rows, p.ws.outputs + outputsHead, nil
	}
	n, index, err = p.outputs(p.Model, p.in, p.ws.outputs)
	rows.max = plan.Bucket(n, p.opt.Outputs)
	return n, rows, index, err
}

// groups lists the rows of set r that close a group of ratio tokens, but not those of groups a sequence froze.
func (s *step) groups(m *Model, r *rowSet, ratio int, buf ced.Addr) (n int, err error) {
	b := s.packed.begin(buf, int(unsafe.Sizeof(ced.Groups{})))
	addr, rows := b.array(r.count)
	at := 0
	for i := range s.spans {
		sp := &s.spans[i]
		for j := r.offs[i]; j < len(sp.Tokens); j++ {
			if p := s.first[i] + j; p >= sp.Seq.frozen && (p+1)%ratio == 0 {
				rows[n] = int32(at)
				n++
			}
			at++
		}
	}
	*(*ced.Groups)(b.head()) = ced.Groups{Count: int32(n), Row: addr}
	return n, b.upload(m.s)
}

// outputsHead is the count before a list of outputs, padded.
const outputsHead = 16

// outputs lists the rows of set r whose logits are wanted, as a count followed by row numbers.
func (s *step) outputs(m *Model, r *rowSet, buf ced.Addr) (n int, index ced.Addr, err error) {
	b := s.packed.begin(buf, outputsHead)
	index, rows := b.array(r.count)
	at := 0
	for i := range s.spans {
		sp := &s.spans[i]
		for j := r.offs[i]; j < len(sp.Tokens); j++ {
			if s.first[i]+j >= sp.Logits {
				rows[n] = int32(at)
				n++
			}
			at++
		}
	}
	*(*int32)(b.head()) = int32(n)
	return n, index, b.upload(m.s)
}

// packed gathers a struct and the int32 arrays behind it, 16-byte aligned, for one upload.
type packed struct {
	base ced.Addr
	b    []byte
}

// newPacked makes one for at most n bytes.
func newPacked(n int) packed {
	words := make([]uint64, (n+7)/8) // whose address is a multiple of 8
	return packed{b: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))[:0]}
}

// begin starts over for an upload to base, leaving room for a struct of n bytes.
func (p *packed) begin(base ced.Addr, n int) *packed {
	p.base, p.b = base, p.b[:n]
	return p
}

// array adds n integers, to be filled in.
func (p *packed) array(n int) (ced.Addr, []int32) {
	at := (len(p.b) + 15) &^ 15
	p.b = p.b[:at+4*n]
	return p.base + ced.Addr(at), unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(p.b[at:at+4*n]))), n)
}

func (p *packed) head() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p.b)) }

func (p *packed) upload(s *ced.Stream) error { return s.Upload(p.base, p.b) }

// bytesOf views plain data as bytes.
func bytesOf[T any](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}
