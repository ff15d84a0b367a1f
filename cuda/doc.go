// Package ced binds ced.h, the boundary to the native kernels: streams, memory and one method per kernel. It holds no
// policy and knows nothing of the model; package model composes the kernels into the forward pass.
//
// The directory is called cuda because that is this project's word for "native": scalar reference, CPU and CUDA bodies
// of a kernel live side by side in kernel/<name>. A kernel has one name everywhere: directory, C function ced_<name>,
// Go method, test, benchmark row and profile label.
package ced
