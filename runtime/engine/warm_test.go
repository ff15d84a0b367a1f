package engine

import (
	"context"
	"errors"
	"strings"
	"testing"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/plan"
)

func openFiles(t *testing.T, name string, o checkpoint.Options) *Files {
	t.Helper()
	f, err := OpenFiles(Source{Dir: mini + name}, o, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestWhatIsReadFirstDependsOnWhatFits(t *testing.T) {
	f := openFiles(t, "wide", checkpoint.Options{})
	w := f.weights()
	dense, experts, tables := f.size(w.dense), f.size(w.experts), f.size(w.tables)
	if all := dense + experts + tables; dense == 0 || experts == 0 || tables == 0 || all > f.Checkpoint.TotalSize() {
		t.Fatalf("%d + %d + %d bytes of %d", dense, experts, tables, f.Checkpoint.TotalSize())
	}
	buffers := plan.Buffers{KV: 1000}
	for _, tc := range []struct {
		name    string
		warm    Warm
		room    int64 // beside the buffers; -1 = unknown
		bytes   int64 // read; -1 = some of the experts
		experts bool
	}{
		{"off", WarmOff, -1, 0, false},
		{"all fits", WarmAuto, dense + experts, dense + experts, true},
		{"memory unknown", WarmAuto, -1, dense + experts, true},
		{"experts do not fit", WarmAuto, dense + experts - 1, dense, false},
		{"nothing fits", WarmAuto, dense - 1, 0, false},
		{"tables too", WarmPopulate, dense + experts + tables, dense + experts + tables, true},
		{"tables do not fit", WarmPopulate, dense + experts + tables - 1, dense + experts, true},
		{"part of the experts", WarmPopulate, dense + experts/2, -1, false},
	} {
		p := plan.Load{Buffers: buffers, Available: buffers.Total() + tc.room}
		if tc.room < 0 {
			p.Available = 0
		}
		names, all := f.choose(w, tc.warm, p)
		got := f.size(names)
		if tc.bytes < 0 && (got <= dense || got > dense+experts/2) || tc.bytes >= 0 && got != tc.bytes || all != tc.experts {
			t.Errorf("%s: %d bytes, all experts: %v", tc.name, got, all)
		}
	}
}

func TestWeightsAreReadWithProgress(t *testing.T) {
	for name, o := range map[string]checkpoint.Options{"mapped": {}, "not mapped": {NoMap: true}} {
		f := openFiles(t, "wide", o)
		var last, of int64
		w, err := f.Warm(t.Context(), Setup{Context: 64}, Warming{Mode: WarmAuto, Report: func(done, total int64) {
			if done <= last || total < done {
				t.Errorf("%s: %d of %d bytes done after %d", name, done, total, last)
			}
			last, of = done, total
		}})
		if err != nil {
			t.Fatal(err)
		}
		if !w.Experts || last != of || last != w.Read || w.Locked != 0 {
			t.Errorf("%s: %+v, %d of %d bytes reported", name, w, last, of)
		}
	}
}

func TestReadingWeightsCanBeCancelled(t *testing.T) {
	for name, o := range map[string]checkpoint.Options{"mapped": {}, "not mapped": {NoMap: true}} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := openFiles(t, "wide", o).Warm(ctx, Setup{Context: 64}, Warming{Mode: WarmAuto}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestARefusedLockNamesTheLimit(t *testing.T) {
	refused := errors.New("cannot allocate memory")
	if got := lockError(3e9, 8e6, 8<<20, refused).Error(); got != "--lock: the system refused to lock 3.0 GB of weights in memory (cannot allocate memory after 8.0 MB): "+
		"this process may lock 8.4 MB; raise that limit (ulimit -l, LimitMEMLOCK= of a systemd unit, --ulimit memlock of a container) or leave out --lock" {
		t.Error(got)
	}
	if got := lockError(3e9, 0, -1, refused).Error(); !strings.HasSuffix(got, "(cannot allocate memory after 0 kB): leave out --lock") {
		t.Error(got)
	}
}

func TestUnknownWarmModeNamesTheChoices(t *testing.T) {
	if _, err := ParseWarm("on"); err == nil || err.Error() != `"on": use auto, off or populate` {
		t.Errorf("error %v", err)
	}
}
