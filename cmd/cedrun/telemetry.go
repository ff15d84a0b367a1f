package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/profile"
	"cedrun/runtime/telemetry"
	"cedrun/runtime/telemetry/publish"
)

// publish lets cedrun top and cedrun profile look at a command whose engine is started with setup.
func (con *console) publish(command string, setup *engine.Setup) *publish.Publisher {
	r := profile.NewRecorder()
	var shown atomic.Pointer[publish.Publisher] // questions may come before New returns
	about := func() (s profile.Subject, geometry json.RawMessage, err error) {
		var inst *engine.Instance
		if p := shown.Load(); p != nil {
			inst = p.Instance()
		}
		switch {
		case inst == nil:
			return s, nil, fmt.Errorf("process %d is still loading its model: try again when it is ready", os.Getpid())
		case inst.Setup.Backend == ced.CUDA:
			return s, nil, errAttachDevice
		}
		geometry, err = readGeometry(inst.Source)
		return subjectOf(inst), geometry, err
	}
	pub := publish.New(telemetry.Dir(), command, version(), con.log, map[string]telemetry.Answer{profile.Want: r.Answer(about)})
	shown.Store(pub)
	setup.Trace, setup.Observe = r.Trace(), func(s engine.Step) {
		r.Observe(s)
		pub.Observe(s)
	}
	return pub
}

var errAttachDevice = errors.New("that process computes on a device, whose steps a profile would slow down: profile a request of its own, with cedrun profile --backend cuda")

// readGeometry is a model's config.json.
func readGeometry(src engine.Source) (json.RawMessage, error) {
	if src.FS != nil {
		return fs.ReadFile(src.FS, "config.json")
	}
	return os.ReadFile(filepath.Join(src.Dir, "config.json"))
}

// subjectOf says what runs, where each request has a prefill mode of its own.
func subjectOf(inst *engine.Instance) profile.Subject {
	s := profile.Subject{
		Model: inst.Source.Name(), Backend: inst.Setup.Backend.String(), ISA: ced.ISA(), Threads: inst.Threads(), Chunk: inst.Setup.Chunk,
	}
	if inst.Setup.Backend == ced.CUDA {
		d, err := ced.DeviceInfo(inst.Setup.Device)
		if err != nil { // it has failed meanwhile
			d.Name = fmt.Sprintf("device %d", inst.Setup.Device)
		}
		s.Device, s.ISA, s.Simulated = d.Name, "compute capability "+d.Capability(), ced.Simulated
	}
	return s
}
