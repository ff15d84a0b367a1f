package selftest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	ced "cedrun/cuda"
)

func stream(t testing.TB, k ced.Kind, threads int) *ced.Stream {
	t.Helper()
	s, err := ced.Open(k, 0, threads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestEveryKernelOfEveryBackEndPasses(t *testing.T) {
	for _, k := range []ced.Kind{ced.Ref, ced.CPU} {
		for _, threads := range []int{1, 3} {
			if err := Kernels(stream(t, k, threads)); err != nil {
				t.Errorf("%s, %d threads: %v", k, threads, err)
			}
		}
	}
}

// The cases of devices are right on the CPU, too, where no start runs them.
func TestTheFormsOfDevicesForManyRowsAreRightOnTheCPU(t *testing.T) {
	if err := compare(stream(t, ced.CPU, 2), stream(t, ced.Ref, 1), promptCases); err != nil {
		t.Error(err)
	}
}

func TestEveryKernelOfTheHeaderHasACase(t *testing.T) {
	header, err := os.ReadFile("../../cuda/ced.h")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, c := range kernelCases {
		tested[c.kernel] = true
	}
	found := regexp.MustCompile(`ced_(\w+)\(ced_stream \*s, const ced_\w+_args \*a, ced_err`).FindAllStringSubmatch(string(header), -1)
	if len(found) < 15 {
		t.Fatalf("%d kernels found in ced.h", len(found))
	}
	for _, f := range found {
		if !tested[f[1]] {
			t.Errorf("kernel %s has no case", f[1])
		}
	}
}

// A fault is put into a case on the stream under test only, as a wrong kernel would be.
func TestAWrongKernelIsNamed(t *testing.T) {
	find := func(kernel string) kernelCase {
		for _, c := range kernelCases {
			if c.kernel == kernel {
				return c
			}
		}
		t.Fatalf("no case of %s", kernel)
		return kernelCase{}
	}
	faults := map[string]func(r *rig, o output) error{
		"all zero":          func(r *rig, o output) error { return r.s.Fill(o.addr, 0, o.n*sizes[o.kind]) },
		"not written":       func(r *rig, o output) error { return r.s.Fill(o.addr, 0xFF, o.n*sizes[o.kind]) },
		"first row missing": func(r *rig, o output) error { return r.s.Fill(o.addr, 0, o.width*sizes[o.kind]) },
	}
	for _, kernel := range []string{"norm_quant", "dense_gemm", "route", "csa2_index", "csa2_attend", "kv_append", "expert_gemm", "window_pack"} {
		for name, fault := range faults {
			t.Run(kernel+"/"+name, func(t *testing.T) {
				c := find(kernel)
				good := c.prepare
				c.prepare = func(r *rig) func() error {
					call := good(r)
					if r.s.Kind() == ced.Ref {
						return call
					}
					return func() error {
						if err := call(); err != nil {
							return err
						}
						return fault(r, r.out[0])
					}
				}
				err := compare(stream(t, ced.CPU, 1), stream(t, ced.Ref, 1), []kernelCase{find("embed"), c})
				if err == nil || !strings.Contains(err.Error(), "kernel "+kernel) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %v does not name the kernel in one line", err)
				}
			})
		}
	}
}

func TestAKernelThatFailsIsNamed(t *testing.T) {
	bad := kernelCase{"embed", "token outside the table", func(r *rig) func() error {
		a := ced.EmbedArgs{Rows: r.rows(), Table: r.bf16s(dim), MaxRows: rows, Vocab: 1, Dim: dim, Streams: streams,
			H: r.poison("h", bf16, rows*streams*dim, dim), Pre: r.poison("pre", f32, rows*streams, streams)}
		return func() error { return r.s.Embed(&a) }
	}}
	err := compare(stream(t, ced.CPU, 1), stream(t, ced.Ref, 1), []kernelCase{bad})
	if err == nil || !strings.Contains(err.Error(), "kernel embed (token outside the table)") {
		t.Errorf("error %v", err)
	}
}

func BenchmarkKernels(b *testing.B) {
	s := stream(b, ced.CPU, 0)
	for b.Loop() {
		if err := Kernels(s); err != nil {
			b.Fatal(err)
		}
	}
}
