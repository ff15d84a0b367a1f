// Package model is the forward pass: it composes the kernels of package ced into layers, one file per block of the
// architecture, and owns what a sequence keeps on the device between steps. It knows streams, not devices, and neither
// requests nor schedules: package engine decides which tokens form a step.
//
// A step (Forward) runs spans of tokens of several sequences, prefill and decode mixed. All its rows go through the
// layers up to the last KV source; then only the rows that the decoder needs go on (spec 7): Plan says from which
// position on, per layer. Rows that drop out are compacted away, so every kernel sees dense rows.
//
//	Forward -> embed -> per layer: engram -> mhc -> attention (csa2) -> mhc -> moe -> mhc ... -> head -> logits
//
// A Probe sees, and may replace, every sub-layer tensor under the names of the conformance goldens.
package model
