// Package engine runs requests. One goroutine owns the model and its step loop for the engine's life; everything
// before it (prompts, tokenizers) and after it (text, servers) is ordinary Go.
//
//	Submit -> queue -> admit (slot and KV pages) -> step: decode rows of all running sequences, then prefill chunks
//	within the row budget -> model.Forward -> sample -> Generation
//
// A request's tokens depend on the request alone: not on the batch it ran in, the chunks its prompt was cut into, or
// the number of threads.
package engine
