package main

import (
	"encoding/json"
	"strings"
	"testing"

	"cedrun/runtime/bench"
)

func TestBenchPrintsOneObject(t *testing.T) {
	out := succeed(t, "", "bench", "-m", testdata+"mini/base", "--contexts", "16", "--fill", "40", "--modes", "replay", "--batch", "2,1", "--repeat", "2", "--steps", "2", "--json").out
	var r bench.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	out = succeed(t, "", "bench", "-m", testdata+"mini/base", "--fill", "40", "--repeat", "1", "--steps", "2", "--csv").out
	if lines := strings.Split(out, "\n"); !strings.HasPrefix(lines[1], "decode,,40,1,,") || strings.Contains(out, "prefill") {
		t.Errorf("%s", out)
	}
	if len(r.Rows) != 5 || r.Rows[0].Phase != "prefill" || r.Rows[4].Context != 40 || r.Rows[4].Batch != 2 {
		t.Errorf("%+v", r.Rows)
	}
}

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	for name, tc := range map[string]struct{ args, want string }{
		"context":        {"--contexts 5,x", `--contexts: "x"`},
		"no sequence":    {"--batch 0", `--batch: "0"`},
		"threads":        {"--threads 9999", "--threads 9999: use 1 to 1024"},
		"mode":           {"--modes fast", "use exact, cone or replay"},
		"too long":       {"--fill 99999999", "this model takes"},
		"two formats":    {"--json --csv", "choose one"},
		"nothing at all": {"--modes= --batch=", "nothing to measure"},
	} {
		t.Run(name, func(t *testing.T) {
			r := cedrun(t, "", append([]string{"bench", "-m", testdata + "mini/base"}, strings.Fields(tc.args)...)...)
			if r.status != 1 || !strings.Contains(r.err, tc.want) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("status %d, %q", r.status, r.err)
			}
		})
	}
}
