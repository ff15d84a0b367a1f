package plan

import (
	"fmt"
	"strings"

	"cedrun/runtime/config"
	"cedrun/runtime/kv"
)

// Device is the memory of a GPU.
type Device struct {
	Name    string `json:"name"`
	Total   int64  `json:"total"`
	Free    int64  `json:"free"`
	Unified bool   `json:"unified,omitempty"` // it is the host's
}

// OnDevice is where a model's bytes go on a machine with a GPU. Rows of Engram tables are read by the host.
type OnDevice struct {
	Device  Device `json:"device"`
	Weights int64  `json:"weights"` // what every token reads, and the embedding
	KV      int64  `json:"kv"`
	Windows int64  `json:"windows"`         // and open groups
	Step    int64  `json:"step"`            // activations and kernel workspaces
	Streams int64  `json:"streams"`         // scratch of streams
	Graphs  int64  `json:"graphs_believed"` // Captured decode steps: nothing measured it
	Reserve int64  `json:"reserve"`         // left to the driver, for code and what it rounds up

	Experts     int64   `json:"experts"` // routed experts in device memory
	ExpertShare float64 `json:"expert_share"`
	ExpertsHost int64   `json:"experts_host"` // in page-locked host memory: all, unless all are on the device
	HostExperts bool    `json:"host_experts"` // the CPU computes ExpertsHost, which are those that the device lacks, mapped
	HostRows    int64   `json:"host_rows"`    // host memory of the rows that the CPU then gets
	Captured    int     `json:"captured"`     // batch sizes whose decode step is captured
	KVGrows     bool    `json:"kv_grows"`     // with tokens: the model has global KV
	KVTokens    int     `json:"kv_tokens"`
	KVFit       int64   `json:"kv_tokens_fit"` // with as few experts on the device as there may be; 0 without KVGrows
}

// Fixed is all but experts.
func (d *OnDevice) Fixed() int64 {
	return d.Weights + d.KV + d.Windows + d.Step + d.Streams + d.Graphs + d.Reserve
}

// Need is what is allocated, and the reserve.
func (d *OnDevice) Need() int64 { return d.Fixed() + d.Experts }

// Budget is model.Options.ExpertBytes.
func (d *OnDevice) Budget() int {
	if d.ExpertsHost == 0 {
		return 0
	}
	return int(max(d.Experts, 1)) // 0 is no bound
}

// Locked is what experts take of the host's page-locked memory.
func (d *OnDevice) Locked() int64 {
	if d.HostExperts {
		return 0
	}
	return d.ExpertsHost
}

const (
	streamBytes            = 2 * (9 << 20)      // steps and copies
	firstPiece, lastPiece  = 4 << 20, 256 << 20 // of memory for weights: each is twice as large as the one before
	mostReserve, leastPart = 512 << 20, 8
)

// reserve is a fiftieth of the device, or 512 MiB, or of a very small one an eighth.
func reserve(total int64) int64 { return max(total/50, min(mostReserve, total/leastPart)) }

// pieces is the memory that so many bytes of weights take.
func pieces(n int64) (sum int64) {
	for next := int64(firstPiece); sum < n; next = min(2*next, lastPiece) {
		sum += next
	}
	return sum
}

// ExpertSlot is what a routed expert takes of a device's memory: tiles of 16 rows by 64, a scale for 32 (ced.PackExpert).
func ExpertSlot(c *config.Config) int64 {
	const tile = 16*64/2 + 16*64/32
	steps := func(n int) int { return (n + 63) / 64 }
	tiles := c.MoEIntermediate/32*4*steps(c.HiddenSize) + c.HiddenSize/32*2*steps(c.MoEIntermediate)
	return (int64(tiles)*tile + 255) &^ 255
}

// ExpertFloor is the least device memory of routed experts: in each layer as many as a token chooses.
func ExpertFloor(c *config.Config) int64 {
	return int64(c.Layers) * int64(min(c.ExpertsPerToken, c.Experts)) * ExpertSlot(c)
}

// expertFloor is the least device memory of routed experts of a setup: none if the CPU may compute all, and never more
// than all of them take.
func (s Setup) expertFloor(c *config.Config, w Weights) int64 {
	if s.HostExperts {
		return 0
	}
	return min(ExpertFloor(c), w.Experts)
}

// FillOn fills a setup in and places it on a device. Where not all experts fit, chunks of prompts are DiskChunk rows, as
// long as that is not what does not fit: each reads nearly all experts that the device has not.
func (s Setup) FillOn(c *config.Config, w Weights, dev Device, experts int64) (Setup, *OnDevice, error) {
	filled, err := s.Fill(c)
	if err != nil {
		return s, nil, err
	}
	d, err := PlaceOnDevice(c, w, filled, dev, DeviceWorkspaceBytes(c, filled), experts)
	if err != nil || s.Chunk != 0 || d.ExpertsHost == 0 {
		return filled, d, err
	}
	s.Chunk = DiskChunk
	wide, err := s.Fill(c)
	if err != nil {
		return filled, d, nil
	}
	if e, err := PlaceOnDevice(c, w, wide, dev, DeviceWorkspaceBytes(c, wide), experts); err == nil {
		return wide, e, nil
	}
	return filled, d, nil
}

// PlaceOnDevice lays weights and a filled setup out on a device. workspace are the kernels' bytes, experts those for routed
// experts: 0 = what remains. A *FitError says what does not fit.
func PlaceOnDevice(c *config.Config, w Weights, s Setup, dev Device, workspace, experts int64) (*OnDevice, error) {
	d := fixedOn(c, w, s, dev, workspace)
	floor := s.expertFloor(c, w)
	if s.HostExperts && experts > 0 && experts < w.Experts {
		d.Captured, d.Graphs = 0, 0 // steps with experts of the CPU are not captured
	}
	room := dev.Free - d.Fixed()
	if experts > 0 && experts < floor {
		return d, fmt.Errorf("--expert-memory %d is too little: give at least %d bytes, for the %d experts that a token uses in each of %d layers, or --expert-compute cpu, for which any size will do",
			experts, floor, min(c.ExpertsPerToken, c.Experts), c.Layers)
	}
	if experts > 0 {
		d.Experts = min(experts, w.Experts)
	} else {
		d.Experts = min(max(room, 0), w.Experts)
	}
	if w.Experts > 0 {
		d.ExpertShare = float64(d.Experts) / float64(w.Experts)
	}
	if d.Experts < w.Experts {
		if d.ExpertsHost = w.Experts; s.HostExperts {
			d.ExpertsHost, d.HostExperts, d.HostRows, d.Graphs = w.Experts-d.Experts, true, hostRowBytes(c, s), 0
			d.Captured = 0
		}
	}
	if left := room - floor + d.KV; left > 0 && d.KVGrows {
		d.KVFit = left / (pageBytes(c) + 4) * kv.PageTokens
	}
	if room >= d.Experts && d.Experts >= floor {
		return d, nil
	}
	d.Experts = max(d.Experts, floor)
	return d, d.misfit(c, w, s, workspace, experts)
}

func fixedOn(c *config.Config, w Weights, s Setup, dev Device, workspace int64) *OnDevice {
	b := CountBuffers(c, s, 0)
	tables := int64(c.Layers) * (int64(c.Experts)*48 + int64(s.rows()*c.ExpertsPerToken*4)) // of experts, and routers' choices
	steps, graphs := captured(c, s)
	return &OnDevice{
		Captured: steps, Graphs: graphs, Device: dev, Weights: pieces(w.Always() + w.Embedding), KV: b.KV, Windows: b.Windows, Step: stepBytes(c, s) + workspace + tables,
		Streams: streamBytes, Reserve: reserve(dev.Total), KVGrows: KVGrows(c), KVTokens: s.KVTokens,
	}
}

// misfit says what takes the memory and which flag gives some back.
func (d *OnDevice) misfit(c *config.Config, w Weights, s Setup, workspace, experts int64) error {
	e := &FitError{Need: d.Need(), Have: d.Device.Free, Where: " on " + d.Device.Name}
	e.What = fmt.Sprintf("%s of weights that every token reads, %s of experts, %s of KV cache and windows for %d tokens, %s of step buffers, %s of captured steps (believed), %s in reserve",
		GB(d.Weights), GB(d.Experts), GB(d.KV+d.Windows), s.KVTokens, GB(d.Step+d.Streams), GB(d.Graphs), GB(d.Reserve))
	floor := s.expertFloor(c, w)
	fits := func(context, slots int, kvTokens int) bool {
		smaller := s
		smaller.Context, smaller.Slots, smaller.KVTokens = context, slots, kvTokens
		if s.Outputs == s.Slots {
			smaller.Outputs = 0
		}
		smaller, err := smaller.Fill(c)
		return err == nil && fixedOn(c, w, smaller, d.Device, DeviceWorkspaceBytes(c, smaller)).Fixed()+max(floor, min(experts, w.Experts)) <= d.Device.Free
	}
	var remedies []string
	if experts > floor && fixedOn(c, w, s, d.Device, workspace).Fixed()+floor <= d.Device.Free {
		remedies = append(remedies, fmt.Sprintf("lower --expert-memory to %d MiB", (d.Device.Free-d.Fixed())>>20))
	}
	texts := s.Slots * kv.PagesFor(s.Context) * kv.PageTokens
	kept := 0 // tokens of KV cache that a smaller wish has, too; 0: what its texts need
	if s.KVTokens != texts {
		kept = s.KVTokens
	}
	if s.KVTokens > texts && fits(s.Context, s.Slots, 0) {
		remedies = append(remedies, "lower --kv-device")
	}
	if n := most(s.Context/kv.PageTokens, func(pages int) bool { return fits(pages*kv.PageTokens, s.Slots, kept) }); n > 0 && n*kv.PageTokens < s.Context {
		remedies = append(remedies, fmt.Sprintf("lower --context to %d", n*kv.PageTokens))
	}
	if n := most(s.Slots-1, func(slots int) bool { return fits(s.Context, slots, kept) }); n > 0 {
		remedies = append(remedies, fmt.Sprintf("have at most %d texts at a time", n))
	} else if n := longest(s, func(context int) bool { return fits(context, 1, kept) }); n > 0 {
		remedies = append(remedies, fmt.Sprintf("have 1 text at a time and lower --context to %d", n))
	}
	if d.Graphs > 0 && d.Need()-d.Graphs <= d.Device.Free {
		remedies = append(remedies, "use --no-graphs")
	}
	if floor > 0 && experts == 0 && d.Fixed()-d.Graphs <= d.Device.Free {
		remedies = append(remedies, "use --expert-compute cpu")
	}
	if e.Remedy = strings.Join(remedies, ", or "); e.Remedy == "" {
		e.Remedy = "take a device with more memory, or use --backend cpu"
	}
	return e
}

// DeviceWorkspaceBytes is at least what the CUDA bodies of a filled setup have as workspaces, and not much more.
func DeviceWorkspaceBytes(c *config.Config, s Setup) int64 {
	rows, groups := int64(s.rows()), int64(0)
	for _, l := range c.KVSources {
		groups = max(groups, int64(kv.PagesFor(s.Context)*(kv.PageTokens/c.CompressRatios[l])))
	}
	const (
		keptScores = 64 << 20    // bytes, or one row's
		scorePad   = 4096        // groups that a row is rounded up by
		selection  = 2 * 512 * 4 // counts of a selection by many blocks
		chunk      = 4096        // groups of one of them, 8 bytes each
		splitRows  = 16          // whose keys are spread over processors
		slack      = 32 * (1 << 10)
	)
	heads := int64(c.IndexHeads+31) / 32 * 32
	query := heads * int64(c.IndexHeadDim+c.IndexHeadDim/32*8+4)
	scores := 2 * (2*groups + scorePad) // of a row, and its block maxima
	index := rows*(query+2*(selection+(groups/chunk+1)*8)) + min(rows*scores, max(keptScores, scores))
	if len(c.KVSources) == 0 {
		index = 0
	}
	attendHeads, width := int64(c.Heads+15)/16*16, int64(c.Window+c.IndexTopK+63)/64*64
	attend := 4*(attendBlock*int64(c.HeadDim+16)+attendHeads*int64(2*c.HeadDim+attendBlock+3)) +
		min(rows, splitRows)*(width*16+attendHeads*width*4+attendHeads*width/16+width)
	k, experts := int64(c.ExpertsPerToken), int64(c.Experts)
	expert := rows*(k+1)*int64(c.MoEIntermediate+c.MoEIntermediate/32+2*c.HiddenSize+4) + (2*experts+2)*4
	expert += (experts + rows*k/8) * 20                                                                                   // tiles
	expert += min(rows, max(16, 17*experts/max(k, 1))) * 2 * (int64(c.HiddenSize+63) + (k+1)*int64(c.MoEIntermediate+63)) // operands
	return index + attend + expert + slack
}
