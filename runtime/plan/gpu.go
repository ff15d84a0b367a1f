package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// GPU is a kind of device: its memory as the driver counts it, and the rates of its data sheet.
type GPU struct {
	Name   string  `json:"name"`
	Memory int64   `json:"memory"`
	Read   float64 `json:"bytes_per_second"`
	BF16   float64 `json:"flops_per_second"`     // of matrix products with F32 sums, without sparsity
	Bus    float64 `json:"bus_bytes_per_second"` // from page-locked host memory, one way
	key    string  // of --gpu; its words are in the driver's name
}

// What a program reaches of the data sheet's rates with nothing but copies and products: 4.3 of 4.8 TB/s and 790 of 989
// TFLOP/s were measured on an H200.
const copyShare, productShare = 0.9, 0.8

// Reach is what a step is taken to reach of those rates. docs/kernels.md predicts more of single kernels; none was measured.
const Reach = 0.55

const (
	launchTime = 2e-6          // of a kernel
	sampleTime = 1e-3 / 129280 // of a logit, on the host: what is not greedy is sampled there
	driverTake = 512 << 20
)

const pcie4, pcie5 = 25e9, 50e9

// gpus are those whose rates are known.
var gpus = []GPU{
	{"NVIDIA B200", 183359 << 20, 8e12, 2250e12, pcie5, "b200"},
	{"NVIDIA H200", 143771 << 20, 4.8e12, 989e12, pcie5, "h200"},
	{"NVIDIA H100 PCIe", 81559 << 20, 2e12, 756e12, pcie5, "h100-pcie"},
	{"NVIDIA H100 SXM", 81559 << 20, 3.35e12, 989e12, pcie5, "h100"},
	{"NVIDIA A100 80GB", 81920 << 20, 2.0e12, 312e12, pcie4, "a100"},
	{"NVIDIA A100 40GB", 40960 << 20, 1.55e12, 312e12, pcie4, "a100-40gb"},
	{"NVIDIA L40S", 46068 << 20, 0.864e12, 362e12, pcie4, "l40s"},
	{"NVIDIA RTX 6000 Ada", 49140 << 20, 0.96e12, 364e12, pcie4, "rtx-6000-ada"},
	{"NVIDIA RTX PRO 6000 Blackwell", 97887 << 20, 1.79e12, 500e12, pcie5, "rtx-pro-6000"},
	{"NVIDIA GeForce RTX 4090", 24564 << 20, 1.01e12, 165e12, pcie4, "rtx-4090"},
	{"NVIDIA GeForce RTX 5090", 32607 << 20, 1.79e12, 210e12, pcie5, "rtx-5090"},
}

// FindGPU is the GPU of a name as --gpu takes it.
func FindGPU(name string) (GPU, error) {
	var names []string
	for _, g := range gpus {
		if g.key == strings.ToLower(name) {
			return g, nil
		}
		names = append(names, g.key)
	}
	return GPU{}, fmt.Errorf("%q: use one of %s; for another, give --gpu-memory too: its memory is planned, and no speed predicted", name, strings.Join(names, ", "))
}

// OtherGPU is one whose rates are not known: by name, or by compute capability (9.0 or sm_90), which the kernels may refuse.
func OtherGPU(name string, memory int64) (GPU, error) {
	if capability, ok := parseCapability(name); ok {
		if capability < leastCapability {
			return GPU{}, fmt.Errorf("%q: the kernels need compute capability %d.%d or later", name, leastCapability/10, leastCapability%10)
		}
		name = fmt.Sprintf("GPU of compute capability %d.%d", capability/10, capability%10)
	}
	return GPU{Name: name, Memory: memory}, nil
}

const leastCapability = 80

// parseCapability reads 9.0, sm_90 and sm_90a as 90.
func parseCapability(s string) (int, bool) {
	if digits, ok := strings.CutPrefix(strings.ToLower(s), "sm_"); ok {
		n, err := strconv.Atoi(strings.TrimRight(digits, "af"))
		return n, err == nil && n >= 10
	}
	major, minor, ok := strings.Cut(s, ".")
	a, aerr := strconv.Atoi(major)
	b, berr := strconv.Atoi(minor)
	return 10*a + b, ok && aerr == nil && berr == nil && a > 0 && b >= 0 && b < 10
}

// Known reports whether the rates are, so that speed can be predicted.
func (g *GPU) Known() bool { return g.Read > 0 }

// KnownGPU is the GPU that a driver calls so, if its rates are known.
func KnownGPU(name string) (best GPU, known bool) {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == ' ' || r == '-' })
	for _, g := range gpus {
		lacks := func(word string) bool { return !slices.Contains(words, word) }
		if !slices.ContainsFunc(strings.Split(g.key, "-"), lacks) && len(g.key) > len(best.key) {
			best, known = g, true
		}
	}
	return best, known
}

// Device is its memory with nothing else running.
func (g *GPU) Device() Device {
	return Device{Name: g.Name, Total: g.Memory, Free: g.Memory - driverTake}
}

// seconds is the time of a call: what its bytes or its products take, whichever is more, and a launch.
func (g *GPU) seconds(c *Call) float64 {
	switch c.Kernel {
	case Layer: // the host is ahead of the device
		return 0
	case Sample:
		return c.Rows * float64(c.N) * sampleTime
	}
	product := g.BF16 * productShare * Reach
	if c.Kernel == Index { // 8-bit integers
		product *= 2
	}
	return launchTime + max((c.Bytes()+c.Lookup)/(g.Read*copyShare*Reach), c.FLOPs()/product)
}
