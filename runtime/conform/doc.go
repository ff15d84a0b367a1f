// Package conform compares the forward pass with goldens in the conformance format: sub-layer by sub-layer with golden
// inputs fed in, end to end, in chunks, greedy, after every prefill mode and after encoder replay.
//
// Rules, stated once here (R1 and R4 are equality of bits):
//
//	R0  formats, hashes, packed rows from equal inputs: bit-equal on every back end
//	R1  the canonical back end (ref): every tensor bit-equal, end to end
//	R2  other back ends: each sub-layer, fed with golden inputs, within the tolerance of its kind (rules.go)
//	R3  other back ends, end to end: only on goldens without sub-layer tensors, made robust against rounding: equal
//	    argmax and greedy tokens, relative error of the logits at most 0.35
//	R4  self-consistency: chunks, decode, batches and cone give the bits of one-shot exact prefill
//
// Sections for parts that are not built (drafts, vision) are counted, never passed.
package conform
