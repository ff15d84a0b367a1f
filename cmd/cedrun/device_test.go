//go:build sim

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// simulated runs the program in a process of its own: the simulated devices are as env says from its start.
func simulated(t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := simulatedCommand(t, env, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the status says it
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

func simulatedCommand(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = slices.Concat(os.Environ(), []string{asProgram + "=1"}, env)
	return cmd
}

func logitsTo(t *testing.T, env []string, args ...string) (r result, logits []byte) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "logits.safetensors")
	r = simulated(t, env, append([]string{"logits", "-m", testdata + "mini/calm", "--ids", "1,2,3", "--out", out}, args...)...)
	logits, _ = os.ReadFile(out)
	return r, logits
}

// auto takes a device that is there, has kernels in the build and computes rightly, and says in one line why it does not.
func TestAutoTakesADeviceThatWorks(t *testing.T) {
	_, cpu := logitsTo(t, nil, "--backend", "cpu")
	_, device := logitsTo(t, nil, "--backend", "cuda")
	if bytes.Equal(cpu, device) || len(device) == 0 {
		t.Fatal("the bits do not tell the back ends apart")
	}
	for _, c := range []struct {
		name string
		env  []string
		want []byte
		why  string // empty: nothing is said
	}{
		{"a simulated device is not taken unasked", nil, cpu, ""},
		{"asked", []string{"CED_SIM_AUTO=1"}, device, ""},
		{"no device", []string{"CED_SIM_AUTO=1", "CED_SIM_DEVICES=0"}, cpu, "no CUDA device: no CUDA-capable device is detected; computing on the CPU"},
		{"older than all kernels", []string{"CED_SIM_AUTO=1", "CED_SIM_CAPABILITY=75"}, cpu, "simulated device 0 has compute capability 7.5, the kernels need 8.0"},
		{"an architecture without kernels", []string{"CED_SIM_AUTO=1", "CED_SIM_CAPABILITY=120"}, cpu, "simulated device 0 has compute capability 12.0, and this build has kernels for 9.x only"},
		{"a device that fails", []string{"CED_SIM_AUTO=1", "CED_SIM_FAULT=5"}, cpu, "self-test: kernel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, got := logitsTo(t, c.env)
			if r.status != 0 || !bytes.Equal(got, c.want) {
				t.Errorf("status %d, other bits than wanted: %t\n%s", r.status, !bytes.Equal(got, c.want), r.err)
			}
			lines := 1
			if c.why == "" {
				lines = 0
			}
			if !strings.Contains(r.err, c.why) || strings.Count(r.err, "\n") != lines {
				t.Errorf("said %q", r.err)
			}
		})
	}
}

func TestEveryDeviceComputesTheSameBits(t *testing.T) {
	env := []string{"CED_SIM_DEVICES=3"}
	_, want := logitsTo(t, env, "--backend", "cuda")
	if _, got := logitsTo(t, env, "--backend", "cuda", "--device", "2"); !bytes.Equal(got, want) {
		t.Error("device 2 has other bits than device 0")
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--backend", "cuda", "--device", "3"}, "there is no CUDA device 3: this machine has 3, counted from 0"},
		{[]string{"--backend", "cpu", "--device", "1"}, "the back end cpu has none"},
		{[]string{"--backend", "cpu", "--expert-compute", "cpu"}, "--expert-compute: the back end cpu computes all experts; use --backend cuda"},
		{[]string{"--backend", "cuda", "--expert-compute", "host"}, "--expert-compute \"host\": use device or cpu"},
	} {
		if r, _ := logitsTo(t, env, c.args...); r.status != 1 || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: status %d, %q", c.args, r.status, r.err)
		}
	}
}

// A model that a device has no room for is refused before it is loaded, in a sentence that says what takes how much.
func TestADeviceThatIsTooSmallIsRefusedInOneSentence(t *testing.T) {
	r, _ := logitsTo(t, []string{"CED_SIM_MEMORY=9"}, "--backend", "cuda")
	if r.status != 1 || strings.Count(r.err, "\n") != 1 {
		t.Errorf("status %d, %q", r.status, r.err)
	}
	for _, want := range []string{"of memory on simulated device 0", "of weights that every token reads", "of KV cache", "and has 9.4 MB", "--backend cpu"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("lacks %q: %s", want, r.err)
		}
	}
}

// A server whose device lacks memory for a step answers that request with 503 and goes on; one whose device fails for good
// answers with 503 and ends with status 1 and one sentence.
func TestAServerOutlivesMissingMemoryAndEndsWithItsDevice(t *testing.T) {
	for _, c := range []struct {
		name, env, code string
		ends            bool
	}{
		{"memory", "CED_SIM_NOMEM=60", "out_of_memory", false},
		{"fault", "CED_SIM_FAULT=60", "device_failed", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := simulatedCommand(t, []string{c.env}, "serve", "-m", small(t), "--backend", "cuda", "--port", "0", "--no-self-test", "--max-batch", "1", "--context", "64", "--kv-host", "1MiB", "--kv-device", "1MiB", "--no-graphs", "--log-level", "error")
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill() }()
			url, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err, errs.String())
			}
			ask := func() (int, string) {
				resp, err := http.Post(strings.TrimSpace(url)+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"ab","max_tokens":1}`))
				if err != nil {
					t.Fatal(err, errs.String())
				}
				defer resp.Body.Close()
				var body struct{ Error struct{ Code string } }
				if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
					t.Fatal(err)
				}
				return resp.StatusCode, body.Error.Code
			}
			if status, code := ask(); status != 503 || code != c.code {
				t.Errorf("status %d, code %q", status, code)
			}
			if !c.ends {
				if status, _ := ask(); status != 200 {
					t.Errorf("the next request: %d\n%s", status, errs.String())
				}
				return
			}
			_ = cmd.Wait()
			last := errs.String()[strings.LastIndex(strings.TrimSpace(errs.String()), "\n")+1:]
			if want := "cedrun: the device failed and takes no more work: download: an illegal memory access"; cmd.ProcessState.ExitCode() != 1 || !strings.HasPrefix(last, want) {
				t.Errorf("status %d, %q", cmd.ProcessState.ExitCode(), last)
			}
		})
	}
}

// What a device has no room for is computed on the CPU if nobody asked for the device, with one line that says why: by every
// command that computes.
func TestAutoComputesOnTheCPUWhatADeviceHasNoRoomFor(t *testing.T) {
	for _, args := range [][]string{
		{"logits", "--ids", "1,2,3", "--out", filepath.Join(t.TempDir(), "logits.safetensors")},
		{"bench", "--contexts", "4", "--modes", "", "--repeat", "1", "--steps", "1"},
		{"profile", "--prompt-tokens", "4", "--tokens", "2"},
		{"conform"},
		{"plan", "--batch", "8"},
	} {
		t.Run(args[0], func(t *testing.T) {
			args := slices.Concat(args, []string{"-m", testdata + "mini/calm", "--backend", "auto"})
			r := simulated(t, []string{"CED_SIM_AUTO=1", "CED_SIM_MEMORY=16"}, args...)
			if r.status != 0 || strings.Count(r.err, "; computing on the CPU") != 1 {
				t.Errorf("status %d, %q", r.status, r.err)
			}
			for _, want := range []string{"of memory on simulated device 0", "of weights that every token reads", "and has 16.8 MB; computing"} {
				if !strings.Contains(r.err, want) {
					t.Errorf("lacks %q: %s", want, r.err)
				}
			}
		})
	}
}

func TestPlanTakesTheDeviceThatThereIs(t *testing.T) {
	r := simulated(t, []string{fmt.Sprintf("CED_SIM_MEMORY=%d", 100<<10)}, "plan", "-m", testdata+"release", "--backend", "cuda", "--host-memory", "1TiB")
	if r.status != 0 || !strings.Contains(r.out, "No speed is predicted: the rates of simulated device 0 are not known") || strings.Contains(r.out, "tok/s") {
		t.Errorf("status %d, %q, %s", r.status, r.err, r.out)
	}
	r = simulated(t, []string{fmt.Sprintf("CED_SIM_MEMORY=%d", 100<<10)}, "plan", "-m", testdata+"release", "--backend", "cuda", "--gpu", "h100", "--host-memory", "1TiB")
	if r.status != 0 || !strings.Contains(r.out, "107 GB   free") || !strings.Contains(r.out, "captured steps") {
		t.Errorf("status %d, %s%s", r.status, r.out, r.err)
	}
}

// What a text has when its device fails stays, on a line of its own, and the error is one sentence.
func TestATextThatEndsWithItsDeviceEndsItsLine(t *testing.T) {
	r := simulated(t, []string{"CED_SIM_FAULT=900"}, "generate", "--backend", "cuda", "--no-self-test", "--no-graphs", "--max-tokens", "100", "-p", "In the")
	if r.status != exitError || len(r.out) < 2 || !strings.HasSuffix(r.out, "\n") || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, "the device failed") {
		t.Errorf("status %d, %q, %q", r.status, r.out, r.err)
	}
}
