package layers

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docs/testing.md names tests by the hundred; each must exist.
func TestDocumentedTestsExist(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root(t), "docs/testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*_test.go", "*_test.cc")
	cmd.Dir = root(t)
	names, err := cmd.Output()
	if err != nil {
		t.Skip("not a git checkout:", err)
	}
	var sources strings.Builder
	for name := range strings.FieldsSeq(string(names)) {
		if b, err := os.ReadFile(filepath.Join(root(t), name)); err == nil {
			sources.Write(b)
		}
	}
	tests := sources.String()
	for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`).FindAllString(string(doc), -1) {
		if !strings.Contains(tests, "func "+name+"(") {
			t.Errorf("docs/testing.md names %s, which does not exist", name)
		}
	}
	for _, m := range regexp.MustCompile(`"(?:\.\.\. )?(\w+: [^"]+)"`).FindAllStringSubmatch(string(doc), -1) {
		if !strings.Contains(tests, `TEST("`+m[1]+`")`) && m[1] != "kernel: what holds" {
			t.Errorf("docs/testing.md names the native test %q, which does not exist", m[1])
		}
	}
}
