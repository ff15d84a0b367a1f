// Package telemetry carries what a running engine counts to those who look: a snapshot type, and a server and a client
// that speak over a unix socket.
//
// A process that publishes listens on PID.sock (mode 0600) in Dir, a directory of mode 0700. A connection carries lines
// of JSON, a question and an answer in turn:
//
//	{"want":"snapshot"}
//	{"reply":{"version":1,"process":{...},"model":{...}}}
//	{"want":"weather"}
//	{"error":"this cedrun knows nothing of \"weather\": ask for snapshot"}
//
// Nothing is computed until somebody asks. Counters only grow; two snapshots some time apart make rates (Between).
// A nil part is one that the process does not offer.
package telemetry
