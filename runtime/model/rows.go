package model

import (
	"encoding/binary"
	"unsafe"

	ced "cedrun/cuda"
)

// Span is a run of consecutive tokens of one sequence in a step, starting at the sequence's position.
type Span struct {
	Seq    *Sequence
	Tokens []int32
	// Logits is the first absolute position of the span whose logits are wanted; >= the span's end for none.
	Logits int
}

// rowSet is a subset of a step's rows: of every span the rows from an offset on. addr is its ced_rows in stream
// memory, index the rows' places in the set it was compacted from.
type rowSet struct {
	offs  []int // per span: first row that is in the set
	count int
	addr  ced.Addr
	index ced.Addr
}

// step is the geometry of one Forward: its spans and the row sets that its layers use.
type step struct {
	spans []Span
	sets  []*rowSet
	first []int // per span: first position
}

func (s *step) rows(offs []int) int {
	n := 0
	for i, sp := range s.spans {
		n += len(sp.Tokens) - offs[i]
	}
	return n
}

// set finds or makes the set of rows at or after a threshold position per sequence; from is the set that its rows are
// compacted from.
func (s *step) set(m *Model, from *rowSet, threshold func(*Sequence) int) (*rowSet, error) {
	offs := make([]int, len(s.spans))
	same := from != nil
	for i, sp := range s.spans {
		offs[i] = min(max(threshold(sp.Seq)-s.first[i], 0), len(sp.Tokens))
		if from != nil {
			offs[i] = max(offs[i], from.offs[i])
			same = same && offs[i] == from.offs[i]
		}
	}
	if same {
		return from, nil
	}
	return s.add(m, from, offs)
}

func (s *step) add(m *Model, from *rowSet, offs []int) (*rowSet, error) {
	r := &rowSet{offs: offs, count: s.rows(offs)}
	buf := m.rowBuffer(len(s.sets))
	s.sets = append(s.sets, r)
	var token, pos, slot, flags, embed, index []int32
	seqFirst := make([]int32, m.opt.Slots)
	for i := range seqFirst {
		seqFirst[i] = -1
	}
	at := 0 // row of the span's first token in the set that the rows come from
	for i, sp := range s.spans {
		if offs[i] < len(sp.Tokens) {
			seqFirst[sp.Seq.slot] = int32(len(token))
		}
		skip := 0
		if from != nil {
			skip = from.offs[i]
		}
		for j := offs[i]; j < len(sp.Tokens); j++ {
			token = append(token, sp.Tokens[j])
			pos = append(pos, int32(s.first[i]+j))
			slot = append(slot, int32(sp.Seq.slot))
			flags = append(flags, 0)
			embed = append(embed, -1)
			index = append(index, int32(at+j-skip))
		}
		at += len(sp.Tokens) - skip
	}
	head := ced.Rows{Count: int32(r.count), Slots: int32(m.opt.Slots)}
	body := packed{base: buf, at: int(unsafe.Sizeof(head))}
	for _, f := range []struct {
		dst *ced.Addr
		v   []int32
	}{{&head.Token, token}, {&head.Pos, pos}, {&head.Slot, slot}, {&head.Flags, flags}, {&head.EmbedRow, embed}, {&head.SeqFirst, seqFirst}, {&r.index, index}} {
		*f.dst = body.put(f.v)
	}
	r.addr = buf
	return r, m.s.Upload(buf, append(bytesOf([]ced.Rows{head}), body.b...))
}

// groups lists the rows of set r that close a group of ratio tokens, but not those of groups a sequence froze.
func (s *step) groups(m *Model, r *rowSet, ratio int, buf ced.Addr) (int, error) {
	var rows []int32
	at := 0
	for i, sp := range s.spans {
		for j := r.offs[i]; j < len(sp.Tokens); j++ {
			if p := s.first[i] + j; p >= sp.Seq.frozen && (p+1)%ratio == 0 {
				rows = append(rows, int32(at))
			}
			at++
		}
	}
	head := ced.Groups{Count: int32(len(rows))}
	body := packed{base: buf, at: int(unsafe.Sizeof(head))}
	head.Row = body.put(rows)
	return len(rows), m.s.Upload(buf, append(bytesOf([]ced.Groups{head}), body.b...))
}

// outputs lists the rows of set r whose logits are wanted, as a count followed by row numbers.
func (s *step) outputs(m *Model, r *rowSet, buf ced.Addr) (n int, index ced.Addr, err error) {
	var rows []int32
	at := 0
	for i, sp := range s.spans {
		for j := r.offs[i]; j < len(sp.Tokens); j++ {
			if s.first[i]+j >= sp.Logits {
				rows = append(rows, int32(at))
			}
			at++
		}
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(rows)))
	b = append(b, make([]byte, 12)...)
	return len(rows), buf + 16, m.s.Upload(buf, append(b, bytesOf(rows)...))
}

// packed lays int32 arrays behind a struct at base, 16-byte aligned.
type packed struct {
	base ced.Addr
	at   int
	b    []byte
}

func (p *packed) put(v []int32) ced.Addr {
	for p.at%16 != 0 {
		p.b = append(p.b, 0)
		p.at++
	}
	a := p.base + ced.Addr(p.at)
	p.b = append(p.b, bytesOf(v)...)
	p.at += 4 * len(v)
	return a
}

// bytesOf views plain data as bytes.
func bytesOf[T any](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}
