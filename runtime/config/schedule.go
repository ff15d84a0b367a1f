package config

import "slices"

// Mode says how a layer obtains the main KV rows it attends to.
type Mode uint8

const (
	SWA     Mode = iota // sliding window only
	Full                // own rows, own keys, own selection
	Reindex             // rows and keys of an earlier source, own selection
	Reuse               // rows and selection of earlier layers
)

func (m Mode) String() string {
	return [...]string{"SWA", "Full", "Reindex", "Reuse"}[m]
}

// Layer is one row of the schedule, spec model.md section 1.2. Layer numbers are -1 where not applicable.
type Layer struct {
	Index       int
	Ratio       int  // tokens per main KV row, 0 = none
	Mode        Mode //
	KVSource    int  // layer whose main KV rows are read; Index itself for Full
	IndexSource int  // layer whose selection is used; Index itself for Full and Reindex
	KeySource   int  // layer whose index keys are scored; -1 unless the layer runs an indexer

	OwnsKV          bool // has a compressor, main KV rows and index keys
	OwnsIndex       bool // has an indexer
	CandidateSource bool // publishes the candidate blocks
	Restricted      bool // its selection stays inside the candidate blocks

	Engram  int  // position in Config.Engram.Layers of the module before this layer, or -1
	Decoder bool // the last KV source or later
	Tail    bool // after the last KV source: runs on the replay tail only
}

// CompressedRope reports which rotary table the whole layer uses: true for base compress_rope_theta with
// YaRN, false for base rope_theta (3.7).
func (l *Layer) CompressedRope() bool { return l.Ratio > 0 }

// Schedule derives one Layer per backbone layer.
func (c *Config) Schedule() []Layer {
	layers := make([]Layer, c.Layers)
	last := -1
	if n := len(c.KVSources); n > 0 {
		last = c.KVSources[n-1]
	}
	kv, index := -1, -1 // most recent publications
	for i := range layers {
		l := Layer{
			Index: i, Ratio: c.CompressRatios[i], Mode: SWA, KVSource: -1, IndexSource: -1, KeySource: -1,
			Engram:  slices.Index(c.Engram.Layers, i),
			Decoder: last >= 0 && i >= last,
			Tail:    last >= 0 && i > last,
		}
		if l.Ratio > 0 {
			l.OwnsKV = slices.Contains(c.KVSources, i)
			l.OwnsIndex = slices.Contains(c.IndexSources, i)
			l.Mode = Reuse
			if l.OwnsKV {
				kv, l.Mode = i, Full
			} else if l.OwnsIndex {
				l.Mode = Reindex
			}
			if l.OwnsIndex {
				index, l.KeySource = i, kv
				l.CandidateSource = i == c.CandidateSource
				l.Restricted = c.CandidateSource >= 0 && i > c.CandidateSource
			}
			l.KVSource, l.IndexSource = kv, index
		}
		layers[i] = l
	}
	return layers
}
