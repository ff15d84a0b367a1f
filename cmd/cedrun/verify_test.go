package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cedrun/runtime/verify"
	"cedrun/testdata/demo"
)

// damaged is a copy of a mini checkpoint with a NaN in its last shard.
func damaged(t *testing.T) string {
	t.Helper()
	dir := copyModel(t, testdata+"mini/sched40")
	f, err := os.OpenFile(filepath.Join(dir, "model-00003-of-00003.safetensors"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	// All 0xFF is a NaN in every format that has one.
	if _, err := f.WriteAt([]byte(strings.Repeat("\xff", 1<<16)), st.Size()-1<<16); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestVerifyExitStatus(t *testing.T) {
	sound, broken := testdata+"mini/sched40", damaged(t)
	for _, c := range []struct {
		name   string
		args   []string
		status int
		out    string
		err    string
	}{
		{"sound", []string{"-m", sound}, 0, "whole, as far as headers tell: --deep reads the weights\n", ""},
		{"sound, deep", []string{"-m", sound, "--deep"}, 0, "whole: every byte was read\n", ""},
		{"sound, deep, one by one", []string{"-m", sound, "--deep", "--threads", "1"}, 0, "whole: every byte was read\n", ""},
		{"damage that headers do not show", []string{"-m", broken}, 0, "whole, as far as headers tell: --deep reads the weights\n", ""},
		{"damage, deep", []string{"-m", broken, "--deep"}, exitError, "fault: ", "cedrun: " + broken + " is not whole: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := cedrun(t, "", append([]string{"verify"}, c.args...)...)
			if r.status != c.status || !strings.Contains(r.out, c.out) || !strings.HasPrefix(r.err, c.err) || (c.err == "") != (r.err == "") {
				t.Errorf("status %d\nstdout %s\nstderr %s", r.status, r.out, r.err)
			}
		})
	}
}

func TestVerifyAsJSON(t *testing.T) {
	for dir, ok := range map[string]bool{testdata + "mini/base": true, damaged(t): false} {
		r := cedrun(t, "", "verify", "--deep", "--json", "-m", dir)
		var report verify.Report
		d := json.NewDecoder(strings.NewReader(r.out))
		d.DisallowUnknownFields()
		if err := d.Decode(&report); err != nil || d.More() {
			t.Fatalf("%v in %s", err, r.out)
		}
		if report.OK != ok || (r.status == 0) != ok || (len(report.Faults) == 0) != ok || report.Census == nil {
			t.Errorf("%s: status %d, %+v", dir, r.status, report)
		}
	}
}

func TestVerifyComparesDigests(t *testing.T) {
	dir := testdata + "mini/base"
	deep := succeed(t, "", "verify", "--deep", "-m", dir)
	sums := filepath.Join(t.TempDir(), "SHA256SUMS")
	var lines []string
	for line := range strings.Lines(deep.out) { // the report lists digests as sha256sum does
		if strings.Contains(line, "  ") && len(strings.Fields(line)[0]) == 64 {
			lines = append(lines, line)
		}
	}
	if err := os.WriteFile(sums, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := succeed(t, "", "verify", "--deep", "--digests", sums, "-m", dir); !strings.Contains(r.out, "4 digests equal "+sums+"\n") {
		t.Errorf("got\n%s", r.out)
	}
	wrong := strings.Replace(lines[0], lines[0][:8], "00000000", 1)
	if err := os.WriteFile(sums, []byte(wrong), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := cedrun(t, "", "verify", "--deep", "--digests", sums, "-m", dir); r.status != exitError || !strings.Contains(r.out, "download the file again") || !strings.Contains(r.err, "1 fault\n") {
		t.Errorf("status %d\n%s%s", r.status, r.out, r.err)
	}
}

func TestVerifyOfTheEmbeddedModel(t *testing.T) {
	if _, ok := demo.FS(); !ok {
		t.Fatal("the demo model is not embedded: testdata/demo has no config.json")
	}
	succeed(t, "", "verify")
	succeed(t, "", "verify", "--deep")
}

func TestVerifyCanBeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := cedrunIn(ctx, "", "verify", "--deep", "-m", testdata+"mini/base"); r.status != exitInterrupted || r.out != "" {
		t.Errorf("status %d, stdout %q", r.status, r.out)
	}
}

func TestVerifyRefuses(t *testing.T) {
	sums := filepath.Join(t.TempDir(), "sums")
	if err := os.WriteFile(sums, []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := testdata + "mini/base"
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing there", []string{"-m", "absent"}, "--model: stat absent: no such file or directory"},
		{"a file", []string{"-m", testdata + "release/config.json"}, "is a file: give the directory that holds it and the safetensors shards"},
		{"digests without reading", []string{"-m", dir, "--digests", sums}, "--digests needs --deep"},
		{"no list", []string{"-m", dir, "--deep", "--digests", "absent"}, "--digests: open absent: no such file"},
		{"no list of digests", []string{"-m", dir, "--deep", "--digests", sums}, "sums, line 1: expected 64 hexadecimal digits"},
		{"no thread", []string{"-m", dir, "--deep", "--threads", "-1"}, "--threads -1: use 0 or more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := cedrun(t, "", append([]string{"verify"}, c.args...)...)
			if r.status != exitError || r.out != "" || !strings.Contains(r.err, c.want) {
				t.Errorf("status %d, stdout %q, stderr %q; want %q", r.status, r.out, r.err, c.want)
			}
		})
	}
	// A directory without anything is a report, not a refusal.
	r := cedrun(t, "", "verify", "-m", t.TempDir())
	if r.status != exitError || !strings.Contains(r.out, "fault: config.json is missing") || !strings.Contains(r.out, "fault: neither model.safetensors.index.json nor model.safetensors is there") {
		t.Errorf("status %d\n%s%s", r.status, r.out, r.err)
	}
}
