//go:build sim || cuda

package model

import (
	"bytes"
	"math"
	"slices"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
)

// firstFFN keeps what the experts of the first layer make of the first step.
type firstFFN struct {
	s   *ced.Stream
	out []uint16
}

func (p *firstFFN) Sub(name string, t Tensor) error {
	if name != "L0.ffn_out" || p.out != nil {
		return nil
	}
	p.out = make([]uint16, t.Rows*t.Width)
	return p.s.Download(bytesOf(p.out), t.Addr)
}

func (p *firstFFN) KV(int) error { return nil }

func widen(b uint16) float64 { return float64(math.Float32frombits(uint32(b) << 16)) }

// Experts of the CPU have the bits of their division, whatever the batch, the chunk, the threads and the time of opening;
// they are near those of the device.
func TestExpertsOfTheCPUHaveTheBitsOfTheirDivision(t *testing.T) {
	needDevice(t)
	prompt, text := []int32{3, 5, 7, 11, 13, 17, 19, 23}, ids(3)
	one := 0
	open := func(bytes, threads int, slots int) *Model {
		m := openModelOn(t, ced.CUDA, "../../testdata/mini/calm", checkpoint.Options{}, Options{
			Slots: slots, Context: 64, StepRows: 17, ExpertBytes: bytes, HostExperts: true, HostThreads: threads, Graphs: true,
		})
		one = slotBytes(m)
		return m
	}
	device := open(0, 1, 1)
	want := decode(t, device, prompt, text)
	layers, each := device.cfg.Layers, device.cfg.Experts
	probe := &firstFFN{s: device.s}
	q := sequence(t, device, Exact, 8, 8)
	feed(t, device, probe, Span{q, prompt, 7})
	near := probe.out

	if m := open(one*layers*each, 1, 1); m.byHost != nil || !slices.EqualFunc(decode(t, m, prompt, text), want, bytes.Equal) {
		t.Error("with room for all experts: not the device's mode, or other bits")
	}
	for name, room := range map[string]int{"none": 1, "half": one * layers * each / 2, "all but one": one * (layers*each - 1)} {
		t.Run(name, func(t *testing.T) {
			m := open(room, 1, 1)
			bits := decode(t, m, prompt, text)
			u := m.Use()
			if u.Slots == nil || !u.Slots.ByHost || u.Slots.Slots != room/one || u.Graphs != (GraphUse{}) {
				t.Fatalf("%+v, graphs %+v", u.Slots, u.Graphs)
			}
			var hit, missed uint64
			for _, l := range u.Experts {
				hit, missed = hit+l.Hit, missed+l.Missed
			}
			if hit+missed == 0 || (name == "none") != (hit == 0) || name != "all but one" && missed == 0 {
				t.Errorf("%d experts of the device, %d of the CPU", hit, missed)
			}

			probe := &firstFFN{s: m.s}
			q := sequence(t, m, Exact, 8, 8)
			feed(t, m, probe, Span{q, prompt, 7})
			far, square := 0, 0.0
			for i, b := range near {
				square += widen(b) * widen(b)
				if b != probe.out[i] {
					far++
				}
			}
			rms := math.Sqrt(square / float64(len(near)))
			for i, b := range near {
				if d := math.Abs(widen(b) - widen(probe.out[i])); d > 0.05*rms {
					t.Fatalf("output %d of the first layer's experts: %g, the device has %g, rms %g", i, widen(probe.out[i]), widen(b), rms)
				}
			}
			t.Logf("%d of %d outputs are not the device's", far, len(near))
			release(t, m, q)

			// Another model of two threads, the prompt in chunks, beside another text.
			again := open(room, 2, 2)
			a, b := sequence(t, again, Exact, 8, 11), sequence(t, again, Exact, 9, 9)
			last := func(at ced.Addr) []byte {
				row := make([]byte, 4*again.cfg.VocabSize)
				if err := again.s.Download(row, at); err != nil {
					t.Fatal(err)
				}
				return row
			}
			feed(t, again, nil, Span{a, prompt[:3], 3}, Span{b, ids(9)[:4], 9})
			got := [][]byte{last(feed(t, again, nil, Span{a, prompt[3:], 7}, Span{b, ids(9)[4:], 9}))}
			for i := range text {
				got = append(got, last(feed(t, again, nil, Span{a, text[i : i+1], a.Pos()})))
			}
			if !slices.EqualFunc(got, bits, bytes.Equal) {
				t.Error("in other chunks, beside another text, on two threads: other bits")
			}
		})
	}
}
