// Package layers holds the tests of the repository's own shape: which package may import which, what packages are
// called, and what a committed file must not contain.
package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "cedrun"

// heights ranks the packages that stand on the native library. Dependencies point downwards only: cmd -> serve -> engine
// -> model -> ced. Everything else under runtime/ is bookkeeping that builds and tests without it.
var heights = map[string]int{
	"cuda":             1,
	"runtime/model":    2,
	"runtime/machine":  2,
	"runtime/conform":  3,
	"runtime/selftest": 3,
	"runtime/engine":   3,
	"runtime/bench":    4,
	"runtime/profile":  4,
	"runtime/doctor":   4,
	"runtime/eval":     4,
	"runtime/gpu":      4, // its binding relaxes the linker, so nothing native may import it
	"runtime/serve":    4,

	"runtime/telemetry/publish": 4,
	"runtime/top":               4,
}

const program = 5 // cmd, bench, tools

// layer is the height of a package of this module.
func layer(pkg string) int {
	rel := strings.TrimPrefix(pkg, module+"/")
	for dir := rel; dir != "."; dir = path.Dir(dir) {
		if h, ok := heights[dir]; ok {
			return h
		}
	}
	if strings.HasPrefix(rel, "runtime/") || strings.HasPrefix(rel, "testdata/") {
		return 0
	}
	return program
}

type goPackage struct {
	ImportPath, Name, Dir string
	CgoFiles              []string
	Imports, TestImports  []string
	XTestImports          []string
}

// list returns the module's own packages.
func list(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Name,Dir,CgoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var own []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return own
		} else if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(p.ImportPath, module+"/") {
			own = append(own, p)
		}
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestDependenciesPointDownwards(t *testing.T) {
	for _, p := range list(t) {
		for _, dep := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if !strings.HasPrefix(dep, module+"/") {
				continue
			}
			switch from, to := layer(p.ImportPath), layer(dep); {
			case to > from:
				t.Errorf("%s imports %s, which is above it", p.ImportPath, dep)
			case to == program && !strings.HasPrefix(dep, path.Dir(p.ImportPath)):
				t.Errorf("%s imports %s: nothing imports a program's package", p.ImportPath, dep)
			}
		}
	}
}

func TestOnlyTheBindingImportsC(t *testing.T) {
	for _, p := range list(t) {
		if len(p.CgoFiles) > 0 && p.ImportPath != module+"/cuda" {
			t.Errorf("%s uses cgo in %v; native code is reached through %s/cuda", p.ImportPath, p.CgoFiles, module)
		}
	}
}

func TestPackageNamesSayWhatIsInside(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "misc", "runtime"}
	for _, p := range list(t) {
		if slices.Contains(vague, p.Name) || slices.Contains(vague, path.Base(p.ImportPath)) {
			t.Errorf("%s: the name %q says nothing about its contents", p.ImportPath, p.Name)
		}
	}
}

// Nothing committed may depend on where one checkout lies.
func TestFilesNameNoPathOfOneMachine(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Skip("not a git checkout:", err)
	}
	outside := regexp.MustCompile(`\.\./` + `shared\b|(?:^|[^\w.\-/:])/(?:work|root|home|Users)/\w`)
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if strings.HasPrefix(name, "testdata/") || strings.HasSuffix(name, ".sum") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			continue // deleted in the working tree, or binary
		}
		for i, line := range strings.Split(string(text), "\n") {
			if hit := outside.FindString(line); hit != "" {
				t.Errorf("%s:%d: %q lies outside the repository", name, i+1, strings.TrimSpace(hit))
			}
		}
	}
}
