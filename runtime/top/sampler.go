package top

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"cedrun/runtime/gpu"
	"cedrun/runtime/host"
	"cedrun/runtime/telemetry"
)

// patience is how long a process may take to answer.
const patience = 2 * time.Second

// Sampler makes views.
type Sampler struct {
	mu     sync.Mutex
	gpus   *gpu.Monitor
	host   *host.Meter
	dir    string
	fixed  string // socket that was asked for; "" = any in dir
	chosen string // socket that is looked at
	client *telemetry.Client
	last   *telemetry.Snapshot
}

// NewSampler reads this machine, and the process at socket, or, if that is empty, the youngest that publishes in dir.
func NewSampler(dir, socket string) *Sampler {
	return &Sampler{gpus: gpu.Open(), host: host.NewMeter(os.DirFS("/")), dir: dir, fixed: socket}
}

// Close ends what the sampler uses. A driver that hangs in a Sample is left alone: what is open ends with the process.
func (s *Sampler) Close() {
	for end := time.Now().Add(patience); !s.mu.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return
		}
	}
	defer s.mu.Unlock()
	s.detach()
	s.gpus.Close()
}

// Attached tries the process that was asked for, so that a wrong one is an error at once.
func (s *Sampler) Attached(ctx context.Context) error {
	if s.fixed == "" {
		return nil
	}
	s.chosen = s.fixed
	return s.attach(ctx)
}

// Sample reads everything once. Rates are those since the last call.
func (s *Sampler) Sample(ctx context.Context) *View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &View{At: time.Now(), GPU: s.gpus.Read(), Processes: []telemetry.Endpoint{}}
	v.Host = s.host.Read(time.Now())
	if s.fixed == "" {
		found, err := telemetry.Find(s.dir)
		if err != nil {
			v.Note = err.Error()
		}
		v.Processes = append(v.Processes, found...)
		if len(found) > 0 && !slices.ContainsFunc(found, func(e telemetry.Endpoint) bool { return e.Path == s.chosen }) {
			s.choose(found[0].Path)
		}
	}
	if s.chosen == "" && s.fixed != "" {
		s.chosen = s.fixed
	}
	if s.chosen != "" {
		s.look(ctx, v)
	}
	return v
}

// look asks the chosen process.
func (s *Sampler) look(ctx context.Context, v *View) {
	err := s.attach(ctx)
	if err == nil {
		ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v", patience))
		defer cancel()
		v.Snapshot, err = s.client.Snapshot(ctx)
	}
	if err != nil {
		v.Note = err.Error()
		s.detach()
		if s.fixed == "" {
			s.chosen = ""
		}
		return
	}
	v.Rates = telemetry.Between(s.last, v.Snapshot)
	v.Process = s.host.Process(v.Snapshot.Process.PID, v.At)
	s.last = v.Snapshot
}

func (s *Sampler) attach(ctx context.Context) (err error) {
	if s.client == nil {
		s.client, err = telemetry.Dial(ctx, s.chosen)
	}
	return err
}

func (s *Sampler) detach() {
	if s.client != nil {
		_ = s.client.Close()
	}
	s.client, s.last = nil, nil
}

func (s *Sampler) choose(path string) {
	if path != s.chosen {
		s.detach()
		s.chosen = path
	}
}

// Next chooses the process that is step places after the one that is looked at.
func (s *Sampler) Next(v *View, step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(v.Processes)
	if n == 0 || s.fixed != "" {
		return
	}
	i := slices.IndexFunc(v.Processes, func(e telemetry.Endpoint) bool { return e.Path == s.chosen })
	s.choose(v.Processes[((i+step)%n+n)%n].Path)
}
