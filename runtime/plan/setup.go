package plan

import (
	"fmt"

	"cedrun/runtime/config"
	"cedrun/runtime/kv"
)

// Setup sizes an engine. Zeros stand for what Fill puts in their place.
type Setup struct {
	Context   int   // tokens a sequence may have; 0 = 8192 or what the model allows
	Slots     int   // sequences at a time; 0 = 1
	Chunk     int   // prefill rows of a step; 0 = 256
	Outputs   int   // rows of a step that may want logits; 0 = one per slot
	KVTokens  int   // tokens of KV cache in all; 0 = Slots * Context, in whole pages
	Snapshots int64 // most bytes of snapshots; 0 = none are taken
	// HostExperts lets the CPU compute the experts that a device has no room for.
	HostExperts bool
	// NoGraphs lets a device run decode steps uncaptured.
	NoGraphs bool
}

// DiskChunk is Setup.Chunk for models whose experts do not fit into memory: each chunk of a prompt reads nearly all that
// are missing, so fewer chunks read less.
const DiskChunk = 2048

// FillFor is Fill on a machine: of have bytes (0 = unknown), with threads CPU workers.
func (s Setup) FillFor(c *config.Config, w Weights, threads int, have int64) (Setup, error) {
	filled, err := s.Fill(c)
	if err != nil || s.Chunk != 0 || Place(c, w, filled, threads, have).Shortage(c) == "" {
		return filled, err
	}
	s.Chunk = DiskChunk
	wide, err := s.Fill(c)
	if err != nil || Place(c, w, wide, threads, have).Need() > have {
		return filled, err
	}
	return wide, nil
}

// Fill replaces zeros by what they stand for.
func (s Setup) Fill(c *config.Config) (Setup, error) {
	if s.Context == 0 {
		s.Context = min(8192, c.MaxPositions)
	}
	if s.Context < 1 || s.Context > c.MaxPositions {
		return s, fmt.Errorf("context of %d tokens: this model takes 1 to %d", s.Context, c.MaxPositions)
	}
	s.Slots = max(s.Slots, 1)
	if s.Chunk == 0 {
		s.Chunk = 256
	}
	s.Chunk = min(s.Chunk, s.Context)
	if s.Outputs == 0 {
		s.Outputs = s.Slots
	}
	if s.KVTokens == 0 {
		s.KVTokens = s.Slots * kv.PagesFor(s.Context) * kv.PageTokens
	}
	return s, nil
}

// rows is the capacity of a step.
func (s Setup) rows() int { return s.Chunk + s.Slots }
