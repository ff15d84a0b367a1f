// Package profile says where the time of steps went: by layer, part of the model and kernel, prefill and decode apart.
//
// A Recorder keeps what a stream's trace holds of each step of an engine; Record runs a request under one. Clocks are
// monotonic and the kernels' own: on host streams a call returns when its kernel is done, so the time around it is its
// time; a device's calls are timed by events of the device, and its decode steps then run kernel by kernel, which Time and
// Report.Compare put the same request beside as it runs otherwise.
//
// A step is tiled by sections (ced.Stream.Mark), each of a layer and a part. A section's kernels are rows of the report,
// what they leave of it is the host's row, and what sections leave of the step is its unaccounted time: in whole
// nanoseconds the rows and it sum to the step exactly.
//
// A Report prints as tables, JSON, a trace for Perfetto or Chrome (WriteTrace), and, with the bytes and FLOPs of package
// plan and the machine's rates, a roofline plot (WriteRoofline). A Recording travels as JSON, so that another process
// can ask a server for one.
package profile
