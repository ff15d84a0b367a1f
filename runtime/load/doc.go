// Package load measures a server of OpenAI's chat API as agents use it: conversations that share a long system prompt,
// grow turn by turn and ask for little text each time, all of it streamed.
//
// A Trace says what is asked: Generate makes one from a seed, ReadTrace reads one from JSON lines. Turns of a session
// follow each other, and each sends the whole conversation, replies of the server included, so that a server may reuse
// what it computed for the turn before.
//
// Requests are due either when the one before was answered and its think time has passed, in a fixed number of sessions
// at a time (closed loop), or at times that do not depend on the server (open loop). All latencies count from when a
// request was due, not from when it was sent: an answer that holds up the next turn of its session, a refusal that says
// when to come back, or a generator that lags makes later requests slow instead of making them disappear (coordinated
// omission).
//
// A stream is measured at its pieces of text, reasoning or tool call: the first one ends the time to first token, and the
// times between them are inter-token latencies. Tokens are counted by the server's usage, or, where there is none, by
// pieces.
package load
