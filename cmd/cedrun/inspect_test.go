package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cedrun/runtime/inventory"
	"cedrun/testdata/demo"
)

func TestInspectNeedsOnlyAConfig(t *testing.T) {
	golden, err := os.ReadFile("../../runtime/inventory/testdata/release.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(golden), "\n") // the first line names the model
	for _, model := range []string{testdata + "release/config.json", testdata + "release"} {
		r := succeed(t, "", "inspect", "-m", model)
		name, got, _ := strings.Cut(r.out, "\n")
		if diff := cmp.Diff(want, got); diff != "" || name != model {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func inspected(t *testing.T, args ...string) inventory.Report {
	t.Helper()
	var r inventory.Report
	d := json.NewDecoder(strings.NewReader(succeed(t, "", append([]string{"inspect", "--json"}, args...)...).out))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil || d.More() {
		t.Fatal(err)
	}
	return r
}

func TestInspectAsJSON(t *testing.T) {
	r := inspected(t, "-m", testdata+"release/config.json", "--context", "1000")
	if r.KV.BytesPerToken != 890 || r.Active.Prefill != 7_892_875_448 || r.Parameters.Total != 763_205_315_794 || len(r.Schedule) != 40 ||
		r.Memory.Context != 1000 || r.Memory.KV != 1024*890 || r.Stored != nil {
		t.Errorf("%+v", r)
	}
}

func TestInspectCountsWhatIsStored(t *testing.T) {
	dir := testdata + "mini/sched40"
	r := inspected(t, "-m", dir)
	if s := r.Stored; s == nil || s.Shards != 3 || s.Fault != "" || s.Tensors == 0 {
		t.Errorf("stored %+v", r.Stored)
	}
	if out := succeed(t, "", "inspect", "-m", dir).out; !strings.Contains(out, "\nSTORED\n") || !strings.Contains(out, " tensors in 3 shards, ") {
		t.Errorf("got\n%s", out)
	}
}

func TestInspectOfTheEmbeddedModel(t *testing.T) {
	if _, ok := demo.FS(); !ok {
		t.Fatal("the demo model is not embedded: testdata/demo has no config.json")
	}
	if r := inspected(t); r.Stored == nil || r.Stored.Fault != "" {
		t.Errorf("stored %+v", r.Stored)
	}
}

// What follows from the config is shown even when the weights are broken.
func TestInspectOfABrokenDownload(t *testing.T) {
	dir := copyModel(t, testdata+"mini/sched40")
	if err := os.Truncate(filepath.Join(dir, "model-00002-of-00003.safetensors"), 5000); err != nil {
		t.Fatal(err)
	}
	r := cedrun(t, "", "inspect", "-m", dir)
	if r.status != exitError || !strings.Contains(r.out, "\nPARAMETERS") || !strings.Contains(r.out, "model-00002-of-00003.safetensors is truncated") {
		t.Errorf("status %d\n%s", r.status, r.out)
	}
	if want := "cedrun: the weights do not fit the config: cedrun verify -m " + dir + " lists the faults\n"; r.err != want {
		t.Errorf("stderr %q, want %q", r.err, want)
	}
}

func TestInspectRefuses(t *testing.T) {
	empty := t.TempDir()
	broken := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(broken, []byte(`{"text_config": {}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing there", []string{"-m", filepath.Join(empty, "absent")}, "no such file or directory"},
		{"no config", []string{"-m", empty}, empty + " has no config.json: give the directory that holds it"},
		{"broken config", []string{"-m", broken}, broken + ": "},
		{"context beyond the model", []string{"-m", testdata + "release", "--context", "2000000"}, "--context: context of 2000000 tokens: this model takes 1 to 1048576"},
		{"context of nothing", []string{"-m", testdata + "release", "--context", "0"}, "--context 0: use 1 or more"},
		{"an argument", []string{"DIR"}, `unexpected argument "DIR"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := cedrun(t, "", append([]string{"inspect"}, c.args...)...)
			if r.status != exitError || r.out != "" || !strings.Contains(r.err, c.want) {
				t.Errorf("status %d, stdout %q, stderr %q; want %q", r.status, r.out, r.err, c.want)
			}
		})
	}
}
