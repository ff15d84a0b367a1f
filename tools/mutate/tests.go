package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// test is the smallest set of tests that has to notice a fault.
type test struct {
	pkg, run string   // Go: package and -run pattern
	filters  []string // native: words of the tests' names
}

const conformance = "TestBackendsConformOnEveryMiniCheckpoint"

// conform is the comparison of both host back ends with the goldens of a mini checkpoint.
func conform(mini string) test {
	return goTest("./runtime/conform", "^"+conformance+"$/^"+mini+"$")
}

func goTest(pkg, run string) test   { return test{pkg: pkg, run: run} }
func native(filters ...string) test { return test{filters: filters} }
func (t test) String() string       { return t.command().String() }
func (t test) native() bool         { return len(t.filters) > 0 }
func (t test) command() *exec.Cmd {
	if t.native() {
		return exec.Command(filepath.Join("build", "ced_test"), t.filters...)
	}
	return exec.Command("go", "test", "-vet=off", "-count=1", t.pkg, "-run", t.run)
}

var errBuild = errors.New("does not build")

// fails runs the test in a tree that is already built natively and returns what failed; nothing means that it passed.
func (t test) fails(dir string) ([]string, error) {
	cmd := t.command()
	cmd.Dir = dir
	if t.native() {
		cmd.Path = filepath.Join(dir, cmd.Args[0])
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		if bytes.Contains(out, []byte("no tests to run")) {
			return nil, fmt.Errorf("%s: no tests to run", t)
		}
		return nil, nil
	case !errors.As(err, &exit):
		return nil, err
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		return nil, fmt.Errorf("%w: %s", errBuild, out)
	}
	return failures(out), nil
}

var (
	goFailure     = regexp.MustCompile(`^\s*--- FAIL: (\S+)`)
	nativeFailure = regexp.MustCompile(`^FAIL (.*) \(\d+ failures\)$`)
	brokenLine    = regexp.MustCompile(`BROKEN ([^:]*): (.*?) \(R`)
)

// failures names the innermost tests that failed, a conformance test with the first tensor that broke its rule.
func failures(out []byte) []string {
	var names []string
	broken := ""
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		line := s.Text()
		if m := goFailure.FindStringSubmatch(line); m != nil {
			names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(m[1], n+"/") })
			names, broken = append(names, m[1]), ""
		} else if m := nativeFailure.FindStringSubmatch(line); m != nil {
			names = append(names, m[1])
		} else if m := brokenLine.FindStringSubmatch(line); m != nil && broken == "" && len(names) > 0 {
			broken = m[2]
			names[len(names)-1] += " at " + broken
		}
	}
	if len(names) == 0 {
		names = []string{"the test program ends early"}
	}
	return names
}
