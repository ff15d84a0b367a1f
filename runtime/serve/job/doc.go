// Package job runs what the dialects of the HTTP server ask for: one prompt or several, one text or several after each.
//
//	Spec -> Runner.Start: limits, admission -> one goroutine per text: engine tokens -> text.Reader -> Event
//
// A Job that was started has its place in a bounded queue; whatever ends its context ends it within one token or one
// chunk of prefill and gives the place back.
//
// Idle conversations keep their KV cache (sessions.go). A text does not depend on them: unless Model.Cache says
// otherwise, a conversation is continued only in prefill modes in which that gives the bits of a cold run.
package job
