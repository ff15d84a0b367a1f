//go:build cuda

package driver

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A libcuda.so.1 with two devices: as much of a driver as Devices asks for.
const fake = `
#include <string.h>
int cuInit(unsigned flags) { return INIT; }
int cuDriverGetVersion(int *v) { return *v = 12080, 0; }
int cuDeviceGetCount(int *n) { return *n = 2, 0; }
int cuDeviceGet(int *d, int i) { return *d = i, 0; }
int cuDeviceGetName(char *s, int n, int d) { return strncpy(s, d ? "second" : "first", n), 0; }
int cuDeviceGetUuid(char *id, int d) { return memset(id, 0x10 + d, 16), 0; }
int cuDeviceGetUuid_v2(char *id, int d) { return cuDeviceGetUuid(id, d); }
int cuDeviceTotalMem_v2(unsigned long *n, int d) { return *n = 141ul << 30, 0; }
int cuDeviceGetAttribute(int *v, int a, int d) {
  switch (a) {
    case 16: return *v = 132, 0;
    case 18: return *v = d, 0;
    case 32: return *v = 1, 0;
    case 36: return *v = 3201000, 0;
    case 37: return *v = 6144, 0;
    case 38: return *v = 60 << 20, 0;
    case 40: return *v = 3, 0;
    case 75: return *v = 9, 0;
    case 76: return *v = 0, 0;
    case 81: return *v = 228 << 10, 0;
  }
  return 1;
}
`

type answer struct {
	Devices []Device
	Version string
	Err     string
}

// The loader reads its search path when a process starts, so a test asks in a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("CEDRUN_TEST_ASK") == "" {
		os.Exit(m.Run())
	}
	var a answer
	var err error
	if a.Devices, err = Devices(); err != nil {
		a.Err = err.Error()
	}
	a.Version = Version()
	_ = json.NewEncoder(os.Stdout).Encode(a)
}

// ask returns what a process says that finds the libraries of dir first.
func ask(t *testing.T, dir string) (a answer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "CEDRUN_TEST_ASK=1", "LD_LIBRARY_PATH="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return a
}

// driver builds a library out of source.
func driver(t *testing.T, source string, flags ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	c := filepath.Join(dir, "driver.c")
	if err := os.WriteFile(c, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", filepath.Join(dir, "libcuda.so.1"), c}, flags...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Skipf("no C compiler: %v\n%s", err, out)
	}
	return dir
}

func TestDevicesAreAsTheDriverDescribesThem(t *testing.T) {
	got := ask(t, driver(t, fake, "-DINIT=0"))
	one := Device{
		Name: "first", UUID: "GPU-10101010-1010-1010-1010-101010101010", Major: 9, Processors: 132, Memory: 141 << 30,
		Bandwidth: 4916736e6, L2: 60 << 20, SharedPerSM: 228 << 10, CopyEngines: 3, ECC: true,
	}
	two := one
	two.Name, two.UUID, two.Integrated = "second", "GPU-11111111-1111-1111-1111-111111111111", true
	if d := cmp.Diff(answer{Devices: []Device{one, two}, Version: "12.8"}, got); d != "" {
		t.Error(d)
	}
}

func TestWithoutAUsableDriverThereAreNoDevices(t *testing.T) {
	for name, dir := range map[string]string{
		"no GPU":        driver(t, fake, "-DINIT=100"),
		"the stub":      driver(t, fake, "-DINIT=34"),
		"not a driver":  driver(t, "int present;"),
		"not a library": t.TempDir(),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "not a library" {
				if err := os.WriteFile(filepath.Join(dir, "libcuda.so.1"), []byte("text"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(answer{Devices: []Device{}}, ask(t, dir)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAFunctionThatADriverLacksIsAnError(t *testing.T) {
	got := ask(t, driver(t, "int cuInit(unsigned f) { return 0; }\nint cuDeviceGetCount(int *n) { return *n = 1, 0; }"))
	if got.Err == "" || got.Version != "" {
		t.Errorf("%+v", got)
	}
}
