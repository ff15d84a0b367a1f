package config

import (
	"fmt"
	"os"
)

// Config is the validated geometry of a checkpoint. Field comments give the released value.
type Config struct {
	VocabSize       int // 129280
	HiddenSize      int // 5120
	Layers          int // 40, without draft blocks
	Heads           int // 64 query heads
	HeadDim         int // 512: one latent per token, key and value at once
	RopeDim         int // 64: the last channels of a head are rotary
	QLoraRank       int // 1280
	OGroups         int // 8 groups of heads share a block of the first output projection
	OLoraRank       int // 1024 outputs per group
	MoEIntermediate int // 2304: width of routed and shared experts
	Experts         int // 384 routed
	ExpertsPerToken int // 6
	SharedExperts   int // 1

	RouteScale  float32 // 1.5
	NormTopK    bool    // true: routing weights are divided by their sum
	GateTemp    float32 // 1: router logits are divided by it
	SwiGLULimit float32 // 10: clamp of every expert
	NormEps     float32 // 1e-20

	Window            int     // 128 positions, the query's own included
	MaxPositions      int     // 1048576
	RopeTheta         float64 // 10000, layers with ratio 0
	CompressRopeTheta float64 // 160000 with YaRN, layers with a ratio
	Yarn              Yarn

	CompressRatios      []int // one per backbone layer: 0, 1 or 2 tokens per main KV row
	KVSources           []int // 2 8 14 20, ascending
	IndexSources        []int // 2 8 14 20 24 28 32 36, ascending
	IndexHeads          int   // 32
	IndexHeadDim        int   // 128
	IndexTopK           int   // 512 main KV rows per query
	CandidateSource     int   // 20, or -1 without candidates
	CandidateTopKBlocks int   // 2048
	CandidateBlock      int   // 8 rows

	HCMult          int     // 4 residual streams
	HCSinkhornIters int     // 20
	HCEps           float32 // 1e-6

	Engram Engram
	Draft  Draft
	Vision *Vision // nil without a vision tower

	BOS, EOS, Pad int // 0 1 2
	ImageToken    int // 129264, or -1
}

// Yarn is the interpolation of the compressed layers' rotary base.
type Yarn struct {
	Factor             float64 // 16
	BetaFast, BetaSlow float64 // 32, 1 turns
	Original           int     // 65536 positions; 0 switches YaRN off
}

// Engram describes the n-gram memories. Layers is empty when the model has none.
type Engram struct {
	Layers    []int   // 1 14, ascending
	Rows      []int64 // table rows per entry of Layers: 384006168 384016682
	MaxNgram  int     // 4: orders 2..4
	VocabSize int     // 16000000: smallest bucket of a hash head
	Heads     int     // 8 hash heads per order
	HeadDim   int     // 256 values per row
	PadToken  int     // 2, a token id
	Classes   int     // 99092 compressed token ids
}

// Columns is the number of table rows that one position looks up: orders × heads (24).
func (e *Engram) Columns() int { return (e.MaxNgram - 1) * e.Heads }

// Draft describes the DSpark blocks. Layers is 0 when the model has none.
type Draft struct {
	Layers          int   // 3
	BlockSize       int   // 5 drafted tokens
	NoiseToken      int   // 128799
	Targets         []int // 37 38 39: backbone layers whose input is tapped
	MarkovRank      int   // 256
	Experts         int   // 128
	ExpertsPerToken int   // 3
}

// Vision describes the image tower and its aligner.
type Vision struct {
	Layers       int     // 32
	HiddenSize   int     // 1024
	Heads        int     // 16
	Intermediate int     // 2816
	PatchSize    int     // 14
	RopeTheta    float64 // 10000
	Downsample   int     // 3
	MaxTokens    int     // 1024 tokens per image
	MinPixels    int     // 295936
	MaxWHRatio   float64 // 0 = no limit
}

// Load reads and validates a config.json. Errors name the file.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Parse decodes and validates the bytes of a config.json in either spelling.
func Parse(data []byte) (*Config, error) {
	values, err := flatten(data)
	if err != nil {
		return nil, err
	}
	c, err := decode(values)
	if err != nil {
		return nil, err
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// MainRowBytes is the size of a packed main KV row: FP4 codes and one E4M3 scale per 16 (288).
func (c *Config) MainRowBytes() int { return c.HeadDim/2 + c.HeadDim/16 }

// IndexRowBytes is the size of a packed index key: FP4 codes and one E8M0 scale per 32 (68).
func (c *Config) IndexRowBytes() int { return c.IndexHeadDim/2 + c.IndexHeadDim/32 }

// WindowRowBytes is the size of a packed window row: FP8 codes and one E8M0 scale per 32 (528).
func (c *Config) WindowRowBytes() int { return c.HeadDim + c.HeadDim/32 }

// BytesPerToken is the growth of the global caches per token, rounded up (890 for the release).
func (c *Config) BytesPerToken() int {
	halves := 0 // a ratio-2 source makes half a row per token
	for _, l := range c.KVSources {
		halves += 2 / c.CompressRatios[l]
	}
	return (halves*(c.MainRowBytes()+c.IndexRowBytes()) + 1) / 2
}
