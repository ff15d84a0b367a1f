package plan

// Part is what a step's time, bytes and multiplications are counted for: a part of the model, or of the host's work.
// The forward pass marks its kernel calls with these names, the walk of a step (Decode, Prompt) its calls.
type Part uint8

// Parts in the order of reports.
const (
	PartEmbedding   Part = iota // and the row sets of a step
	PartEngram                  // n-gram memory: lookup, projection, gate
	PartMixing                  // mHC and the norms at its ends
	PartProjections             // of attention: queries, window rows, output
	PartCompressor              // global KV rows and index keys
	PartIndexer                 // queries, scores, top-k
	PartAttention               // the core
	PartRouter
	PartExperts
	PartShared    // the shared expert; its kernel also runs the routed ones, so a trace has its time there
	PartHead      // output norm and head
	PartScheduler // which tokens form a step
	PartSampling
	NumParts
)

var partNames = [NumParts]string{
	"embedding", "Engram", "mHC and norms", "attention projections", "compressor", "indexer", "attention core", "router",
	"experts", "shared expert", "head", "scheduler", "sampling",
}

func (p Part) String() string { return partNames[p] }
