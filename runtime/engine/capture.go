package engine

import (
	"errors"
	"fmt"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/kv"
	"cedrun/runtime/model"
)

// Captured is what capturing decode steps at the start took.
type Captured struct {
	Steps int   // batch sizes
	Bytes int64 // of device memory, as its driver says; other processes' allocations count too
	Took  time.Duration
}

// capture runs a decode step of every batch size that is captured, so that no request waits for that: of short texts that
// are forgotten. Memory that the device lacks for it is told of, and such steps run kernel by kernel.
func (i *Instance) capture() (c Captured, err error) {
	began, s := time.Now(), &i.Setup
	sizes := i.model.DecodeRows(min(s.Slots, i.model.FreeTokens()/kv.PageTokens))
	if len(sizes) == 0 {
		return c, nil
	}
	before, err := ced.DeviceInfo(s.Device)
	if err != nil {
		return c, err
	}
	for n, rows := range sizes {
		if s.Capturing != nil {
			s.Capturing(n, len(sizes))
		}
		err, lack := i.decodeOnce(rows), (*ced.Error)(nil)
		if errors.As(err, &lack) && lack.Code == ced.ENOMEM {
			if s.Warn != nil {
				s.Warn(fmt.Sprintf("capture a decode step of %d texts: %v; steps of so many run kernel by kernel", rows, err))
			}
			break
		}
		if err != nil {
			return c, fmt.Errorf("capture a decode step of %d texts: %w", rows, err)
		}
	}
	after, err := ced.DeviceInfo(s.Device)
	if err != nil {
		return c, err
	}
	return Captured{Steps: int(i.model.Graphs().Captured), Bytes: max(before.Free-after.Free, 0), Took: time.Since(began)}, nil
}

// decodeOnce runs a step of rows texts of one token each, and forgets them.
func (i *Instance) decodeOnce(rows int) (err error) {
	spans := make([]model.Span, 0, rows)
	defer func() {
		for _, sp := range spans {
			err = errors.Join(err, i.model.Release(sp.Seq))
		}
	}()
	for range rows {
		q, err := i.model.NewSequence(model.Exact, 1)
		if err != nil {
			return err
		}
		spans = append(spans, model.Span{Seq: q, Tokens: []int32{0}})
		if err := i.model.Reserve(q, 1); err != nil {
			return err
		}
	}
	if _, _, err := i.model.Forward(spans, nil); err != nil {
		return err
	}
	return i.stream.Sync()
}
