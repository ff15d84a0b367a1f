package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"cedrun/runtime/experts"
	"cedrun/runtime/model"
)

// ExpertLoad is how steps found their routed experts on a device that has room for a part of them only; zero elsewhere.
type ExpertLoad struct {
	Slots, Experts int    // that have room on the device, of all
	StreamedBytes  uint64 // brought there for one step, of a prompt, behind the layers before
	Hits, Misses   uint64 // each expert of a layer once a step: in a slot of the device, or brought or read from host memory, or computed by the CPU
	MovedBytes     uint64 // brought to the device between steps
	Stalled        time.Duration
}

func expertLoad(u model.Use) ExpertLoad {
	if u.Slots == nil {
		return ExpertLoad{}
	}
	l := ExpertLoad{Slots: u.Slots.Slots, Experts: u.Slots.Experts, StreamedBytes: u.Slots.Streamed, Stalled: u.Slots.Stalled}
	for _, x := range u.Experts {
		l.Hits, l.Misses, l.MovedBytes = l.Hits+x.Hit, l.Misses+x.Missed, l.MovedBytes+x.Moved*uint64(u.Slots.Bytes)
	}
	return l
}

// orderFile is where the experts that runs used most are kept, for the next one to begin with; empty: nowhere.
func (f *Files) orderFile() (string, error) {
	if f.cacheDir == "" {
		return "", nil
	}
	id, err := f.Checkpoint.Digest()
	if err != nil {
		return "", err
	}
	return filepath.Join(f.cacheDir, "experts-"+id+".txt"), nil
}

// expertOrder is what an earlier run used most, and a word on where the order is from. A file that cannot be read or
// trusted is passed over, with the reason in the word.
func (f *Files) expertOrder() (order []experts.Key, from string) {
	name, err := f.orderFile()
	if err == nil && name == "" {
		return nil, "by number"
	}
	var b []byte
	if err == nil {
		b, err = readSmall(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "by number: no earlier run left what it used"
	}
	if err == nil {
		if order, err = experts.DecodeOrder(b, f.Config.Layers, f.Config.Experts); err == nil {
			return order, "what an earlier run used most: " + name
		}
	}
	return nil, "by number: " + name + ": " + err.Error()
}

// mostOrder is more than an order of the release takes.
const mostOrder = 1 << 20

// readSmall reads a regular file that is not large.
func readSmall(name string) ([]byte, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > mostOrder {
		return nil, errors.New("this is no list of experts")
	}
	return os.ReadFile(name)
}

// keepOrder writes what this run used most. It only saves time: what cannot be written is told, and passed over.
func (i *Instance) keepOrder() {
	order := i.model.ExpertOrder()
	if len(order) == 0 {
		return
	}
	earlier, _ := i.expertOrder() // whose experts this run did not use come behind
	used := make(map[experts.Key]bool, len(order))
	for _, k := range order {
		used[k] = true
	}
	for _, k := range earlier {
		if !used[k] {
			order = append(order, k)
		}
	}
	name, err := i.orderFile()
	if err == nil && name != "" {
		if err = os.MkdirAll(filepath.Dir(name), 0o755); err == nil {
			err = writeFile(name, experts.EncodeOrder(i.Config.Layers, i.Config.Experts, order))
		}
	}
	if err != nil && i.Setup.Warn != nil {
		i.Setup.Warn("which experts are used most is not kept for the next run: " + err.Error())
	}
}

// writeFile writes a file whole or not at all.
func writeFile(name string, b []byte) error {
	t, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = t.Write(b)
	if err = errors.Join(err, t.Close()); err == nil {
		err = os.Rename(t.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(t.Name()))
	}
	return nil
}
