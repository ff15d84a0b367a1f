package synth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cedrun/runtime/checkpoint"
)

// Options say what to write.
type Options struct {
	Preset  string
	Seed    uint64
	Dir     string // created if absent
	Threads int    // 0 = one per usable core
	// Progress is called once, before total bytes are written or compared. What it returns is called, by several
	// goroutines, with the number of bytes done since its last call.
	Progress func(total int64) (add func(n int64))
}

// Summary is what Write did.
type Summary struct {
	Preset  string  `json:"preset"`
	Seed    uint64  `json:"seed"`
	Dir     string  `json:"dir"`
	Shards  int     `json:"shards"`
	Kept    int     `json:"shards_kept"` // were there already
	Tensors int     `json:"tensors"`
	Bytes   int64   `json:"bytes"` // of all shards
	Seconds float64 `json:"seconds"`
}

// markName is the file that says what a directory is for. It is written first.
const markName = "synth.json"

// mark is its content.
type mark struct {
	Preset  string `json:"preset"`
	Seed    uint64 `json:"seed"`
	Version int    `json:"version"` // of the presets and the generator
}

const version = 1

// partial begins the name of a file that is not whole yet.
const partial = ".partial-"

// Write writes the checkpoint, or what is missing of it. It refuses a directory with anything else in it. It ends with
// ctx's error when ctx does; the directory can then be continued. What is refused leaves no file behind.
func Write(ctx context.Context, o Options) (*Summary, error) {
	began := time.Now()
	p, err := find(o.Preset)
	if err != nil {
		return nil, err
	}
	cfg, configJSON, tokenizerJSON, err := p.files()
	if err != nil {
		return nil, err
	}
	files, err := checkpoint.Layout(cfg)
	if err != nil {
		return nil, fmt.Errorf("preset %s: %w", p.Name, err)
	}
	w := &writer{Options: o, files: files}
	if w.Threads <= 0 {
		w.Threads = runtime.GOMAXPROCS(0)
	}
	release, err := w.claim(mark{p.Name, o.Seed, version})
	if err != nil {
		return nil, err
	}
	defer release()
	s := &Summary{Preset: p.Name, Seed: o.Seed, Dir: o.Dir, Shards: len(files)}
	for _, f := range files {
		s.Tensors += len(f.Tensors)
		s.Bytes += f.Size
	}
	w.add = func(int64) {}
	if o.Progress != nil {
		w.add = o.Progress(s.Bytes)
	}
	for name, data := range map[string][]byte{
		"config.json": configJSON, "tokenizer.json": tokenizerJSON, "tokenizer_config.json": []byte(tokenizerConfig),
	} {
		if err := w.small(name, data); err != nil {
			return nil, err
		}
	}
	w.maker = newMaker(o.Seed, files)
	for i := range files {
		kept, err := w.shard(ctx, &files[i])
		if err != nil {
			return nil, err
		}
		if kept {
			s.Kept++
		}
	}
	if err := checkpoint.WriteIndex(o.Dir, files); err != nil {
		return nil, err
	}
	s.Seconds = time.Since(began).Seconds()
	return s, nil
}

type writer struct {
	Options
	files []checkpoint.File
	maker *maker
	add   func(int64)
}

// claim makes the directory, or takes one that the same Write began, for this process alone until release.
func (w *writer) claim(want mark) (release func(), err error) {
	if _, err := w.begun(want); err != nil {
		return nil, err
	}
	if err := w.room(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(w.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the checkpoint's directory: %w", err)
	}
	if release, err = w.lock(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	begun, err := w.begun(want) // again: nobody else writes now
	if err == nil {
		err = w.sweep()
	}
	if err != nil || begun {
		return release, err
	}
	data, err := json.Marshal(want)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", markName, err)
	}
	return release, w.small(markName, append(data, '\n'))
}

// lock locks the directory itself, so that nothing is left to remove and the lock ends with the process. A file system
// that has no locks goes without.
func (w *writer) lock() (release func(), err error) {
	d, err := os.Open(w.Dir)
	if err != nil {
		return nil, fmt.Errorf("lock the checkpoint's directory: %w", err)
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		_ = d.Close()
		return nil, fmt.Errorf("another cedrun synth is writing to %s: wait for it, or choose another directory", w.Dir)
	}
	return func() { _ = d.Close() }, nil
}

// begun reports whether the same Write began the directory. One with anything else in it is an error.
func (w *writer) begun(want mark) (bool, error) {
	path := filepath.Join(w.Dir, markName)
	data, err := os.ReadFile(path)
	switch {
	case err == nil:
		var got mark
		if err := json.Unmarshal(data, &got); err != nil {
			return false, fmt.Errorf("%s does not say what is in the directory (%w): remove the directory or choose another", path, err)
		}
		if got != want {
			return false, fmt.Errorf("%s holds preset %s with seed %d (version %d), not %s with seed %d (version %d): remove it or choose another directory",
				w.Dir, got.Preset, got.Seed, got.Version, want.Preset, want.Seed, want.Version)
		}
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("read what is in the directory: %w", err)
	}
	entries, err := os.ReadDir(w.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("list the directory: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), partial) {
			return false, fmt.Errorf("%s has files that are not of this program, %s for one: give an empty or a new directory", w.Dir, e.Name())
		}
	}
	return false, nil
}

// sweep removes what a killed Write left half written.
func (w *writer) sweep() error {
	entries, err := os.ReadDir(w.Dir)
	if err != nil {
		return fmt.Errorf("list the directory: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partial) {
			if err := os.Remove(filepath.Join(w.Dir, e.Name())); err != nil {
				return fmt.Errorf("remove a partial file: %w", err)
			}
		}
	}
	return nil
}

// slack is left free on the disk, for the small files and everybody else.
const slack = 64 << 20

// room checks that what is missing fits on the disk, of which what a killed Write left is free again.
func (w *writer) room() error {
	need := int64(slack)
	for _, f := range w.files {
		need += f.Size
		for _, name := range []string{f.Name, partial + f.Name} {
			if st, err := os.Stat(filepath.Join(w.Dir, name)); err == nil {
				need -= min(st.Size(), f.Size)
			}
		}
	}
	var st unix.Statfs_t
	dir := w.Dir
	err := unix.Statfs(dir, &st)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) { // a directory that is still to be made
		dir = filepath.Dir(dir)
		err = unix.Statfs(dir, &st)
	}
	if err != nil {
		return fmt.Errorf("free space of %s: %w", w.Dir, err)
	}
	if free := int64(st.Bavail) * int64(st.Bsize); free < need {
		return fmt.Errorf("%s has %.2f GB of free space, but preset %s needs %.2f GB more: free some or choose another disk",
			w.Dir, float64(free)/1e9, w.Preset, float64(need)/1e9)
	}
	return nil
}

// small writes a small file, whole or not at all.
func (w *writer) small(name string, data []byte) error {
	path, temporary := filepath.Join(w.Dir, name), filepath.Join(w.Dir, partial+name)
	err := os.WriteFile(temporary, data, 0o644)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// shard writes a shard, or keeps the one that is there and is what it should be.
func (w *writer) shard(ctx context.Context, f *checkpoint.File) (kept bool, err error) {
	path, temporary := filepath.Join(w.Dir, f.Name), filepath.Join(w.Dir, partial+f.Name)
	switch same, err := w.compare(ctx, f, path); {
	case err != nil:
		return false, fmt.Errorf("compare %s with what it should be: %w", path, err)
	case same:
		return true, nil
	}
	out, err := os.Create(temporary)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	err = w.pieces(ctx, f, func(b []byte, at int64) error {
		_, err := out.WriteAt(b, at)
		w.add(int64(len(b)))
		return err
	})
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temporary))
	}
	return false, err
}

// errDiffers ends a comparison.
var errDiffers = errors.New("differs")

// compare reports whether the file at path is shard f.
func (w *writer) compare(ctx context.Context, f *checkpoint.File, path string) (bool, error) {
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer in.Close()
	if st, err := in.Stat(); err != nil || st.Size() != f.Size {
		return false, err
	}
	var done int64
	var mu sync.Mutex
	buffers := sync.Pool{New: func() any { return new([]byte) }}
	err = w.pieces(ctx, f, func(b []byte, at int64) error {
		buf := buffers.Get().(*[]byte)
		defer buffers.Put(buf)
		if cap(*buf) < len(b) {
			*buf = make([]byte, len(b))
		}
		got := (*buf)[:len(b)]
		if _, err := in.ReadAt(got, at); err != nil {
			return err
		}
		if !bytes.Equal(got, b) {
			return errDiffers
		}
		w.add(int64(len(b)))
		mu.Lock()
		done += int64(len(b))
		mu.Unlock()
		return nil
	})
	if errors.Is(err, errDiffers) {
		w.add(-done) // to be done again
		return false, nil
	}
	return err == nil, err
}
