// Package config reads a model's config.json and derives everything that follows from it alone:
// the geometry, the layer schedule and the rotary frequencies.
//
// Two spellings are accepted and may be mixed: the released root config.json (text_config,
// vision_config, quantization_config, rope_scaling) and the flat names of the reference's
// inference/config.json (dim, n_layers, window_size, ...). Every field has a list of names, see
// fields.go; two names that carry different values are an error which states both.
//
// A Config that Parse returns is safe to compute with: integers were decoded exactly, every value lies
// in a range in which products of sizes cannot overflow an int64, and every relation that the forward
// pass, the caches or the checkpoint rely on holds (validate.go).
//
// # Schedule
//
// A KV source owns a compressor, the main KV rows and the index keys made from them. An index source
// runs an indexer and publishes a selection of main KV rows. A layer with a non-zero ratio attends to
// the rows of the most recent KV source (itself included), chosen by the most recent index source:
//
//	SWA      ratio 0: the sliding window only
//	Full     KV source and index source: own rows, own keys, own selection
//	Reindex  index source only: the source's keys, own selection
//	Reuse    neither: the source's rows, an earlier selection
//
// The decoder begins at the last KV source; the replay tail begins at the layer after it.
// Spec: model.md sections 1.1 and 1.2 (fields, schedule), 1.3 and 5 (bytes), 3.7 (rotary frequencies).
package config
