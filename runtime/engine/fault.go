package engine

import (
	"errors"
	"fmt"
	"slices"

	ced "cedrun/cuda"
)

// Errors of the device that a request's Result.Err can be (errors.Is).
var (
	// ErrNoMemory: a step was refused for lack of memory. One of its requests failed; the engine goes on.
	ErrNoMemory = errors.New("the device has no memory left for this step")
	// ErrDevice: the device failed for good. All requests failed, and the engine has ended.
	ErrDevice = errors.New("the device failed and takes no more work")
)

// run computes a batch. If memory is short, the request that brings most rows fails, of equal ones the one that got its
// place last, and the others run again, until they fit or only one is left. So prompts that are read give way before
// texts that somebody reads already.
func (e *Engine) run(b *batch) (logits ced.Addr, n int, err error) {
	for len(b.spans) > 0 {
		most := b.most()
		if err := errors.Join(e.model.Keep(b.spans[:most]), e.model.Keep(b.spans[most+1:])); err != nil {
			return 0, 0, err
		}
		if logits, n, err = e.forward(b.spans); len(b.spans) == 1 || !lacksMemory(err) {
			break
		}
		q := b.owners[most]
		b.drop(most)
		e.end(q, FinishError, fmt.Errorf("step: %w", err))
		if err := e.model.Undo(b.spans); err != nil {
			return 0, 0, err
		}
	}
	return logits, n, err
}

func lacksMemory(err error) bool {
	var f *ced.Error
	return errors.As(err, &f) && f.Code == ced.ENOMEM
}

// most is the span of most rows, of equal ones that of the request that got its place last.
func (b *batch) most() int {
	most := 0
	for i, q := range b.owners {
		n, of := len(b.spans[i].Tokens), len(b.spans[most].Tokens)
		if n > of || n == of && q.placed > b.owners[most].placed {
			most = i
		}
	}
	return most
}

// drop takes a span out.
func (b *batch) drop(i int) {
	if q := b.owners[i]; q.left() > 0 {
		b.prefill -= len(b.spans[i].Tokens)
	} else {
		b.decode--
		b.depth -= q.seq.Pos()
	}
	b.outputs -= b.rows[i]
	b.spans, b.owners, b.rows = slices.Delete(b.spans, i, i+1), slices.Delete(b.owners, i, i+1), slices.Delete(b.rows, i, i+1)
}

// judge says what an error of a step means. After a fault that CUDA calls sticky every call fails, waiting included, until
// the process ends.
func (e *Engine) judge(err error) error {
	var f *ced.Error
	switch {
	case e.fault != nil:
		return e.fault // whatever else fails then fails of that
	case !errors.As(err, &f):
	case lacksMemory(err):
		return fmt.Errorf("%w: %w", ErrNoMemory, err)
	case f.Code == ced.EDEVICE && e.s.Sync() != nil:
		e.fault = fmt.Errorf("%w: %w", ErrDevice, err)
		return e.fault
	}
	return err
}

// fail ends every request after a fault. Pages that wait to be written to disk are lost with the device; what is there
// stays.
func (e *Engine) fail() {
	for _, q := range append(e.running, e.waiting...) {
		e.end(q, FinishError, e.fault)
	}
	e.running, e.waiting, e.spill = nil, nil, nil
	e.settle()
	e.reads.Wait()
}

// Done is closed when the engine has ended: after Close, or because Err says why.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err is the fault that ended the engine, an ErrDevice; nil while it runs, and after Close.
func (e *Engine) Err() error {
	select {
	case <-e.done:
		return e.fault
	default:
		return nil
	}
}
