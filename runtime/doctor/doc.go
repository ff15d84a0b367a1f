// Package doctor says whether this machine is fit to run a model, and what to do where it is not: processor and kernels,
// memory and the limits on it, disk, GPUs and what drives them, the checkpoint, the server's port.
//
// Facts are gathered once (Gather) and judged apart from that (Examine): whatever a machine can lack, a test can make up.
// Each finding is a line: ok, a warning (it works, but worse than it could) or a fault (something that was asked for will
// not work). A machine without a GPU is no fault of a build without CUDA.
package doctor
