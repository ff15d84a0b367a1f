// Package machine measures what package plan predicts from: the time of the kernels that a model will call, on the
// shapes of that model with synthetic weights, and how fast files of its directory are read.
//
// The kernels of a step run in turn, round after round, each on the next piece of a buffer of about the size that a
// token reads (256 MiB at most): so a small model is measured in the cache and a large one in memory, and threads wake
// as they do between the kernels of a real step. A call that would take long runs on fewer outputs and is scaled up.
package machine
