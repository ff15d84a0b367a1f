package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cedrun/runtime/golden"
)

func TestPlanAnswersFromAConfigAlone(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile(testdata + "mini/sched40/config.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	r := succeed(t, "", "plan", "-m", dir, "--context", "512", "--batch", "2", "--host-memory", "2GiB", "--kv-host", "0")
	for _, want := range []string{"2 x 512 tokens", "KV cache", "1024 tokens", "prefill", "decode", "after 511 tokens", "dense_gemm FP8"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the plan lacks %q:\n%s", want, r.out)
		}
	}
	var got planReport
	if err := json.Unmarshal([]byte(succeed(t, "", "plan", "-m", dir, "--context", "512", "--json").out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Prefill.Rate <= 0 || len(got.Decode) == 0 || got.Decode[0].Rate <= 0 || got.Memory.Buffers.KV == 0 {
		t.Errorf("%+v", got)
	}
}

func TestPlanOfTheReleaseSaysWhatDoesNotFit(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"context", []string{"--host-memory", "12GiB", "--context", "1048576", "--batch", "8"}, "lower --context to"},
		{"batch", []string{"--host-memory", "12GiB", "--context", "1048576", "--batch", "8"}, "lower --batch to"},
		{"weights", []string{"--host-memory", "4GiB"}, "and has 4.3 GB"},
		{"size", []string{"--host-memory", "4 bananas"}, "24GiB"},
		{"too long for the model", []string{"--context", "2000000"}, "1 to 1048576"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := cedrun(t, "", append([]string{"plan", "-m", testdata + "release"}, tc.args...)...)
			if r.status != 1 || !strings.Contains(r.err, tc.want) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("status %d, %q", r.status, r.err)
			}
		})
	}
}

// A model without global KV has windows only: no number of tokens would fill a memory.
func TestAPlanCountsTokensOnlyWhereTheyTakeMemory(t *testing.T) {
	for _, args := range [][]string{{}, {"--gpu", "h200"}} {
		for _, c := range []struct {
			model, want, lacks string
			grows              bool
		}{
			{"plain", "the KV cache is the windows, which do not grow with tokens", "could grow", false},
			{"base", "the KV cache could grow to ", "do not grow", true},
		} {
			args := slices.Concat([]string{"plan", "-m", testdata + "mini/" + c.model, "--host-memory", "2GiB", "--context", "64"}, args)
			table, _, _ := strings.Cut(succeed(t, "", args...).out, "Predicted speed")
			if !strings.Contains(table, c.want) || strings.Contains(table, c.lacks) {
				t.Errorf("%v: not %q, or %q:\n%s", args, c.want, c.lacks, table)
			}
			var got planReport
			if err := json.Unmarshal([]byte(succeed(t, "", append(args, "--json")...).out), &got); err != nil {
				t.Fatal(err)
			}
			m := got.Memory
			if got.Device != nil && (got.Device.KVGrows != m.KVGrows || got.Device.KVFit != m.KVFit) {
				t.Errorf("%v: the device's account differs: %+v", args, got.Device)
			}
			if m.KVGrows != c.grows || m.KVFit > 0 != c.grows || !c.grows && m.KVTokens != 64 {
				t.Errorf("%v: grows %t, %d tokens, up to %d", args, m.KVGrows, m.KVTokens, m.KVFit)
			}
		}
	}
}

func TestPlanOfTheEmbeddedModel(t *testing.T) {
	r := cedrun(t, "", "plan")
	if r.status != 0 && !strings.Contains(r.err, "no embedded model") {
		t.Errorf("status %d, %q", r.status, r.err)
	}
}

// Plans for GPUs are arithmetic: the same on every machine. UPDATE=1 writes the files anew.
func TestPlansForGPUs(t *testing.T) {
	for name, args := range map[string][]string{
		"plan_h200.txt":     {"--gpu", "h200", "--host-memory", "512GiB"},
		"plan_rtx-4090.txt": {"--gpu", "rtx-4090", "--batch", "4", "--context", "65536"},
	} {
		t.Run(name, func(t *testing.T) {
			got := succeed(t, "", append([]string{"plan", "-m", testdata + "release"}, args...)...).out
			golden.Check(t, name, got)
		})
	}
}

func TestTheJSONOfAPlanForAGPU(t *testing.T) {
	var got planReport
	if err := json.Unmarshal([]byte(succeed(t, "", "plan", "-m", testdata+"release", "--gpu", "h200", "--host-memory", "512GiB", "--json").out), &got); err != nil {
		t.Fatal(err)
	}
	if d := got.Device; d == nil || got.GPU.Name != "NVIDIA H200" || d.Need() != got.Need || d.ExpertsHost != got.Memory.Weights.Experts || got.Decode[0].Bus == 0 {
		t.Errorf("%+v", got)
	}
}

func TestAPlanForAGPUOfUnknownRatesIsOneOfMemory(t *testing.T) {
	for _, name := range []string{"9.0", "voodoo"} {
		r := succeed(t, "", "plan", "-m", testdata+"release", "--gpu", name, "--gpu-memory", "80GiB")
		if !strings.Contains(r.out, "In the memory of the GPU") || !strings.Contains(r.out, "No speed is predicted") || strings.Contains(r.out, "tok/s") {
			t.Errorf("%s", r.out)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(succeed(t, "", "plan", "-m", testdata+"release", "--gpu", name, "--gpu-memory", "80GiB", "--json").out), &got); err != nil {
			t.Fatal(err)
		}
		if got["device"] == nil || got["decode"] != nil || got["prefill"] != nil || got["kernels"] != nil {
			t.Errorf("%v", got)
		}
	}
}

func TestAPlanForAGPUSaysWhyAWishDoesNotFit(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown GPU", []string{"--gpu", "voodoo"}, `--gpu "voodoo": use one of b200, h200`},
		{"an old GPU", []string{"--gpu", "7.5", "--gpu-memory", "80GiB"}, "the kernels need compute capability 8.0"},
		{"no GPU", []string{"--gpu-memory", "8GiB"}, "there is no GPU to plan for"},
		{"small host", []string{"--gpu", "h200", "--host-memory", "64GiB", "--kv-host", "0"}, "fit on NVIDIA H200, 0 kB of snapshots) and has 68.7 GB"},
		{"context", []string{"--gpu", "l40s", "--context", "1048576", "--batch", "64"}, "lower --context to"},
		{"small GPU", []string{"--gpu", "h200", "--gpu-memory", "10GiB"}, "take a device with more memory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := cedrun(t, "", append([]string{"plan", "-m", testdata + "release"}, tc.args...)...)
			if r.status != 1 || !strings.Contains(r.err, tc.want) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("status %d, %q", r.status, r.err)
			}
		})
	}
}
