package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
)

// rowsOf runs logits and reads the file it writes.
func rowsOf(t *testing.T, args ...string) (positions []int64, logits []float32) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "logits.safetensors")
	succeed(t, "", append([]string{"logits", "--out", out}, args...)...)
	f, err := checkpoint.OpenFile(out, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if positions, err = f.Ints("positions"); err != nil {
		t.Fatal(err)
	}
	if logits, err = f.Floats("logits"); err != nil {
		t.Fatal(err)
	}
	return positions, logits
}

// goldenIDs are the input ids of a mini checkpoint's golden, comma-separated.
func goldenIDs(t *testing.T, dir string) []string {
	t.Helper()
	g, err := checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ids, err := g.Ints("input_ids")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, id := range ids {
		out = append(out, strconv.FormatInt(id, 10))
	}
	return out
}

// boundaries are the prompt lengths around which windows, groups and tails change.
func boundaries(w, n int) []int {
	var out []int
	for _, k := range []int{1, 2, 3, 4, w - 1, w, w + 1, 2*w - 1, 2 * w, 2*w + 1, n - 2, n - 1} {
		if k >= 1 && k < n {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// R4: one-shot, chunked, decoded, with any number of threads: the same bits.
func TestLogitsDoNotDependOnHowTheyAreComputed(t *testing.T) {
	for _, name := range []string{"base", "wide", "calm", "sched40"} {
		t.Run(name, func(t *testing.T) {
			dir := testdata + "mini/" + name
			c, err := config.Load(dir + "/config.json")
			if err != nil {
				t.Fatal(err)
			}
			list := goldenIDs(t, dir)
			n := len(list)
			m := []string{"-m", dir, "--ids", strings.Join(list, ",")}
			_, want := rowsOf(t, append(m, "--threads", "1")...)
			if len(want) != n*c.VocabSize {
				t.Fatalf("%d logits, want %d rows of %d", len(want), n, c.VocabSize)
			}
			ways := [][]string{{"--threads", "2"}, {"--chunk", "1"}, {"--chunk", "7"}, {"--chunk", "7", "--threads", "2"}}
			for _, k := range boundaries(c.Window, n) {
				ways = append(ways, []string{"--decode-from", fmt.Sprint(k), "--threads", fmt.Sprint(1 + k%2)})
			}
			for _, way := range ways {
				if _, got := rowsOf(t, append(m, way...)...); !slices.Equal(got, want) {
					t.Errorf("%v: %s", way, firstDifference(got, want, c.VocabSize))
				}
			}
			positions, got := rowsOf(t, append(m, "--prefill", "cone")...)
			if last := n - 1; len(positions) == 0 || positions[len(positions)-1] != int64(last) || !slices.Equal(got[len(got)-c.VocabSize:], want[last*c.VocabSize:]) {
				t.Errorf("cone differs from exact in the last row (positions %v)", positions)
			}
		})
	}
}

func firstDifference(got, want []float32, width int) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d logits, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Sprintf("position %d, logit %d is %v, want %v", i/width, i%width, got[i], want[i])
		}
	}
	return "NaN"
}

func TestLogitsRowsOfEachMode(t *testing.T) {
	dir := testdata + "mini/base" // window 8
	ids := strings.Join(goldenIDs(t, dir)[:40], " ")
	path := filepath.Join(t.TempDir(), "ids.txt")
	if err := os.WriteFile(path, []byte(ids), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args     []string
		from, to int64
	}{
		{nil, 0, 39},
		{[]string{"--from", "13"}, 13, 39},
		{[]string{"--prefill", "replay"}, 32, 39},
		{[]string{"--prefill", "replay", "--from", "35"}, 35, 39},
		{[]string{"--prefill", "replay", "--chunk", "1"}, 32, 39},
		{[]string{"--prefill", "cone", "--chunk", "7"}, 39, 39},
		{[]string{"--prefill", "replay", "--decode-from", "20"}, 12, 39},
		{[]string{"--prefill", "cone"}, 39, 39},
		{[]string{"--prefill", "cone", "--decode-from", "5"}, 4, 39},
		{[]string{"--prefill", "exact", "--decode-from", "20", "--from", "25"}, 25, 39},
	} {
		positions, logits := rowsOf(t, append([]string{"-m", dir, "--ids-file", path}, c.args...)...)
		if n := len(positions); int64(n) != c.to-c.from+1 || positions[0] != c.from || positions[n-1] != c.to || len(logits) != n*256 {
			t.Errorf("%v: positions %v", c.args, positions)
		}
	}
}

func TestParseIDs(t *testing.T) {
	for in, want := range map[string][]int32{
		"1": {1}, "1,2,3": {1, 2, 3}, " 1 2\n3\t": {1, 2, 3}, "[1, 2, 3]": {1, 2, 3}, "007": {7}, "129279,": {129279},
	} {
		if got, err := parseIDs("--ids", in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", " ", "[]", "a", "1.5", "-1", "99999999999", "1;2", "[1", "0x10"} {
		if got, err := parseIDs("--ids", in); err == nil {
			t.Errorf("%q was read as %v", in, got)
		}
	}
}

func TestAnIncompleteRowFileLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	r, err := createRows(path, 3, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.row(4, make([]float32, 4)); err == nil {
		t.Error("a row out of order was taken")
	}
	if err := r.row(3, make([]float32, 4)); err != nil {
		t.Fatal(err)
	}
	if err := r.commit(); err == nil || !strings.Contains(err.Error(), "1 rows of logits are missing") {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func writeRows(path string) error {
	r, err := createRows(path, 0, 1, 2)
	if err != nil {
		return err
	}
	if err := r.row(0, []float32{1, 2}); err != nil {
		return err
	}
	return r.commit()
}

func TestRowsReplaceFilesOnly(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	if err := writeRows(whole); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}

	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan []byte)
	go func() {
		b, _ := os.ReadFile(pipe)
		read <- b
	}()
	if err := writeRows(pipe); err != nil {
		t.Fatal(err)
	}
	if got := <-read; !bytes.Equal(got, want) {
		t.Errorf("%d bytes through a pipe, want %d", len(got), len(want))
	}
	if st, err := os.Stat(pipe); err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe became %v, %v", st, err)
	}

	link, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	if err := errors.Join(os.WriteFile(target, nil, 0o600), os.Symlink(target, link), writeRows(link)); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(target); !bytes.Equal(got, want) {
		t.Errorf("%d bytes behind a link, want %d", len(got), len(want))
	}

	if err := writeRows(dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.part")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
