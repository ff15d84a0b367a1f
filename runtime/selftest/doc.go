// Package selftest refuses to start on a back end or a model that computes nonsense.
//
// Kernels runs every kernel of a stream on a small fixed input and compares it with the scalar reference body: it
// notices a miscompiled library, a machine whose vector unit or device misbehaves, or a driver that returns zeros, and
// names the kernel; on a device the forms for prompts and the layout of its experts, too. Model feeds a known prompt to a
// loaded model: logits that are not finite are refused with the sub-layer where that began, and so is another answer than
// the checkpoint's own selftest.json expects.
//
// The kernels take a few milliseconds, the prompt some more. They are no proof of correctness: that is package conform.
package selftest
