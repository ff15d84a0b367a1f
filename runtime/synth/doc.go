// Package synth writes checkpoints of random weights in the released format: names, dtypes, packing, shards, index,
// config.json and tokenizer.json of a real one, magnitudes as measured on the release. They serve to measure speed, where
// values do not matter but must be of the right size: no activation saturates, every expert is chosen, quantised codes
// are distributed as those of normal values.
//
// A preset names the geometry. The same preset and seed give the same bytes, whatever the number of threads: each
// element is a function of seed, tensor name and its number. Memory does not grow with the model: threads make pieces of
// a few hundred kilobytes and write each to its place.
//
// An interrupted Write continues when it is called again. Files appear whole or not at all, shards that are there are
// compared byte by byte with what they should be, and the index, without which nothing opens, comes last.
package synth
