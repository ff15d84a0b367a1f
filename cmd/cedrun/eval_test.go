package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cedrun/runtime/conform"
	"cedrun/runtime/eval"
)

const sample120 = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it was 日本."

func textFile(t *testing.T, content string) string {
	path := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func loss(t *testing.T, args ...string) eval.Loss {
	t.Helper()
	r := succeed(t, "", append([]string{"eval", "--json", "-m", small(t)}, args...)...)
	var l eval.Loss
	if err := json.Unmarshal([]byte(r.out), &l); err != nil {
		t.Fatalf("%v in %s", err, r.out)
	}
	return l
}

func TestEvalPredictsEveryByteOnce(t *testing.T) {
	path := textFile(t, sample120)
	for _, args := range [][]string{
		{}, {"--context", "17"}, {"--context", "64", "--stride", "16"}, {"--context", "64", "--chunk", "5"},
		{"--prefill", "replay", "--context", "32"}, {"--prefill", "cone", "--context", "32", "--stride", "30"},
	} {
		l := loss(t, append([]string{"--text", path}, args...)...)
		sum := 0
		for _, b := range l.Positions {
			sum += b.Bytes
		}
		if l.Bytes != len(sample120) || sum != l.Bytes || l.BitsPerByte < 1 || l.BitsPerByte > 40 {
			t.Errorf("%v: %+v", args, l)
		}
	}
}

// The modes see the same tokens at the same positions, so cone must agree with exact to the bit and replay must not be
// far off.
func TestEvalComparesModesOnEqualWindows(t *testing.T) {
	m := []string{"--text", textFile(t, sample120), "--context", "48", "--stride", "12"}
	exact := loss(t, append(m, "--prefill", "exact")...)
	cone := loss(t, append(m, "--prefill", "cone")...)
	replay := loss(t, append(m, "--prefill", "replay")...)
	if exact.Bits != cone.Bits || exact.Windows != cone.Windows {
		t.Errorf("exact %.6f bits, cone %.6f", exact.Bits, cone.Bits)
	}
	if replay.Bits == exact.Bits || math.Abs(replay.Bits/exact.Bits-1) > 0.5 {
		t.Errorf("exact %.6f bits, replay %.6f", exact.Bits, replay.Bits)
	}
}

func TestEvalPrintsATable(t *testing.T) {
	r := succeed(t, "", "eval", "-m", small(t), "--text", textFile(t, sample120))
	for _, want := range []string{"bits per byte", "positions", "1-1 ", "64-127 "} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is missing in\n%s", want, r.out)
		}
	}
}

func TestEvalRecallCountsByDistance(t *testing.T) {
	cases := `[{"distance_windows": 1, "prompt": "the key is 7. the key is", "answer": " 7"},
		{"distance_windows": 4, "prompt": "<｜begin▁of▁sentence｜>far away", "answer": "x"},
		{"distance_windows": 1, "prompt": "again", "answer": "y"}]`
	path := textFile(t, cases)
	for _, mode := range []string{"exact", "cone", "replay"} {
		r := succeed(t, "", "eval", "-m", small(t), "--json", "--prefill", mode, "--recall", path)
		var got struct {
			Prefill   string
			Distances []eval.Accuracy
			All       eval.Accuracy
		}
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			t.Fatal(err)
		}
		if got.Prefill != mode || got.All.Cases != 3 || len(got.Distances) != 2 || got.Distances[0].Cases != 2 || got.Distances[1].Distance != 4 {
			t.Errorf("%s: %+v", mode, got)
		}
	}
	if r := succeed(t, "", "eval", "-m", small(t), "--recall", path); !strings.Contains(r.out, "accuracy") {
		t.Errorf("no table: %s", r.out)
	}
}

func TestTheTextComesWithTheModel(t *testing.T) {
	dir := copyModel(t, small(t))
	if err := os.WriteFile(filepath.Join(dir, "heldout.txt"), []byte(sample120), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := succeed(t, "", "eval", "-m", dir); !strings.Contains(r.out, "bits per byte") {
		t.Errorf("no table: %s", r.out)
	}
}

func TestRecallCasesComeWithTheModel(t *testing.T) {
	dir := copyModel(t, small(t))
	cases := `{"cases": [{"distance_windows": 2, "prompt": "a", "answer": "b"}]}`
	if err := os.WriteFile(filepath.Join(dir, "recall.json"), []byte(cases), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := succeed(t, "", "eval", "-m", dir, "--recall"); !strings.Contains(r.out, "all") {
		t.Errorf("no table: %s", r.out)
	}
}

func TestConformReportsEveryComparison(t *testing.T) {
	r := succeed(t, "", "conform", "-m", testdata+"mini/calm", "--json")
	var got conform.Report
	if err := json.Unmarshal([]byte(r.out), &got); err != nil {
		t.Fatal(err)
	}
	if !got.OK() || got.Backend != "cpu" || got.NotBuilt["drafts"] == 0 {
		t.Errorf("%d lines, backend %s, not built %v", len(got.Lines), got.Backend, got.NotBuilt)
	}
	if r := succeed(t, "", "conform", "-m", testdata+"mini/calm", "--threads", "2", "--no-map"); !strings.HasSuffix(strings.TrimSpace(r.out), "PASS") || !strings.Contains(r.out, "not built") {
		t.Errorf("report: %s", r.out)
	}
}

func TestConformFailsWhenARuleIsBroken(t *testing.T) {
	r := cedrun(t, "", "conform", "-m", testdata+"mini/calm", "--golden", testdata+"mini/base/golden.safetensors")
	if r.status != exitError || !strings.Contains(r.err, "does not conform") || !strings.Contains(r.out, "FAIL") {
		t.Errorf("status %d, stderr %q", r.status, r.err)
	}
}
