package plan

import (
	"cedrun/runtime/config"
)

// Cost is the time of a kernel's calls of one shape, in seconds.
type Cost struct {
	Call  float64 // of a call
	Depth float64 // per unit of depth, whatever the rows: weights of an expert, keys that rows share
	Row   float64 // per row
	Each  float64 // per row and unit of depth
}

// Seconds is the time of a call.
func (k Cost) Seconds(rows, depth float64) float64 {
	return k.Call + k.Depth*depth + k.Row*rows + k.Each*rows*depth
}

// Disk is how fast weights come from disk.
type Disk struct {
	Bandwidth float64 `json:"bytes_per_second"` // of runs as long as an expert's matrix; 0 = not measured
	Latency   float64 `json:"seconds_per_row"`  // of a table row that no cache holds
	Note      string  `json:"note,omitempty"`   // how it was measured
}

// Machine holds the figures that a prediction rests on.
type Machine struct {
	Costs map[Shape]Cost
	Disk  Disk
	// GPU, if set, computes, at its rates in place of Costs. OverBus is the share of the routed experts that it reads from
	// host memory.
	GPU     *GPU
	OverBus float64
}

// Seconds is the time of a call.
func (m *Machine) Seconds(c *Call) float64 {
	if m.GPU != nil {
		return m.GPU.seconds(c)
	}
	return m.Costs[c.Shape].Seconds(c.Rows, c.Depth)
}

// Speed is a predicted rate.
type Speed struct {
	Tokens    float64 `json:"tokens"`                // of the step, or of the prompt
	Compute   float64 `json:"compute_seconds"`       // in kernels
	Disk      float64 `json:"disk_seconds"`          // waiting for experts and table rows
	DiskBytes float64 `json:"disk_bytes"`            // read for them
	Bus       float64 `json:"bus_seconds,omitempty"` // reading experts from host memory
	BusBytes  float64 `json:"bus_bytes,omitempty"`
	Rate      float64 `json:"tokens_per_second"` // of all sequences together
	Bytes     float64 `json:"weight_bytes"`      // of weights read, from memory or disk
}

// sum adds up visited calls.
type sum struct {
	machine *Machine
	missing float64 // share of the routed experts that is on disk
	speed   Speed
}

func (s *sum) visit(c Call, times float64) {
	s.speed.Compute += times * s.machine.Seconds(&c)
	b := times * c.Bytes()
	s.speed.Bytes += b
	if c.Kernel == Experts {
		s.speed.DiskBytes += b * s.missing
		s.speed.BusBytes += b * s.machine.OverBus
	}
}

// finish adds the disk's time. tableRows are looked up in Engram tables, of which a share is in memory.
func (s *sum) finish(tokens, tableRows, tableShare float64) Speed {
	v, d := &s.speed, &s.machine.Disk
	if d.Bandwidth > 0 {
		v.Disk = v.DiskBytes/d.Bandwidth + tableRows*(1-tableShare)*d.Latency
	}
	if g := s.machine.GPU; g != nil {
		v.Bus = v.BusBytes / g.Bus
	}
	v.Tokens = tokens
	if t := v.Compute + v.Disk + v.Bus; t > 0 {
		v.Rate = tokens / t
	}
	return *v
}

func (m *Memory) sum(machine *Machine) *sum {
	return &sum{machine: machine, missing: 1 - m.ExpertShare}
}

// tableShare is the part of the looked-up tables that is held in memory.
func (m *Memory) tableShare() float64 {
	if all := m.Weights.Engram + m.Weights.Embedding; all > 0 {
		return float64(m.Rows) / float64(all)
	}
	return 1
}

// lookups is the number of Engram rows of a token.
func lookups(c *config.Config) float64 { return float64(len(c.Engram.Layers) * c.Engram.Columns()) }

// DecodeSpeed predicts decode of batch sequences at a position.
func (m *Memory) DecodeSpeed(machine *Machine, c *config.Config, batch, position int) Speed {
	s := m.sum(machine)
	Decode(c, batch, position, s.visit)
	return s.finish(float64(batch), float64(batch)*lookups(c), m.tableShare())
}

// PromptSpeed predicts the prefill of one prompt.
func (m *Memory) PromptSpeed(machine *Machine, c *config.Config, t Thresholds, prompt, chunk int) Speed {
	s := m.sum(machine)
	Prompt(c, t, prompt, chunk, s.visit)
	return s.finish(float64(prompt), float64(prompt)*lookups(c), m.tableShare())
}
