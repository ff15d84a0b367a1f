// Package plan answers before a weight is read: what a model will hold in memory, what stays on disk, whether a wish
// fits, and how fast it will run. It is arithmetic over a config, the census that the config implies and figures of a
// machine; it computes nothing and imports nothing native.
//
// Memory has three parts. What the program allocates (KV cache, windows, step buffers) must fit. Weights that every
// token reads (attention, routers, shared experts, mixes, head) should fit, or every token reads them from disk again.
// Routed experts and rows of the embedding and of Engram tables take what is left: the mapped files are their cache.
//
// A step is a list of kernel calls (Decode, Prompt), each of a Shape, with rows and a depth. Cost turns a call into
// seconds by four numbers, which package machine measures on the shapes of the model at hand. Missing experts add
// their bytes over the disk's bandwidth. Routing is taken as uniform: real routing is skewed, so caches do better.
package plan
