// Mutate checks the tests: it puts plausible faults into a copy of the tree, one at a time, rebuilds what changed and
// expects a test to fail. It prints a table of faults and the tests that noticed them, and exits with 1 if one went by.
//
//	go run ./tools/mutate [-run PATTERN] [-list] [-dir DIR]
//
// A full run takes some minutes: it is for whoever changes kernels or tests, not for CI.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	dir := flag.String("dir", filepath.Join(os.TempDir(), "cedrun-mutate"), "copy of the tree to work in; kept for the next run")
	run := flag.String("run", "", "only faults whose name matches this regular expression")
	list := flag.Bool("list", false, "print the faults and check that each can be applied")
	flag.Parse()
	if err := mutate(os.Stdout, *dir, *run, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func mutate(out io.Writer, dir, run string, list bool) error {
	pattern, err := regexp.Compile(run)
	if err != nil {
		return err
	}
	var chosen []fault
	for _, f := range faults {
		if pattern.MatchString(f.name) {
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no fault matches %q", run)
	}
	if list {
		for _, f := range chosen {
			fmt.Fprintf(out, "%-50s %s\n", f.name, f.test)
		}
		return check(".", chosen)
	}
	if err := copyTree(".", dir); err != nil {
		return err
	}
	t := tree{dir: dir}
	if err := t.baseline(chosen); err != nil {
		return err
	}
	fmt.Fprintln(out, "| fault | noticed by |\n|---|---|")
	missed := 0
	for _, f := range chosen {
		began := time.Now()
		names, err := t.try(f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		shown := names[:min(len(names), 3)]
		cell := strings.ReplaceAll(strings.Join(shown, "; "), conformance+"/", "conform ")
		if more := len(names) - len(shown); more > 0 {
			cell += fmt.Sprintf("; %d more", more)
		}
		if len(names) == 0 {
			missed++
			cell = "**nothing**"
		}
		fmt.Fprintf(out, "| %s | %s |\n", f.name, cell)
		fmt.Fprintf(os.Stderr, "%s: %.0f s\n", f.name, time.Since(began).Seconds())
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d faults went unnoticed", missed, len(chosen))
	}
	fmt.Fprintf(out, "\n%d faults, all noticed.\n", len(chosen))
	return nil
}

// apply returns the changed contents of a fault's files below dir.
func (f fault) apply(dir string) (map[string][]byte, error) {
	changed := map[string][]byte{}
	for _, e := range f.edits {
		path := filepath.Join(dir, e.file)
		text, ok := changed[path]
		if !ok {
			var err error
			if text, err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
		if n := bytes.Count(text, []byte(e.old)); n != 1 {
			return nil, fmt.Errorf("%s: the text to replace occurs %d times, not once: %q", e.file, n, e.old)
		}
		changed[path] = bytes.Replace(text, []byte(e.old), []byte(e.new), 1)
	}
	return changed, nil
}

// check reports the faults that no longer fit the sources.
func check(dir string, faults []fault) error {
	var errs []error
	for _, f := range faults {
		if _, err := f.apply(dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.name, err))
		}
	}
	return errors.Join(errs...)
}

// copyTree copies the files that git knows, and the generated one that links need, touching only what differs: what is
// built there stays valid.
func copyTree(from, to string) error {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = from
	names, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, not yet committed
		}
		if err != nil {
			return err
		}
		if err := update(filepath.Join(to, name), data); err != nil {
			return err
		}
	}
	return nil
}

func update(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// tree is the copy that faults are put into.
type tree struct{ dir string }

// baseline builds the tree without a fault; every test must pass there.
func (t tree) baseline(faults []fault) error {
	cmd := exec.Command("cmake", "-S", ".", "-B", "build")
	cmd.Dir = t.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cmake: %w\n%s", err, out)
	}
	var done []string
	for _, f := range faults {
		if slices.Contains(done, f.test.String()) {
			continue
		}
		done = append(done, f.test.String())
		if err := t.build(f.test); err != nil {
			return err
		}
		names, err := f.test.fails(t.dir)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return fmt.Errorf("without any fault, %s fails: %s", f.test, strings.Join(names, "; "))
		}
	}
	return nil
}

// build brings the native library, and for native tests their program, up to date.
func (t tree) build(of test) error {
	target := "ced_stamp"
	if of.native() {
		target = "ced_test"
	}
	cmd := exec.Command("cmake", "--build", "build", "-j", fmt.Sprint(runtime.NumCPU()), "--target", target)
	cmd.Dir = t.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", errBuild, out)
	}
	return nil
}

// try puts a fault into the tree, runs its test and takes the fault out again.
func (t tree) try(f fault) (failed []string, err error) {
	changed, err := f.apply(t.dir)
	if err != nil {
		return nil, err
	}
	original := map[string][]byte{}
	for path := range changed {
		if original[path], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	defer func() { err = errors.Join(err, writeAll(original)) }()
	if err := writeAll(changed); err != nil {
		return nil, err
	}
	if err := t.build(f.test); err != nil {
		return nil, err
	}
	return f.test.fails(t.dir)
}

func writeAll(files map[string][]byte) error {
	for path, data := range files {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
