package profile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Tracks of a trace: processes and their threads.
const (
	enginePID, layersPID = 1, 2
	engineTID            = 1
	outsideTID           = 1 // of what belongs to no layer
	firstLayerTID        = 2
)

// traceEvent is an event of the Trace Event Format: metadata (M), a slice (X) or a counter (C). Times are microseconds.
type traceEvent struct {
	Name string         `json:"name"`
	Cat  string         `json:"cat,omitempty"`
	Ph   string         `json:"ph"`
	TS   json.Number    `json:"ts,omitempty"`
	Dur  json.Number    `json:"dur,omitempty"`
	PID  int            `json:"pid"`
	TID  int            `json:"tid"`
	Args map[string]any `json:"args,omitempty"`
}

// WriteTrace writes a recording as JSON in the Trace Event Format, which Perfetto and Chrome read: the engine's thread
// with its steps, layers, parts and kernels within each other, a track of the parts of each layer, and counters of rows.
func (r *Report) WriteTrace(w io.Writer, rec *Recording) error {
	t := &tracer{w: bufio.NewWriter(w)}
	if len(rec.Steps) > 0 {
		t.epoch = rec.Steps[0].Began
	}
	_, t.err = io.WriteString(t.w, `{"displayTimeUnit":"ms","otherData":{"model":`+quote(r.Model)+`,"backend":`+quote(r.Backend)+`,"isa":`+quote(r.ISA)+
		`,"threads":`+quote(strconv.Itoa(r.Threads))+r.device()+`},"traceEvents":[`)
	t.tracks(r, rec)
	for i := range rec.Steps {
		t.step(i, &rec.Steps[i])
	}
	if t.err == nil {
		_, t.err = io.WriteString(t.w, "\n]}\n")
	}
	if err := t.w.Flush(); t.err == nil {
		t.err = err
	}
	if t.err != nil {
		return fmt.Errorf("write trace: %w", t.err)
	}
	return nil
}

// device is what a trace says of one.
func (s *Subject) device() string {
	switch {
	case s.Simulated:
		return `,"device":` + quote(s.Device) + `,"simulated":` + quote(simulated)
	case s.Device != "":
		return `,"device":` + quote(s.Device)
	}
	return ""
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}

type tracer struct {
	w     *bufio.Writer
	epoch time.Duration
	begun bool
	err   error
}

func (t *tracer) emit(e traceEvent) {
	if t.err != nil {
		return
	}
	b, err := json.Marshal(e)
	if err != nil {
		t.err = err
		return
	}
	if t.begun {
		t.w.WriteByte(',')
	}
	t.begun = true
	t.w.WriteByte('\n')
	_, t.err = t.w.Write(b)
}

// micros writes a time in microseconds, whole nanoseconds kept.
func micros(d time.Duration) json.Number {
	return json.Number(strconv.FormatFloat(float64(d)/1e3, 'f', 3, 64))
}

// tracks names processes and threads, in the order in which they are to be shown.
func (t *tracer) tracks(r *Report, rec *Recording) {
	meta := func(name string, pid, tid int, key string, value any) {
		t.emit(traceEvent{Name: name, Ph: "M", PID: pid, TID: tid, Args: map[string]any{key: value}})
	}
	thread := func(pid, tid int, name string) {
		meta("thread_name", pid, tid, "name", name)
		meta("thread_sort_index", pid, tid, "sort_index", tid)
	}
	meta("process_name", enginePID, 0, "name", "cedrun "+r.Model)
	meta("process_sort_index", enginePID, 0, "sort_index", enginePID)
	thread(enginePID, engineTID, "engine")
	meta("process_name", layersPID, 0, "name", "layers")
	meta("process_sort_index", layersPID, 0, "sort_index", layersPID)
	thread(layersPID, outsideTID, "outside layers")
	layers := 0
	for i := range rec.Steps {
		for _, e := range rec.Steps[i].Events {
			layers = max(layers, e.Layer+1)
		}
	}
	for l := range layers {
		thread(layersPID, firstLayerTID+l, fmt.Sprintf("layer %d", l))
	}
}

func (t *tracer) slice(name, cat string, pid, tid int, start, took time.Duration, args map[string]any) {
	t.emit(traceEvent{Name: name, Cat: cat, Ph: "X", TS: micros(start - t.epoch), Dur: micros(took), PID: pid, TID: tid, Args: args})
}

func (t *tracer) step(n int, s *Step) {
	rows := map[string]any{"prefill": s.Prefill, "decode": s.Decode}
	t.slice(phaseOf(s), "step", enginePID, engineTID, s.Began, s.Took, map[string]any{"step": n, "prefill": s.Prefill, "decode": s.Decode})
	t.emit(traceEvent{Name: "rows", Ph: "C", TS: micros(s.Began - t.epoch), PID: enginePID, TID: engineTID, Args: rows})
	layer, from, to := -1, time.Duration(0), time.Duration(0) // of the sections since the layer began
	flush := func() {
		if layer >= 0 {
			t.slice(fmt.Sprintf("layer %d", layer), "layer", enginePID, engineTID, from, to-from, map[string]any{"layer": layer})
		}
	}
	for _, e := range s.Events {
		if e.Kernel != "" {
			t.slice(e.Kernel, "kernel", enginePID, engineTID, e.Start, e.Took, map[string]any{"part": e.Part, "layer": e.Layer})
			continue
		}
		if e.Layer != layer {
			flush()
			layer, from = e.Layer, e.Start
		}
		to = e.Start + e.Took
		t.slice(e.Part, "part", enginePID, engineTID, e.Start, e.Took, map[string]any{"layer": e.Layer})
		tid := outsideTID
		if e.Layer >= 0 {
			tid = firstLayerTID + e.Layer
		}
		t.slice(e.Part, "part", layersPID, tid, e.Start, e.Took, nil)
	}
	flush()
}
