package plan

import (
	"fmt"

	"cedrun/runtime/config"
	"cedrun/runtime/inventory"
	"cedrun/runtime/kv"
)

// Weights are the bytes of a checkpoint by how a step reads them (spec model.md 2.2).
type Weights struct {
	Dense     int64 `json:"dense"`     // by every token, without the head
	Head      int64 `json:"head"`      // by every row of logits
	Experts   int64 `json:"experts"`   // routed experts: a few per token
	Embedding int64 `json:"embedding"` // a row per token
	Engram    int64 `json:"engram"`    // tables: some rows per token
	Idle      int64 `json:"idle"`      // draft blocks and vision tower: not read
}

// CountWeights derives the bytes from the geometry, in the formats of the release.
func CountWeights(c *config.Config) Weights {
	v := inventory.Count(c)
	bytes := func(p inventory.Part) int64 { return v.Parts[p].Bytes }
	w := Weights{
		Head: bytes(inventory.Head), Experts: bytes(inventory.Experts), Embedding: bytes(inventory.Embedding),
		Engram: bytes(inventory.EngramTables), Idle: bytes(inventory.Draft) + bytes(inventory.Vision),
	}
	w.Dense = v.Total().Bytes - w.Total()
	return w
}

// Total is the size of the checkpoint.
func (w Weights) Total() int64 { return w.Always() + w.OnDemand() + w.Idle }

// Always is what every token reads.
func (w Weights) Always() int64 { return w.Dense + w.Head }

// OnDemand is what a token reads a part of.
func (w Weights) OnDemand() int64 { return w.Experts + w.Embedding + w.Engram }

// Buffers are the bytes that a model allocates.
type Buffers struct {
	KV        int64 `json:"kv"`        // pages of global KV and their tables
	Windows   int64 `json:"windows"`   // rings of window rows and rows of open groups; what snapshots take from the streams
	Kept      int64 `json:"kept"`      // copies of windows, for a step that is run again; of a device in page-locked host memory
	Snapshots int64 `json:"snapshots"` // at most: what sequences kept beside their pages
	Step      int64 `json:"step"`      // activations and kernel workspaces of a step
	Program   int64 `json:"program"`   // the process itself: tensor index, expert tables, runtime
}

// Total is the sum of the buffers.
func (b Buffers) Total() int64 { return b.KV + b.Windows + b.Kept + b.Snapshots + b.Step + b.Program }

// CountBuffers sizes what a filled setup allocates. threads counts CPU workers.
func CountBuffers(c *config.Config, s Setup, threads int) Buffers {
	return Buffers{
		KV:        pageBytes(c)*int64(kv.PagesFor(s.KVTokens)) + int64(4*s.Slots*kv.PagesFor(s.Context)),
		Windows:   int64(s.Slots) * windowBytes(c, s.Snapshots > 0),
		Kept:      keptBytes(c, s),
		Snapshots: s.Snapshots,
		Step:      stepBytes(c, s) + WorkspaceBytes(c, s, threads),
		Program:   programBytes(c),
	}
}

// pageBytes is the size of a KV page of all owner layers.
func pageBytes(c *config.Config) int64 {
	ratios := make([]int, len(c.KVSources))
	for i, l := range c.KVSources {
		ratios[i] = c.CompressRatios[l]
	}
	return int64(kv.NewLayout(c.HeadDim, c.IndexHeadDim, c.KVSources, ratios).PageBytes)
}

// KVGrows reports whether tokens take memory: not in a model without global KV, whose keys are those of the windows.
func KVGrows(c *config.Config) bool { return len(c.KVSources) > 0 }

// TokensIn is how many tokens of global KV, in whole pages, so many bytes hold; 0 if tokens take none.
func TokensIn(c *config.Config, bytes int64) int {
	if !KVGrows(c) {
		return 0
	}
	return int(bytes/pageBytes(c)) * kv.PageTokens
}

// TokenBytes is the memory of the global KV of tokens.
func TokenBytes(c *config.Config, tokens int) int64 { return int64(kv.PagesFor(tokens)) * pageBytes(c) }

// windowBytes is the state of a sequence besides its pages: a ring per layer, open groups of sources with a ratio, and,
// for snapshots, the streams of its last rows behind the last source.
func windowBytes(c *config.Config, tails bool) int64 {
	n := c.Layers * (c.Window + c.Draft.BlockSize) * c.WindowRowBytes()
	for _, l := range c.KVSources {
		if c.CompressRatios[l] > 1 {
			n += (2 + c.Draft.BlockSize) * 2 * c.HeadDim * 4
		}
	}
	if tails && len(c.KVSources) > 0 {
		n += c.Window * (c.HCMult*c.HiddenSize*2 + c.HCMult*4 + c.IndexTopK*4 + c.CandidateTopKBlocks*4)
	}
	return int64(n)
}

// keptBytes is what a step of several sequences keeps of them (model.Keep).
func keptBytes(c *config.Config, s Setup) int64 {
	if s.Slots == 1 {
		return 0 // whose step fails alone
	}
	return int64(s.Slots) * windowBytes(c, false)
}

// stepBytes sums the step buffers, in the order of the forward pass.
func stepBytes(c *config.Config, s Setup) int64 {
	d, hc, cols := c.HiddenSize, c.HCMult, 0
	if len(c.Engram.Layers) > 0 {
		cols = c.Engram.Columns()
	}
	wide := cols * c.Engram.HeadDim
	widest := max(d, c.QLoraRank, c.OGroups*c.OLoraRank, wide)
	row := 2*hc*d*2 + 4*hc*4 + hc*hc*4 + // streams and their mixes, twice where rows are compacted
		3*d*2 + widest + widest/32 + // sub-layer input, output, quantised
		c.QLoraRank*2 + 2*c.Heads*c.HeadDim*2 + c.OGroups*c.OLoraRank*2 + // queries, attention
		c.HeadDim*2 + c.WindowRowBytes() + 2*c.HeadDim*4 + c.HeadDim*2 + c.IndexHeadDim*2 + // window rows, compressor
		c.IndexHeads*(c.IndexHeadDim+1)*2 + 2*c.IndexTopK*4 + 2*max(c.CandidateTopKBlocks, 1)*4 + // indexer
		c.Experts*4 + c.ExpertsPerToken*8 + // router
		len(c.Engram.Layers)*(cols*8+wide+wide/32) + wide*2 + (hc+1)*d*2 + // Engram
		4*(len(c.KVSources)+1) // group and output lists
	sets := (c.Layers + len(c.KVSources) + 4) * (64 + 7*(4*s.rows()+16) + 4*s.Slots + 63)
	return int64(s.rows()*row) + int64(s.Outputs*(c.VocabSize*4+2*d)) + int64(sets)
}

const (
	indexTile    = 32    // rows that the CPU's indexer scores together
	indexRowSpan = 8192  // scores that it keeps for each of them
	indexSpan    = 65536 // and altogether
	indexSlack   = 2048  // entries beside the best that its lists hold
	attendBlock  = 64    // keys that attention takes together
)

// bestBytes is a list of the k best scores.
func bestBytes(k int) int { return (k+indexSlack)*6 + k*4 }

// WorkspaceBytes sums the workspaces of the CPU's kernels for a filled setup.
func WorkspaceBytes(c *config.Config, s Setup, threads int) int64 {
	rows, groups := s.rows(), 0
	if n := len(c.KVSources); n > 0 {
		groups = kv.PagesFor(s.Context) * (kv.PageTokens / c.CompressRatios[c.KVSources[n-1]])
	}
	tile, heads := min(rows, indexTile), (c.IndexHeads+7)/8*8
	query := heads * (2*c.IndexHeadDim + c.IndexHeadDim/32*8 + 12)
	best := bestBytes(min(c.IndexTopK, groups))
	if c.CandidateSource >= 0 {
		best += bestBytes(min(c.CandidateTopKBlocks, groups/max(c.CandidateBlock, 1)+1))
	}
	scores := min(tile*(groups+c.CandidateBlock), max(tile*(indexRowSpan+c.CandidateBlock), indexSpan+c.CandidateBlock))
	index := tile*(query+best) + scores*2
	tiled := (c.Heads + 7) / 8 * 8
	attend := threads * (attendBlock*(c.HeadDim+16) + tiled*(2*c.HeadDim+attendBlock+3)) * 4
	return int64(index+attend) + expertWorkspace(c, rows)
}

// expertWorkspace is that of the CPU's expert_gemm.
func expertWorkspace(c *config.Config, rows int) int64 {
	routed := rows * c.ExpertsPerToken
	tiles := min(routed, c.Experts) + routed/8
	return int64((routed+rows)*(c.MoEIntermediate+c.MoEIntermediate/32+c.HiddenSize*2) + routed*4 + (2*c.Experts+2)*4 + tiles*20)
}

// programBytes is what the process takes beside its buffers: measured, 32 MB and some hundred bytes per tensor.
func programBytes(c *config.Config) int64 {
	experts := int64(c.Layers * c.Experts)
	return 32<<20 + experts*(48+6*512)
}

// Load is what opening a model takes, against what there is.
type Load struct {
	Setup     Setup // zeros filled in
	Weights   int64 // bytes of all tensors
	Read      int64 // of them, bytes that are read into memory instead of paged in from mapped files on demand
	Buffers   Buffers
	KVTokens  int
	Available int64     // bytes of memory that can be had without swapping; 0 = unknown
	Device    *OnDevice // nil: there is none
	Shortage  string    // what to know when memory is smaller than the weights; empty when it is not
}

// Need is the memory that opening is sure to use.
func (l Load) Need() int64 {
	d := l.Device
	if d == nil {
		return l.Read + l.Buffers.Total()
	}
	n := l.Read + l.Buffers.Kept + l.Buffers.Snapshots + l.Buffers.Program + d.Locked() + d.HostRows
	if d.Device.Unified {
		n += d.Need()
	}
	return n
}

// Check refuses what cannot be opened.
func (l Load) Check() error {
	if l.Available == 0 || l.Need() <= l.Available {
		return nil
	}
	if d := l.Device; d != nil && d.Locked() > 0 {
		return fmt.Errorf("%s of the experts' %s fit on %s, so all must be in page-locked memory of the host, which has %s free: take a device or a host with more memory, or --expert-compute cpu, which locks none, or --backend cpu, which reads experts from disk",
			GB(d.Experts), GB(d.ExpertsHost), d.Device.Name, GB(l.Available))
	}
	if l.Device != nil {
		return fmt.Errorf("the host needs %s of memory and has %s free: lower --kv-host", GB(l.Need()), GB(l.Available))
	}
	if !l.LacksCache() {
		return fmt.Errorf("%s of weights are to be read into memory and %s are free: leave out --no-map, or lift the limit on address space", GB(l.Read), GB(l.Available))
	}
	return fmt.Errorf("the KV cache of %d tokens takes %s and %s of memory are free: %s", l.KVTokens, GB(l.Buffers.KV+l.Buffers.Windows), GB(l.Available), l.remedy())
}

// remedy names the flag that asks for most of the cache.
func (l Load) remedy() string {
	texts := l.Setup.Slots * kv.PagesFor(l.Setup.Context) * kv.PageTokens
	switch {
	case l.Setup.Slots > 0 && l.KVTokens > 2*texts:
		return "lower --kv-device or --kv-host"
	case l.Setup.Slots > 1:
		return "lower --context or --max-batch"
	}
	return "lower --context"
}

// LacksCache reports whether it is the cache of the sequences that the memory is too small for.
func (l Load) LacksCache() bool {
	return l.Device == nil && l.Available > 0 && l.Need() > l.Available && l.Read <= l.Buffers.KV
}

// GB writes bytes in decimal units: 3.2 GB, 17 MB, 12 kB.
func GB(n int64) string {
	for _, u := range []struct {
		one  float64
		name string
	}{{1e9, "GB"}, {1e6, "MB"}} {
		switch x := float64(n) / u.one; {
		case x >= 99.95:
			return fmt.Sprintf("%.0f %s", x, u.name)
		case x >= 0.9995:
			return fmt.Sprintf("%.1f %s", x, u.name)
		}
	}
	return fmt.Sprintf("%.0f kB", float64(n)/1e3)
}
