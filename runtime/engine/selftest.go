package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/model"
	"cedrun/runtime/selftest"
)

// SelfTest is what the test at start-up found.
type SelfTest struct {
	Took    time.Duration
	Model   bool   // the known prompt ran through the model, not only its kernels
	Warning string // empty: none
}

// knownPromptParams bounds the models that a known prompt runs through: one pass of a larger model takes longer than a
// start may, or pages in gigabytes of weights.
const knownPromptParams = 64 << 20

// selfTest tries every kernel of the stream and, on a small model, its known prompt.
func (f *Files) selfTest(m *model.Model, s *ced.Stream) (SelfTest, error) {
	began := time.Now()
	if err := selftest.Kernels(s); err != nil {
		return SelfTest{}, err
	}
	var t SelfTest
	if t.Model = CountActive(f.Config).Decode() <= knownPromptParams; t.Model {
		known, err := f.known()
		if err == nil {
			t.Warning, err = selftest.Model(m, s, known)
		}
		if err != nil {
			return SelfTest{}, err
		}
	}
	t.Took = time.Since(began)
	return t, nil
}

// known reads selftest.json beside config.json; a checkpoint need not have one.
func (f *Files) known() (selftest.Known, error) {
	data, err := fs.ReadFile(f.Source.fs(), "selftest.json")
	if errors.Is(err, fs.ErrNotExist) {
		return selftest.Known{}, nil
	}
	if err != nil {
		return selftest.Known{}, fmt.Errorf("read selftest.json: %w", err)
	}
	return selftest.ParseKnown(data, f.Config.VocabSize)
}
