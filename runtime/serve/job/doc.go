// Package job runs what the dialects of the HTTP server ask for: one prompt or several, one text or several after each.
//
//	Spec -> Runner.Start: limits, admission -> one goroutine per text: engine tokens -> text.Reader -> Event
//
// A Job that was started has its place in a bounded queue; whatever ends its context ends it within one token or one
// chunk of prefill and gives the place back.
//
// Texts begin on what earlier ones of the same caller and salt left in the engine's prefix cache. Unless a request or
// Model.Cache asks for replay, they are those of a cold run.
package job
