// Package inventory says what a checkpoint is from its config alone: the layer schedule (spec model.md 1.2), parameters
// and bytes by part, the parameters that a token is multiplied by in prefill and in decode (1.4), and the caches that a
// sequence needs (1.3).
//
// Count walks the census (checkpoint.Expected) once; nothing here reads a weight. Parameters are logical: an FP4 byte
// holds two, a block scale none. Report gathers everything for people (Print) and programs (JSON); with an open
// checkpoint it adds what is stored.
package inventory
