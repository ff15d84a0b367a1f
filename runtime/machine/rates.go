package machine

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	ced "cedrun/cuda"
	"cedrun/runtime/plan"
)

// Rates are what the threads of a stream, or the device, can do together: the limits of this machine.
type Rates struct {
	Read float64 // bytes read from memory per second
	BF16 float64 // multiplications and additions per second on BF16 operands; those of F32 where they have no instruction
	F32  float64
}

// Multiply is the fastest way to multiply what is exact in BF16.
func (r Rates) Multiply() float64 { return max(r.BF16, r.F32) }

const (
	probeBytes = 1 << 30 // many times any cache that one program may have for itself; a quarter of a smaller memory
	probeCalls = 128     // of a multiplying loop, in all; some 50 ms on one core
)

// Prober measures Rates again and again: between the runs that are compared with them.
type Prober struct {
	s      *ced.Stream
	at     ced.Addr // of what is read
	size   int
	data   []byte // the same, on a host stream
	watch  *watch // of a device
	all    []Rates
	probed time.Time
}

// NewProber takes 1 GiB of memory or a quarter of what is free, in huge pages where the system gives them; of a device's
// memory as much, or less if it is short.
//
// The memory is written once, which takes seconds on a machine that is busy, until ctx ends.
func NewProber(ctx context.Context, s *ced.Stream) (*Prober, error) {
	return NewProberOf(ctx, s, probeBytes)
}

// NewProberOf takes size bytes at most; a few hundred MiB serve a process that has other things to do.
func NewProberOf(ctx context.Context, s *ced.Stream, size int) (*Prober, error) {
	if !s.Host() {
		return newDeviceProber(s, size)
	}
	if have := plan.Available(os.DirFS("/")); have > 0 {
		size = int(min(int64(size), have/4))
	}
	data, err := allocate(size)
	if err != nil {
		return nil, fmt.Errorf("measure memory: no buffer of %s can be had (%w): free memory, or lift the limit on address space (ulimit -v)", plan.GB(leastProbe), err)
	}
	_ = unix.Madvise(data, unix.MADV_HUGEPAGE) // slower without
	p := &Prober{s: s, at: ced.HostAddr(data), size: len(data), data: data}
	if err := p.write(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// write gives the memory pages of its own: those that were never written are one page of zeros.
func (p *Prober) write(ctx context.Context) error {
	const piece = 16 << 20
	for at := 0; at < p.size; at += piece {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.s.Fill(p.at+ced.Addr(at), 1, min(piece, p.size-at)); err != nil {
			return err
		}
	}
	return nil
}

// leastProbe is a buffer that no cache of a few threads holds.
const leastProbe = 64 << 20

// allocate maps size bytes, or a quarter as often as address space is too short for them.
func allocate(size int) ([]byte, error) {
	for {
		data, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err == nil || size/4 < leastProbe {
			return data, err
		}
		size /= 4
	}
}

// Bytes is the memory of the host's that a Prober holds.
func (p *Prober) Bytes() int64 { return int64(len(p.data)) }

// Close frees the memory.
func (p *Prober) Close() {
	if p.watch != nil {
		p.watch.close()
		p.s.Free(p.at)
		return
	}
	_ = unix.Munmap(p.data)
	p.data = nil
}

// often is how long a measurement counts: about 0.2 s are spent on one.
const often = 500 * time.Millisecond

// Probe measures, if the last time is a while ago: to be called before each run of what is compared with the rates.
func (p *Prober) Probe() error {
	if time.Since(p.probed) < often {
		return nil
	}
	r, err := p.measure()
	p.all, p.probed = append(p.all, r), time.Now()
	return err
}

// Rates are the medians of what Probe measured.
func (p *Prober) Rates() Rates {
	middle := func(of func(Rates) float64) float64 {
		var v []float64
		for _, r := range p.all {
			v = append(v, of(r))
		}
		if slices.Sort(v); len(v) > 0 {
			return v[(len(v)-1)/2]
		}
		return 0
	}
	return Rates{
		Read: middle(func(r Rates) float64 { return r.Read }), BF16: middle(func(r Rates) float64 { return r.BF16 }),
		F32: middle(func(r Rates) float64 { return r.F32 }),
	}
}

// Spread is how far apart the measurements of a rate are, of the rate where it is most: largest over smallest, less 1.
func (p *Prober) Spread() (most float64) {
	for _, of := range []func(Rates) float64{
		func(r Rates) float64 { return r.Read }, func(r Rates) float64 { return r.BF16 }, func(r Rates) float64 { return r.F32 },
	} {
		low, high := math.Inf(1), 0.
		for _, r := range p.all {
			low, high = min(low, of(r)), max(high, of(r))
		}
		if low > 0 && high > 0 {
			most = max(most, high/low-1)
		}
	}
	return most
}

func (p *Prober) measure() (r Rates, err error) {
	took, err := p.time(func() error { return p.s.ProbeRead(p.at, p.size) })
	if err != nil {
		return r, err
	}
	r.Read = float64(p.size) / took.Seconds()
	calls := probeCalls
	if p.watch != nil {
		calls = deviceCalls
	}
	for _, x := range []struct {
		rate *float64
		bf16 bool
	}{{&r.BF16, true}, {&r.F32, false}} {
		flops := 0.
		took, err := p.time(func() (err error) {
			flops, err = p.s.ProbeMultiply(x.bf16, calls)
			return err
		})
		if err != nil {
			return r, err
		}
		*x.rate = flops / took.Seconds()
	}
	return r, nil
}

// time is how long what f calls takes: on a host stream, the calls.
func (p *Prober) time(f func() error) (time.Duration, error) {
	if p.watch != nil {
		return p.watch.time(p.s, f)
	}
	began := time.Now()
	err := f()
	return time.Since(began), err
}
