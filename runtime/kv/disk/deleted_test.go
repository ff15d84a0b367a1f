package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Somebody deletes the directory, or files in it, or moves it away, while a server runs.
func TestFilesThatAreDeletedUnderAStoreAreNoticed(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"directory": os.RemoveAll,
		"files": func(dir string) error {
			files, err := filepath.Glob(filepath.Join(dir, "*"))
			for _, f := range files {
				err = errors.Join(err, os.Remove(f))
			}
			return err
		},
		"directory moved": func(dir string) error { return os.Rename(dir, dir+".old") },
		"directory moved, another made": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "kv")
			d := openDir(t, dir)
			old, young := chain("a", 3), chain("b", 2)
			d.put(old...)
			held := d.Find(old, true)
			defer held.Release()
			if err := take(dir); err != nil {
				t.Fatal(err)
			}
			d.expect(old, 0, 1, 2) // they are open
			d.wait(lookEvery)
			d.put(young...)
			d.warned("gone", dir, "3 pages")
			d.expect(old)
			d.expect(young, 0, 1)
			if _, err := Open(context.Background(), d.opt); !errors.Is(err, ErrLocked) {
				t.Errorf("another store in the new directory: %v", err)
			}
			d.put(old...)
			d.reopen()
			d.expect(old, 0, 1, 2)
			d.expect(young, 0, 1)
			d.quiet()
		})
	}
}

// A directory that cannot be made again pauses writing, like any disk that cannot be written.
func TestADirectoryThatCannotBeTakenAgainPausesWriting(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	d := openDir(t, dir)
	pages := chain("a", 2)
	d.put(pages[0])
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	d.wait(lookEvery)
	d.put(pages[1])
	d.warned("no KV pages are written to "+dir, "deleted")
	if st := d.Stats(); st.State != StatePaused || !strings.Contains(st.Trouble, "deleted") {
		t.Errorf("%+v", st)
	}
	d.expect(pages, 0)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	d.wait(firstPause)
	d.put(pages...)
	d.put(pages...) // the first page was forgotten when the second one came
	d.expect(pages, 0, 1)
	if st := d.Stats(); st.State != StateOn {
		t.Errorf("%+v", st)
	}
}
