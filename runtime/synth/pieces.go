package synth

import (
	"context"
	"strings"
	"sync"

	"cedrun/runtime/checkpoint"
)

// pieceBytes is about how much a thread makes at a time.
const pieceBytes = 256 << 10

// piece is a run of rows of a weight, with their scales if it has any, or a run of elements of a plain tensor.
type piece struct {
	tensor, scale *checkpoint.Spec
	at, scaleAt   int64 // offsets in the file
	from, n       int64
	height        int64 // rows that share a scale
}

// pieces makes all of a shard and hands each part to put with its offset, from several goroutines. It ends with the
// first error.
func (w *writer) pieces(ctx context.Context, f *checkpoint.File, put func(b []byte, at int64) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan piece)
	var wg sync.WaitGroup
	for range w.Threads {
		wg.Go(func() {
			var weights, scales []byte
			for p := range queue {
				weights, scales = w.maker.make(&p, weights[:0], scales[:0])
				err := put(weights, p.at)
				if err == nil && len(scales) > 0 {
					err = put(scales, p.scaleAt)
				}
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	if err := put(f.Header, 0); err != nil {
		cancel(err)
	}
	cut(f, func(p piece) bool {
		select {
		case queue <- p:
			return true
		case <-ctx.Done():
			return false
		}
	})
	close(queue)
	wg.Wait()
	return context.Cause(ctx)
}

// cut yields the pieces of a shard until yield returns false.
func cut(f *checkpoint.File, yield func(piece) bool) {
	offsets, scales := map[string]int64{}, map[string]*checkpoint.Spec{}
	at := int64(len(f.Header))
	for i := range f.Tensors {
		t := &f.Tensors[i]
		offsets[t.Name] = at
		at += t.Size()
		if stem, ok := strings.CutSuffix(t.Name, ".scale"); ok {
			scales[stem] = t
		}
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		var p piece
		var rows, bytes int64 // a row is what scales are counted by
		switch t.Stored {
		case checkpoint.F8E8M0:
			continue // made with its weight
		case checkpoint.F8E4M3, checkpoint.I8:
			rows, bytes = t.Shape[0], t.Shape[1]
			p.scale = scales[strings.TrimSuffix(t.Name, ".weight")]
			p.height = 1
			if p.scale.Shape[0] < rows {
				p.height = block
			}
		default:
			rows, bytes = t.Size()/t.Stored.Size(), t.Stored.Size()
		}
		step := max(pieceBytes/bytes/block*block, block)
		for from := int64(0); from < rows; from += step {
			p.tensor, p.from, p.n = t, from, min(step, rows-from)
			p.at = offsets[t.Name] + from*bytes
			if p.scale != nil {
				p.scaleAt = offsets[p.scale.Name] + from/p.height*p.scale.Shape[1]
			}
			if !yield(p) {
				return
			}
		}
	}
}

// make makes a piece.
func (m *maker) make(p *piece, weights, scales []byte) ([]byte, []byte) {
	switch p.tensor.Stored {
	case checkpoint.F8E4M3:
		return m.blocked(p.tensor, p.height, p.from, p.n, weights, scales)
	case checkpoint.I8:
		return m.packed(p.tensor, p.from, p.n, weights, scales)
	}
	return m.plain(p.tensor, p.from, p.n, weights), scales
}
