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

// test is what has to notice a fault: commands that run in order until one fails.
type test struct {
	pkg     string // Go: package and -run patterns
	runs    []string
	filters []string // native: words of the tests' names
}

const conformance = "TestBackendsConformOnEveryMiniCheckpoint"

// conform compares the host back ends with the goldens of a mini checkpoint, the fast one first.
func conform(mini string) test {
	name := "^" + conformance + "$/^" + mini + "$"
	return goTest("./runtime/conform", name+"/^cpu$", name+"/^ref$")
}

func goTest(pkg string, runs ...string) test { return test{pkg: pkg, runs: runs} }
func native(filters ...string) test          { return test{filters: filters} }
func (t test) native() bool                  { return len(t.filters) > 0 }

func (t test) String() string {
	return strings.Join(slices.Concat([]string{t.pkg}, t.runs, t.filters), " ")
}

func (t test) commands(dir string) []*exec.Cmd {
	if t.native() {
		return []*exec.Cmd{exec.Command(filepath.Join(dir, "build", "ced_test"), t.filters...)}
	}
	var cmds []*exec.Cmd
	for _, run := range t.runs {
		cmds = append(cmds, exec.Command("go", "test", "-vet=off", "-count=1", t.pkg, "-run", run))
	}
	return cmds
}

var errBuild = errors.New("does not build")

// fails runs the test in a tree that is already built natively and returns what failed; nothing means that it passed.
func (t test) fails(dir string) ([]string, error) {
	for _, cmd := range t.commands(dir) {
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		switch {
		case err == nil && bytes.Contains(out, []byte("no tests to run")):
			return nil, fmt.Errorf("%s: no tests to run", cmd)
		case err == nil:
			continue
		case !errors.As(err, &exit):
			return nil, err
		case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
			return nil, fmt.Errorf("%w: %s", errBuild, out)
		}
		return failures(out), nil
	}
	return nil, nil
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
