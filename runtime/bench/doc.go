// Package bench measures a model on this machine against what the machine allows: prefill and decode apart, at several
// depths, per prefill mode and batch, and the rates that bound them in the same run.
//
// Every case runs Repeat times, all cases in turn, each after a measurement of memory bandwidth and multiply rates, so
// that a machine that slows down slows both. A case's figures are those of its median run; rates are medians.
//
// Cases go through the engine, as requests do. Prompts are random ids, so the real router chooses experts; decode starts
// on filled caches (model.Fill), so a depth costs its memory and no time. The stream's trace splits a step by part of
// the model and by kernel; what the trace does not cover is shown as unaccounted.
//
// Limits come from package plan: bytes and FLOPs by part from the config alone, over the measured rates. A part's limit
// is the larger of its two times, a row's limit the sum of its parts'. The multiply rate is the faster of BF16 and F32,
// but F32 for mixes: what is exact in BF16 can be multiplied in either.
package bench
