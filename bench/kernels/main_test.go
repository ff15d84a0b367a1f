package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

func kernels(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(append([]string{"--model", "../../testdata/mini/sched40", "--arena", "8388608", "--time", "1ms"}, args...), &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestEveryKernelOfTheHeaderIsTimed(t *testing.T) {
	var r report
	if err := json.Unmarshal([]byte(kernels(t, "--rows", "1,9", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	timed := map[string]int{}
	for _, x := range r.Results {
		timed[x.Kernel]++
		if x.Seconds <= 0 || x.Bytes <= 0 || x.Limit <= 0 || x.OfLimit <= 0 || x.Bound == "" {
			t.Errorf("%+v", x)
		}
	}
	header, err := os.ReadFile("../../cuda/ced.h")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`int ced_(\w+)\(ced_stream \*s, const ced_(\w+)_args \*a, ced_err`).FindAllStringSubmatch(string(header), -1) {
		if timed[m[1]] < 2 {
			t.Errorf("%s is timed %d times", m[1], timed[m[1]])
		}
		delete(timed, m[1])
	}
	if len(timed) > 0 {
		t.Errorf("no such kernels: %v", timed)
	}
}

func TestGathersOfAFewTokensAreShown(t *testing.T) {
	out := kernels(t, "--rows", "1,8", "--kernel", "engram_gather")
	for _, want := range []string{"1 ", "2 ", "6 ", "8 "} {
		if !regexp.MustCompile(`(?m)^engram_gather +\d+ table rows +` + want).MatchString(out) {
			t.Errorf("no line of %srows in\n%s", want, out)
		}
	}
	if strings.Contains(out, "dense_gemm") {
		t.Errorf("another kernel in\n%s", out)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"--rows", "1,0"}, {"--rows", "x"}, {"--model", "../../testdata/none"}} {
		if err := run(args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
