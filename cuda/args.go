package ced

// The argument structs of ced.h, member by member; see there for shapes, formats and rounding. A test compares sizes
// and offsets with the C side.

// Rows is one set of rows of a step, in stream memory.
type Rows struct {
	Count    int32
	Slots    int32
	Token    Addr
	Pos      Addr
	Slot     Addr
	Flags    Addr
	EmbedRow Addr
	SeqFirst Addr
}

// Groups lists the compressed groups that close in a step.
type Groups struct {
	Count int32
	_     int32
	Row   Addr
}

// KV describes the paged global KV of one owner layer.
type KV struct {
	Pages       Addr
	Table       Addr
	PageBytes   uint64
	MaxPages    uint32
	PageRows    uint32
	Ratio       uint32
	HeadDim     uint32
	IndexDim    uint32
	MainCodes   uint32
	MainScales  uint32
	IndexCodes  uint32
	IndexScales uint32
}

// EmbedArgs are the arguments of ced_embed.
type EmbedArgs struct {
	Rows        Addr
	Table       Addr
	Overrides   Addr
	H           Addr
	Pre         Addr
	MaxRows     uint32
	Vocab       uint32
	Dim         uint32
	Streams     uint32
	TableFormat uint32
	_           uint32
}

// RowGatherArgs are the arguments of ced_row_gather.
type RowGatherArgs struct {
	Rows     Addr
	Index    Addr
	Src      Addr
	Dst      Addr
	RowBytes uint64
	MaxRows  uint32
	_        uint32
}

// NormQuantArgs are the arguments of ced_norm_quant.
type NormQuantArgs struct {
	Rows         Addr
	X            Addr
	Weight       Addr
	Y            Addr
	Codes        Addr
	Scales       Addr
	MaxRows      uint32
	N            uint32
	WeightFormat uint32
	Eps          float32
}

// DenseGEMMArgs are the arguments of ced_dense_gemm.
type DenseGEMMArgs struct {
	Rows    Addr
	X       Addr
	XScales Addr
	W       Addr
	WScales Addr
	Y       Addr
	MaxRows uint32
	N       uint32
	K       uint32
	Groups  uint32
	XFormat uint32
	WFormat uint32
	YFormat uint32
	_       uint32
}

// RoPEArgs are the arguments of ced_rope.
type RoPEArgs struct {
	Rows    Addr
	X       Addr
	Freqs   Addr
	MaxRows uint32
	Heads   uint32
	Dim     uint32
	RoPEDim uint32
	Inverse uint32
	_       uint32
}

// MHCMixArgs are the arguments of ced_mhc_mix.
type MHCMixArgs struct {
	Rows    Addr
	H       Addr
	Fn      Addr
	Base    Addr
	Scale   Addr
	Pre     Addr
	Post    Addr
	Comb    Addr
	MaxRows uint32
	Dim     uint32
	Streams uint32
	Iters   uint32
	NormEps float32
	HcEps   float32
}

// MHCCollapseArgs are the arguments of ced_mhc_collapse.
type MHCCollapseArgs struct {
	Rows    Addr
	H       Addr
	Pre     Addr
	X       Addr
	MaxRows uint32
	Dim     uint32
	Streams uint32
	_       uint32
}

// MHCExpandArgs are the arguments of ced_mhc_expand.
type MHCExpandArgs struct {
	Rows    Addr
	Y       Addr
	Post    Addr
	Comb    Addr
	H       Addr
	MaxRows uint32
	Dim     uint32
	Streams uint32
	_       uint32
}

// MHCBorderArgs are the arguments of ced_mhc_border.
type MHCBorderArgs struct {
	Rows         Addr
	Y            Addr
	H            Addr
	Post         Addr
	Comb         Addr
	Pre          Addr
	Next         Addr
	Fn           Addr
	Base         Addr
	Scale        Addr
	Weight       Addr
	X            Addr
	Codes        Addr
	Scales       Addr
	MaxRows      uint32
	Dim          uint32
	Streams      uint32
	Iters        uint32
	WeightFormat uint32
	_            uint32
	NormEps      float32
	HcEps        float32
}

// EngramGatherArgs are the arguments of ced_engram_gather.
type EngramGatherArgs struct {
	Rows        Addr
	IDs         Addr
	Table       Addr
	TableScales Addr
	E           Addr
	TableRows   uint64
	MaxRows     uint32
	Cols        uint32
	Dim         uint32
	_           uint32
}

// EngramGateArgs are the arguments of ced_engram_gate.
type EngramGateArgs struct {
	Rows         Addr
	KV           Addr
	QWeight      Addr
	KWeight      Addr
	H            Addr
	MaxRows      uint32
	Dim          uint32
	Streams      uint32
	WeightFormat uint32
	Eps          float32
	_            float32
}

// WindowPackArgs are the arguments of ced_window_pack.
type WindowPackArgs struct {
	Rows         Addr
	X            Addr
	Weight       Addr
	Freqs        Addr
	Packed       Addr
	MaxRows      uint32
	Dim          uint32
	RoPEDim      uint32
	WeightFormat uint32
	Eps          float32
	_            float32
}

// WindowCommitArgs are the arguments of ced_window_commit.
type WindowCommitArgs struct {
	Rows     Addr
	Packed   Addr
	Ring     Addr
	MaxRows  uint32
	RowBytes uint32
	RingRows uint32
	_        uint32
}

// CSA2CompressArgs are the arguments of ced_csa2_compress.
type CSA2CompressArgs struct {
	Rows         Addr
	Groups       Addr
	A            Addr
	G            Addr
	Open         Addr
	Weight       Addr
	Latent       Addr
	MaxRows      uint32
	Dim          uint32
	Ratio        uint32
	OpenRows     uint32
	WeightFormat uint32
	Eps          float32
}

// KVAppendArgs are the arguments of ced_kv_append.
type KVAppendArgs struct {
	Rows         Addr
	Groups       Addr
	Latent       Addr
	K            Addr
	KWeight      Addr
	Freqs        Addr
	KV           KV
	MaxGroups    uint32
	RoPEDim      uint32
	WeightFormat uint32
	Eps          float32
}

// CSA2IndexArgs are the arguments of ced_csa2_index.
type CSA2IndexArgs struct {
	Rows        Addr
	Q           Addr
	W           Addr
	Freqs       Addr
	Candidates  Addr
	Sel         Addr
	Scores      Addr
	Workspace   Addr
	KV          KV
	MaxRows     uint32
	Heads       uint32
	RoPEDim     uint32
	TopK        uint32
	MaxGroups   uint32
	Block       uint32
	MaxBlocks   uint32
	Publish     uint32
	Restrict    uint32
	ScoreStride uint32
	Scale       float32
	_           uint32
}

// CSA2AttendArgs are the arguments of ced_csa2_attend.
type CSA2AttendArgs struct {
	Rows        Addr
	KeyRows     Addr
	Q           Addr
	Packed      Addr
	Ring        Addr
	WindowStart Addr
	Sel         Addr
	Sink        Addr
	O           Addr
	Workspace   Addr
	KV          KV
	MaxRows     uint32
	Heads       uint32
	HeadDim     uint32
	Window      uint32
	RingRows    uint32
	TopK        uint32
}

// RouteArgs are the arguments of ced_route.
type RouteArgs struct {
	Rows        Addr
	Logits      Addr
	Bias        Addr
	BiasVL      Addr
	Idx         Addr
	Weights     Addr
	MaxRows     uint32
	Experts     uint32
	TopK        uint32
	Normalise   uint32
	Temperature float32
	RouteScale  float32
	BiasFormat  uint32
	_           uint32
}

// Expert holds the addresses of one expert's tensors.
type Expert struct {
	W1       Addr
	W1Scales Addr
	W3       Addr
	W3Scales Addr
	W2       Addr
	W2Scales Addr
}

// ExpertGEMMArgs are the arguments of ced_expert_gemm.
type ExpertGEMMArgs struct {
	Rows         Addr
	X            Addr
	XScales      Addr
	Idx          Addr
	Weights      Addr
	Experts      Addr
	Shared       Expert
	Y            Addr
	Workspace    Addr
	MaxRows      uint32
	ExpertsCount uint32
	TopK         uint32
	Dim          uint32
	Inter        uint32
	Layout       uint32 // ExpertsPacked, or 0
	Limit        float32
	_            float32
	Addend       Addr
	YFormat      Format
	Flags        uint32
}

// Flags of ExpertGEMMArgs.
const (
	ExpertsPart     = 1
	ExpertsProducts = 2
	ExpertsSum      = 4
)

// GreedyArgs are the arguments of ced_greedy.
type GreedyArgs struct {
	Rows    Addr
	Logits  Addr
	IDs     Addr
	MaxRows uint32
	Vocab   uint32
}

// Format is an element format of ced.h.
type Format = uint32

// Formats of weights and activations.
const (
	BF16 Format = 0
	F32  Format = 1
	FP8  Format = 2
	FP4  Format = 3
)

// RowImage flags a row of an image span.
const RowImage = 1
