package engine

import (
	"errors"
	"fmt"

	ced "cedrun/cuda"
)

// Errors of the device that a request's Result.Err can be (errors.Is).
var (
	// ErrNoMemory: a step was refused for lack of memory. Its requests failed; the engine goes on.
	ErrNoMemory = errors.New("the device has no memory left for this step")
	// ErrDevice: the device failed for good. All requests failed, and the engine has ended.
	ErrDevice = errors.New("the device failed and takes no more work")
)

// judge says what an error of a step means. After a fault that CUDA calls sticky every call fails, waiting included, until
// the process ends.
func (e *Engine) judge(err error) error {
	var f *ced.Error
	switch {
	case e.fault != nil:
		return e.fault // whatever else fails then fails of that
	case !errors.As(err, &f):
	case f.Code == ced.ENOMEM:
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
