package inventory

import (
	"fmt"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/kv"
)

// Report is everything that a checkpoint's geometry says, and, with weights, what is stored.
type Report struct {
	Model      string       `json:"model"`
	Geometry   Geometry     `json:"geometry"`
	Schedule   []Layer      `json:"schedule"`
	Parameters Parameters   `json:"parameters"`
	Formats    []FormatLine `json:"formats"`
	Active     ActiveLine   `json:"active_parameters"`
	KV         KV           `json:"kv"`
	State      State        `json:"sequence_state_bytes"`
	Memory     Memory       `json:"memory_bytes"`
	Stored     *Stored      `json:"stored,omitempty"` // nil without weights
	drafts     int
	draft      Layer
}

// Geometry is the size of the backbone.
type Geometry struct {
	Layers          int `json:"layers"`
	Hidden          int `json:"hidden_size"`
	Streams         int `json:"streams"`
	Heads           int `json:"heads"`
	HeadDim         int `json:"head_dim"`
	Experts         int `json:"experts"`
	ExpertsPerToken int `json:"experts_per_token"`
	Vocabulary      int `json:"vocabulary"`
	Window          int `json:"window"`
	MaxContext      int `json:"max_context"`
}

// Parameters are the counts of spec model.md 1.4.
type Parameters struct {
	Total    int64      `json:"total"`
	Backbone int64      `json:"backbone"`
	Engram   int64      `json:"engram_tables"`
	Draft    int64      `json:"dspark"`
	Vision   int64      `json:"vision"`
	Parts    []PartLine `json:"parts"`
}

// PartLine counts one part.
type PartLine struct {
	Part       string `json:"part"`
	Tensors    int    `json:"tensors"`
	Parameters int64  `json:"parameters"`
	Bytes      int64  `json:"bytes"`
	backbone   bool
}

// FormatLine counts the bytes of one format.
type FormatLine struct {
	Format string `json:"format"`
	Bytes  int64  `json:"bytes"`
}

// ActiveLine counts the parameters that a token is multiplied by.
type ActiveLine struct {
	Prefill int64 `json:"prefill"` // the encoder; all layers of a model without KV sources
	Decoder int64 `json:"decoder"`
	Head    int64 `json:"head"`
	Decode  int64 `json:"decode"` // encoder, decoder and head
	last    int   // number of layers in Prefill
}

// KV is what the global caches grow by per token.
type KV struct {
	BytesPerToken int     `json:"bytes_per_token"`
	RowsPerToken  float64 `json:"rows_per_token"`
	MainRow       int     `json:"main_row_bytes"`
	IndexRow      int     `json:"index_row_bytes"`
}

// State is what a sequence needs whatever its length, in bytes (spec model.md 1.3).
type State struct {
	Windows    int64 `json:"windows"`     // one ring per layer
	OpenGroups int64 `json:"open_groups"` // the first token's F32 row of a ratio-2 group
	LookBack   int64 `json:"look_back"`   // Engram ids of the last tokens
	Total      int64 `json:"total"`
	rings      [3]int
	groups     int
}

// Memory is what one sequence of Context tokens takes. Experts and tables can stay on disk and be read on demand.
type Memory struct {
	Context int   `json:"context_tokens"`
	KV      int64 `json:"kv"` // whole pages
	State   int64 `json:"state"`
	Dense   int64 `json:"dense_weights"` // the backbone without routed experts
	Experts int64 `json:"routed_experts"`
	Tables  int64 `json:"engram_tables"`
}

// Least is what cannot be left on disk.
func (m *Memory) Least() int64 { return m.KV + m.State + m.Dense }

// New describes a geometry. context is the length of the sequence whose memory is counted; 0 = what the model allows.
func New(model string, c *config.Config, context int) (*Report, error) {
	if context == 0 {
		context = c.MaxPositions
	}
	if context < 1 || context > c.MaxPositions {
		return nil, fmt.Errorf("context of %d tokens: this model takes 1 to %d", context, c.MaxPositions)
	}
	v := Count(c)
	r := &Report{
		Model: model,
		Geometry: Geometry{
			Layers: c.Layers, Hidden: c.HiddenSize, Streams: c.HCMult, Heads: c.Heads, HeadDim: c.HeadDim, Experts: c.Experts,
			ExpertsPerToken: c.ExpertsPerToken, Vocabulary: c.VocabSize, Window: c.Window, MaxContext: c.MaxPositions,
		},
		Schedule: Schedule(c),
		Parameters: Parameters{
			Total: v.Total().Parameters, Backbone: v.Backbone(), Engram: v.Parts[EngramTables].Parameters,
			Draft: v.Parts[Draft].Parameters, Vision: v.Parts[Vision].Parameters,
		},
		Active: ActiveLine{
			Prefill: v.Active.Encoder(), Decoder: v.Active.Decoder(), Head: v.Active.Head, Decode: v.Active.Decode(), last: v.Active.last,
		},
		KV:    KV{BytesPerToken: c.BytesPerToken(), MainRow: c.MainRowBytes(), IndexRow: c.IndexRowBytes()},
		State: state(c), drafts: c.Draft.Layers,
		draft: Layer{Mode: config.SWA.String(), Theta: c.RopeTheta, Extras: []string{"DSpark, no part of plain decoding"}},
	}
	for p, n := range v.Parts {
		if n.Tensors > 0 {
			r.Parameters.Parts = append(r.Parameters.Parts, PartLine{Part(p).String(), n.Tensors, n.Parameters, n.Bytes, Part(p).backbone()})
		}
	}
	r.Formats = formatLines(v.Formats)
	for _, l := range c.KVSources {
		r.KV.RowsPerToken += 1 / float64(c.CompressRatios[l])
	}
	r.Memory = Memory{
		Context: context, State: r.State.Total,
		KV:      int64(kv.PagesFor(context)) * kv.PageTokens * int64(r.KV.BytesPerToken),
		Experts: v.Parts[Experts].Bytes, Tables: v.Parts[EngramTables].Bytes,
	}
	for _, p := range r.Parameters.Parts {
		if p.backbone {
			r.Memory.Dense += p.Bytes
		}
	}
	r.Memory.Dense -= r.Memory.Experts
	return r, nil
}

func state(c *config.Config) State {
	s := State{rings: [3]int{c.Layers, c.Window, c.WindowRowBytes()}}
	s.Windows = int64(c.Layers) * int64(c.Window) * int64(c.WindowRowBytes())
	for _, l := range c.KVSources {
		if c.CompressRatios[l] > 1 {
			s.groups++
		}
	}
	s.OpenGroups = int64(s.groups) * 2 * int64(c.HeadDim) * 4
	if len(c.Engram.Layers) > 0 {
		s.LookBack = int64(c.Engram.MaxNgram-1) * 4
	}
	s.Total = s.Windows + s.OpenGroups + s.LookBack
	return s
}

func formatLines(bytes [numFormats]int64) (lines []FormatLine) {
	for f, n := range bytes {
		if n > 0 {
			lines = append(lines, FormatLine{Format(f).String(), n})
		}
	}
	return lines
}

// Stored is what the shards hold.
type Stored struct {
	Shards  int          `json:"shards"`
	Tensors int          `json:"tensors"`
	Bytes   int64        `json:"bytes"`
	Formats []FormatLine `json:"formats,omitempty"`
	Absent  []string     `json:"absent,omitempty"` // features of the config that are left out
	Fault   string       `json:"fault,omitempty"`  // why the shards do not make a checkpoint of this geometry
}

// Store adds what an open checkpoint holds, or the error that opening or checking it met.
func (r *Report) Store(c *config.Config, ck *checkpoint.Checkpoint, census *checkpoint.Report, err error) {
	s := &Stored{}
	r.Stored = s
	if err != nil {
		s.Fault = err.Error()
	}
	if ck == nil {
		return
	}
	s.Shards, s.Tensors, s.Bytes = len(ck.Shards()), len(ck.Tensors()), ck.TotalSize()
	if census != nil {
		s.Absent = census.Absent
	}
	specs := map[string]checkpoint.Spec{}
	for _, x := range checkpoint.Expected(c) {
		specs[x.Name] = x
	}
	var bytes [numFormats]int64
	for _, t := range ck.Tensors() {
		spec, ok := specs[t.Name]
		if !ok {
			spec.Stored = t.DType
		}
		bytes[formatOf(&spec, t.DType)] += t.Size
	}
	s.Formats = formatLines(bytes)
}
