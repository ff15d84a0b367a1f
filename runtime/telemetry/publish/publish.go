// Package publish puts a running engine on the telemetry socket.
//
// Until somebody asks, a step pays for its counters and one load of a flag. The machine's limits are measured when
// somebody looks: between two steps, since a measurement beside a step would be wrong for both; it takes some hundredths
// of a second.
package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/engine"
	"cedrun/runtime/inventory"
	"cedrun/runtime/kv"
	"cedrun/runtime/kv/disk"
	"cedrun/runtime/machine"
	"cedrun/runtime/model"
	"cedrun/runtime/plan"
	"cedrun/runtime/telemetry"
)

// Publisher answers for a process, from its start to its end.
type Publisher struct {
	log    zerolog.Logger
	server *telemetry.Server
	inst   atomic.Pointer[engine.Instance]
	state  atomic.Int32 // of the pause for a measurement
	paused chan struct{}
	resume chan struct{}
	ended  chan struct{}
	end    sync.Once
	wait   sync.WaitGroup

	mu      sync.Mutex // of what follows
	process telemetry.Process
	limits  *machine.Rates
	probes  int       // so far
	probed  time.Time // when the last one began
	active  *inventory.Active
	prompt  promptCost
}

// promptCost remembers what was computed for a kind of prompt.
type promptCost struct {
	tokens int
	mode   model.Prefill
	active int64
	least  float64 // seconds per token
}

// New listens in dir for a command. Without a socket nothing can be looked at, which is a warning in log and no more.
// more holds answers beside the snapshot's.
func New(dir, command, version string, log zerolog.Logger, more map[string]telemetry.Answer) *Publisher {
	p := &Publisher{
		process: telemetry.Process{PID: os.Getpid(), Command: command, Version: version, Started: time.Now()},
		log:     log, paused: make(chan struct{}), resume: make(chan struct{}), ended: make(chan struct{}),
	}
	answers := map[string]telemetry.Answer{telemetry.WantSnapshot: p.answer}
	maps.Copy(answers, more)
	var err error
	if p.server, err = telemetry.Listen(dir, answers); err != nil {
		log.Warn().Err(err).Msg("cedrun top cannot look at this process")
	}
	return p
}

// Address says where a server listens.
func (p *Publisher) Address(url string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process.Address = url
}

// Show offers an engine to viewers. Its setup had Observe. The closer that it returns closes the publisher, then the
// engine.
func (p *Publisher) Show(inst *engine.Instance) io.Closer {
	p.inst.Store(inst)
	return shown{p, inst}
}

// Instance is the engine that is shown; nil before and after.
func (p *Publisher) Instance() *engine.Instance { return p.inst.Load() }

type shown struct {
	*Publisher
	inst *engine.Instance
}

func (s shown) Close() error {
	s.Publisher.Close()
	return s.inst.Close()
}

// Close ends the publisher.
func (p *Publisher) Close() {
	p.end.Do(func() {
		p.inst.Store(nil)
		close(p.ended)
		if p.server != nil {
			if err := p.server.Close(); err != nil {
				p.log.Warn().Err(err).Msg("telemetry")
			}
		}
		p.wait.Wait()
	})
}

const (
	free    = iota // the engine runs
	wanted         // it is to pause after the step
	pausing        // it waits for resume
)

// Observe is for engine.Setup: it pauses the engine between two steps while the machine is measured.
func (p *Publisher) Observe(engine.Step) {
	if p.state.Load() == free || !p.state.CompareAndSwap(wanted, pausing) {
		return
	}
	select {
	case p.paused <- struct{}{}:
		<-p.resume
	case <-p.ended:
	}
	p.state.Store(free)
}

func (p *Publisher) answer(context.Context, json.RawMessage) (any, error) {
	p.mu.Lock()
	s := &telemetry.Snapshot{Version: telemetry.Version, At: time.Now(), Process: p.process}
	p.mu.Unlock()
	if inst := p.inst.Load(); inst != nil {
		if p.due() {
			p.wait.Go(func() { p.probe(inst) })
		}
		s.Model = p.describe(inst)
	}
	return s, nil
}

// describe reads an engine's counters.
func (p *Publisher) describe(inst *engine.Instance) *telemetry.Model {
	c, load, setup := inst.Counters(), inst.Load(), inst.Setup
	m := &telemetry.Model{
		Name: inst.Source.Name(), Backend: setup.Backend.String(), Threads: inst.Threads(), Layers: inst.Config.Layers,
		Context: setup.Context, Slots: setup.Slots, Batch: c.Batch, Depth: c.Depth, Running: load.Running, Waiting: load.Waiting,
		Prefill: phase(c.Prefill), Decode: phase(c.Decode),
		KV:     tiers(load, setup),
		Prefix: &telemetry.Prefix{Requests: c.Requests, Hits: c.Hits, Prompt: c.PromptTokens, Found: c.HitTokens, Replayed: c.Replayed, Loaded: c.Loaded},
	}
	if load.Running == 0 {
		m.Batch = 0
	}
	experts := &telemetry.Experts{}
	blind := false
	for _, l := range c.Model.Experts {
		if c.Model.Slots != nil { // where both are counted once a step
			l.Chosen = l.Hit + l.Missed
		}
		experts.Chosen, experts.Missed = append(experts.Chosen, l.Chosen), append(experts.Missed, l.Missed)
		blind = blind || l.Blind
	}
	byCPU := false
	if u := c.Model.Slots; u != nil {
		byCPU = u.ByHost
		experts.Count, experts.OnDevice, experts.ByCPU, experts.Moved = u.Experts, u.Slots, byCPU, load.Experts.MovedBytes
	}
	if !blind {
		m.Experts = experts
	}
	if setup.Backend == ced.CUDA && !setup.NoGraphs && !byCPU {
		g := load.Graphs
		m.Graphs = &telemetry.Graphs{Captured: g.Captured, Replayed: g.Replayed, Plain: g.Plain, Failed: g.Failed}
	}
	if len(inst.Config.Engram.Layers) > 0 {
		m.Engram = &telemetry.Engram{Rows: c.Model.EngramRows}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active == nil {
		p.active = inventory.CountActive(inst.Config)
	}
	m.Decode.Active = p.active.Decode()
	if c.Prompt > 0 {
		p.price(inst, c)
		m.Prefill.Active = p.prompt.active
	}
	if r := p.limits; r != nil {
		l := limits(r)
		m.Limit = &telemetry.Limit{Read: r.Read, Multiply: r.Multiply(), Prompt: p.prompt.least}
		if c.Batch > 0 {
			b := plan.DecodeBudget(inst.Config, c.Batch, c.Depth)
			m.Limit.Bytes, m.Limit.Step = b.Total().Bytes, b.Least(l)
		}
	}
	return m
}

// tiers are the places of the KV cache. On the CPU the back end's memory is the host's.
func tiers(l engine.Load, s engine.Setup) []telemetry.Tier {
	first := "host"
	if s.Backend == ced.CUDA {
		first = "device"
	}
	out := []telemetry.Tier{{
		Name: first, Tokens: kv.PageTokens, Pages: l.KVTokens / kv.PageTokens, Used: l.KVInUse / kv.PageTokens, Cached: l.KVCached / kv.PageTokens,
	}}
	if s.Snapshots > 0 {
		out = append(out, telemetry.Tier{Name: "snapshots", Used: l.Snapshots, Cached: l.Snapshots, Bytes: int64(l.SnapshotBytes), Most: int64(s.Snapshots)})
	}
	if d := l.Disk; d.State != disk.StateOff || d.Trouble != "" {
		state := fmt.Sprint(d.State)
		if d.Trouble != "" {
			state += ": " + d.Trouble
		}
		out = append(out, telemetry.Tier{Name: "disk", Tokens: kv.PageTokens, Used: d.Pages, Cached: d.Pages, Bytes: d.Bytes, Most: d.MaxBytes, State: state})
	}
	return out
}

// price computes what a prompt like the last one costs per token.
func (p *Publisher) price(inst *engine.Instance, c engine.Counters) {
	known := p.prompt.tokens == c.Prompt && p.prompt.mode == c.Mode
	if known && (p.prompt.least > 0 || p.limits == nil) {
		return
	}
	t := thresholds(inst.Config, c)
	p.prompt = promptCost{tokens: c.Prompt, mode: c.Mode, active: p.active.Prefill(t.Query, c.Prompt)}
	if p.limits != nil {
		p.prompt.least = plan.PromptBudget(inst.Config, t, c.Prompt, inst.Setup.Chunk).Least(limits(p.limits)) / float64(c.Prompt)
	}
}

func thresholds(c *config.Config, n engine.Counters) plan.Thresholds {
	return plan.Thresholds(model.NewPlan(c, n.Mode, n.Prompt))
}

func limits(r *machine.Rates) plan.Limits {
	return plan.Limits{Read: r.Read, Multiply: r.Multiply(), F32: r.F32}
}

func phase(c engine.PhaseCount) telemetry.Phase {
	return telemetry.Phase{Tokens: c.Tokens, Steps: c.Steps, Seconds: c.Time.Seconds()}
}

// probeBytes is read once: more than the caches that one program may have for itself, little enough for a machine whose
// memory the model fills.
const probeBytes = 256 << 20

// A measurement on a machine that others use is too low, so there are a few, of which the best counts.
const (
	maxProbes   = 4
	betweenThem = 15 * time.Second
)

func (p *Publisher) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probes == maxProbes || time.Since(p.probed) < betweenThem {
		return false
	}
	p.probes, p.probed = p.probes+1, time.Now()
	return true
}

// probe measures the limits on threads like those of the engine, which waits meanwhile.
func (p *Publisher) probe(inst *engine.Instance) {
	if inst.Setup.Backend != ced.CPU {
		return // the reference is slow on purpose; a device has limits of its own
	}
	var flags []ced.Flag
	if inst.Setup.Pin {
		flags = append(flags, ced.Pin)
	}
	s, err := ced.Open(ced.CPU, 0, inst.Threads(), flags...)
	if err != nil {
		p.log.Warn().Err(err).Msg("the machine's limits cannot be measured")
		return
	}
	defer s.Close()
	prober, err := machine.NewProberOf(context.Background(), s, probeBytes)
	if err != nil {
		p.log.Warn().Err(err).Msg("the machine's limits cannot be measured")
		return
	}
	defer prober.Close()
	if !p.hold(inst.Engine) {
		return
	}
	err = prober.Probe()
	p.release()
	if err != nil {
		p.log.Warn().Err(err).Msg("the machine's limits cannot be measured")
		return
	}
	r := prober.Rates()
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.limits; b != nil {
		r = machine.Rates{Read: max(r.Read, b.Read), BF16: max(r.BF16, b.BF16), F32: max(r.F32, b.F32)}
	}
	p.limits, p.prompt = &r, promptCost{}
	p.log.Debug().Float64("read", r.Read).Float64("multiply", r.Multiply()).Msg("the machine's limits, for cedrun top")
}

// hold waits until the engine has paused or has nothing to do. False: the publisher ends.
func (p *Publisher) hold(e *engine.Engine) bool {
	p.state.Store(wanted)
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-p.ended:
			return false
		case <-p.paused:
			return true
		case <-look.C:
			if l := e.Load(); l.Running+l.Waiting == 0 && p.state.CompareAndSwap(wanted, free) {
				return true
			}
		}
	}
}

// release lets the engine go on, if it waits.
func (p *Publisher) release() {
	if p.state.Load() == pausing {
		p.resume <- struct{}{}
	}
}
