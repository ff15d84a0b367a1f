package main

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"testing"

	"cedrun/runtime/doctor"
)

func TestDoctorLooksAtThisMachine(t *testing.T) {
	r := succeed(t, "", "doctor", "-m", testdata+"mini/base", "--port", "0", "--json")
	var report doctor.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatal(err)
	}
	if !report.OK || report.Faults != 0 || len(report.Lines) < 12 {
		t.Errorf("%+v", report)
	}
	out := succeed(t, "", "doctor", "--port", "0").out // the embedded model
	for _, want := range []string{"Processor\n", "GPU\n", "architectures", "checkpoint", " 0 faults\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestAFaultOfTheMachineIsTheExitStatus(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	for name, tc := range map[string]struct{ args, out, err string }{
		"port":        {"--port " + port, "address already in use", "checks found a fault"},
		"model":       {"--port 0 --no-disk -m " + t.TempDir(), "config.json is missing", "checks found a fault"},
		"no such dir": {"-m /nonexistent", "", "--model: stat /nonexistent: no such file"},
		"a config":    {"-m " + testdata + "mini/base/config.json", "", "is a file: give the directory"},
		"threads":     {"--threads 9999", "", "--threads 9999: use 1 to 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			r := cedrun(t, "", append([]string{"doctor"}, strings.Fields(tc.args)...)...)
			if r.status != exitError || !strings.Contains(r.out, tc.out) || !strings.Contains(r.err, tc.err) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("status %d, %q\n%s", r.status, r.err, r.out)
			}
		})
	}
}

func TestDoctorKnowsWhatTheProgramWasBuiltFor(t *testing.T) {
	for architectures, want := range map[string]string{
		"": "", "80-real;89-real;90a-real": "sm_80 sm_89 sm_90a", "80-real;90": "sm_80 sm_90 compute_90", " 120-virtual ": "compute_120",
	} {
		if got := strings.Join(built(architectures, "12.4").Archs, " "); got != want {
			t.Errorf("%q: %q, want %q", architectures, got, want)
		}
	}
}
