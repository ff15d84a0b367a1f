package plan

import (
	"fmt"

	"cedrun/runtime/config"
)

// HostOf is what a plan for a device leaves to the host, of which have bytes are free (0 = unknown): page-locked experts,
// and rows of Engram tables as far as there is room.
func HostOf(d *OnDevice, c *config.Config, w Weights, s Setup, have int64) (*Memory, error) {
	m := &Memory{Have: have, Weights: w, ExpertsHeld: w.Experts, ExpertShare: 1, KVGrows: d.KVGrows, KVTokens: d.KVTokens, KVFit: d.KVFit}
	m.Buffers = Buffers{Kept: keptBytes(c, s), Snapshots: s.Snapshots, Step: d.HostRows, Program: programBytes(c)}
	need := m.Buffers.Total() + d.Locked()
	if d.Device.Unified {
		need += d.Need()
	}
	m.Rows = w.Embedding + w.Engram // the device has the embedding
	if have == 0 {
		return m, nil
	}
	if need > have {
		e := &FitError{Need: need, Have: have, Where: " on the host", Remedy: "lower --kv-host"}
		e.What = fmt.Sprintf("%s of experts, page-locked, of which %s fit on %s, %s of snapshots", GB(d.Locked()), GB(d.Experts), d.Device.Name, GB(s.Snapshots))
		if d.Locked() > 0 && need-s.Snapshots > have {
			e.Remedy = "take a GPU or a host with more memory, or --expert-compute cpu, which locks none, or --backend cpu, which reads experts from disk"
		}
		return nil, e
	}
	if d.HostExperts {
		held := min(d.ExpertsHost, have-need)
		need += held
		m.ExpertsHeld = d.Experts + held
		m.ExpertShare = float64(m.ExpertsHeld) / float64(w.Experts)
	}
	m.Rows = w.Embedding + min(have-need, w.Engram)
	return m, nil
}

// hostRowBytes are a step's rows for the CPU's experts, the sum of these, and what the CPU needs to compute them.
func hostRowBytes(c *config.Config, s Setup) int64 {
	d := c.HiddenSize
	return int64(s.rows()*(d+d/32+8*c.ExpertsPerToken+4*d)) + expertWorkspace(c, s.rows())
}
