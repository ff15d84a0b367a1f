package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"

	ced "cedrun/cuda"
	"cedrun/runtime/kv/disk"
)

// forwardVersion changes when the forward pass gives other bits by what happens outside the native library.
const forwardVersion = 1

// openStore opens the store of pages on disk, if there is to be one.
func (i *Instance) openStore() {
	if i.Setup.KVDir == "" {
		return
	}
	warn := i.Setup.Warn
	if warn == nil {
		warn = func(string) {}
	}
	id, err := i.identity()
	if err == nil {
		i.store, err = disk.Open(context.Background(), disk.Options{
			Dir: i.Setup.KVDir, MaxBytes: i.Setup.KVDisk, PageBytes: i.model.PageBytes(), Identity: id, Warn: warn,
		})
	}
	if err != nil {
		i.store, i.noStore = nil, err.Error()
		warn("the KV cache is not kept on disk: " + i.noStore)
	}
}

// identity is what two engines must share for one to go on from the other's pages.
func (i *Instance) identity() (id disk.Identity, err error) {
	if id.Model, err = i.Checkpoint.Digest(); err != nil {
		return id, err
	}
	h := sha256.New()
	for _, name := range []string{"config.json", "tokenizer.json"} { // the tokenizer decides on Engram rows
		data, err := fs.ReadFile(i.Source.fs(), name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return id, fmt.Errorf("%s: read %s: %w", i.Source.Name(), name, err)
		}
		fmt.Fprintf(h, "%d:", len(data))
		h.Write(data)
	}
	id.Config = fmt.Sprintf("%x", h.Sum(nil)[:16])
	id.Numerics = fmt.Sprintf("%s %s %d", i.Setup.Backend, ced.Archive(), forwardVersion)
	if i.Setup.Backend == ced.CUDA { // tensor cores of another kind may add otherwise
		d, err := ced.DeviceInfo(i.Setup.Device)
		if err != nil {
			return id, err
		}
		id.Numerics += fmt.Sprintf(" %d.%d", d.Major, d.Minor)
	}
	return id, nil
}
