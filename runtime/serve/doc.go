// Package serve is the HTTP server: routing, keys, limits, the access log, metrics and the life of the process. What
// requests say is the business of the dialects.
//
//	openai/     chat completions, completions, responses
//	anthropic/  messages
//	job/        admission, conversations, engine tokens to events
//	wire/       request fields, errors, event streams
//	page/       what a browser shows at /
//	metrics/    counters and the Prometheus text format
//
// A Server answers from the start: /health says that the process lives, everything that needs the model is a 503 until
// Ready has been called, and again once Drain has.
package serve
