// Package metrics counts and writes the Prometheus text format (version 0.0.4). The official client would bring eight
// modules, protocol buffers among them; the server needs counters, gauges and histograms.
package metrics
