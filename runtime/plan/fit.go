package plan

import (
	"fmt"
	"strings"

	"cedrun/runtime/config"
	"cedrun/runtime/kv"
)

// Memory is where a model's bytes go on a machine.
type Memory struct {
	Have    int64   `json:"have"` // bytes that can be had without swapping; 0 = unknown
	Weights Weights `json:"weights"`
	Buffers Buffers `json:"buffers"`

	// ExpertsHeld are the bytes of routed experts that stay in memory beside everything else, ExpertShare their part of
	// all. Rows is what then remains for rows of the embedding and Engram tables.
	ExpertsHeld int64   `json:"experts_held"`
	ExpertShare float64 `json:"expert_share"`
	Rows        int64   `json:"rows_held"`
	// KVTokens is what the setup has room for, KVFit the tokens of KV cache that would fit with no routed expert held; 0
	// without KVGrows, when any number would.
	KVGrows  bool  `json:"kv_grows"`
	KVTokens int   `json:"kv_tokens"`
	KVFit    int64 `json:"kv_tokens_fit"`
}

// Need is what must be in memory for a token to need the disk for nothing but routed experts and table rows.
func (m *Memory) Need() int64 { return m.Buffers.Total() + m.Weights.Always() }

// OnDisk is what a step may have to read from disk.
func (m *Memory) OnDisk() int64 { return m.Weights.OnDemand() - m.ExpertsHeld - m.Rows }

// Place lays weights and a filled setup out in have bytes of memory. threads counts CPU workers.
func Place(c *config.Config, w Weights, s Setup, threads int, have int64) *Memory {
	m := &Memory{Have: have, Weights: w, Buffers: CountBuffers(c, s, threads), KVGrows: KVGrows(c), KVTokens: s.KVTokens}
	left := have - m.Need()
	if have == 0 {
		left = m.Weights.OnDemand()
	}
	if m.ExpertsHeld = min(max(left, 0), m.Weights.Experts); m.Weights.Experts > 0 {
		m.ExpertShare = float64(m.ExpertsHeld) / float64(m.Weights.Experts)
	}
	m.Rows = min(max(left-m.ExpertsHeld, 0), m.Weights.Embedding+m.Weights.Engram)
	if room := left + m.Buffers.KV; have > 0 && room > 0 && m.KVGrows {
		m.KVFit = room / (pageBytes(c) + 4) * kv.PageTokens
	}
	return m
}

// Shortage says what experts that do not fit into memory mean for a token; empty when all fit or nothing is known.
func (m *Memory) Shortage(c *config.Config) string {
	if m.Have == 0 || m.ExpertsHeld == m.Weights.Experts {
		return ""
	}
	token := 0.
	Decode(c, 1, 0, func(k Call, times float64) {
		if k.Kernel == Experts {
			token += times * k.Bytes() * (1 - m.ExpertShare)
		}
	})
	what := fmt.Sprintf("%s of memory are free; buffers and what every token reads take %s, which leaves room for %s of %s of experts (%.0f %%)",
		GB(m.Have), GB(m.Need()), GB(m.ExpertsHeld), GB(m.Weights.Experts), 100*m.ExpertShare)
	if over := m.Need() - m.Have; over > 0 {
		what = fmt.Sprintf("%s of memory are free, but buffers and what every token reads take %s", GB(m.Have), GB(m.Need()))
		token += float64(min(over, m.Weights.Always())) // buffers are not on disk
	}
	return fmt.Sprintf("%s: each token will read about %s of weights from disk, %s at 3 GB/s; cedrun plan measures this disk and predicts the speed", what, GB(int64(token)), seconds(token/3e9))
}

// seconds writes a time without an exponent.
func seconds(s float64) string {
	switch {
	case s >= 10:
		return fmt.Sprintf("%.0f s", s)
	case s >= 0.01:
		return fmt.Sprintf("%.2g s", s)
	}
	return "less than 0.01 s"
}

// FitError is a wish that the memory does not hold.
type FitError struct {
	Need, Have int64
	What       string // what takes the memory
	Where      string // empty: the host; else " on" a device
	Remedy     string
}

func (e *FitError) Error() string {
	return fmt.Sprintf("needs %s of memory%s (%s) and has %s: %s", GB(e.Need), e.Where, e.What, GB(e.Have), e.Remedy)
}

// Fit reports what a setup needs more than the machine has, as a *FitError that says what to change. Arguments as for
// Place.
func Fit(c *config.Config, w Weights, s Setup, threads int, have int64) error {
	m := Place(c, w, s, threads, have)
	if have == 0 || m.Need() <= have {
		return nil
	}
	e := &FitError{Need: m.Need(), Have: have}
	e.What = fmt.Sprintf("%s of KV cache and windows for %d x %d tokens, %s of weights that every token reads, %s of buffers",
		GB(m.Buffers.KV+m.Buffers.Windows), s.Slots, s.Context, GB(m.Weights.Always()), GB(m.Buffers.Step+m.Buffers.Program))
	fits := func(context, slots int) bool {
		smaller, err := Setup{Context: context, Slots: slots}.Fill(c)
		return err == nil && Place(c, w, smaller, threads, have).Need() <= have
	}
	var remedies []string
	if n := most(s.Context/kv.PageTokens, func(pages int) bool { return fits(pages*kv.PageTokens, s.Slots) }); n > 0 {
		remedies = append(remedies, fmt.Sprintf("lower --context to %d", n*kv.PageTokens))
	}
	if n := most(s.Slots-1, func(slots int) bool { return fits(s.Context, slots) }); n > 0 {
		remedies = append(remedies, fmt.Sprintf("lower --batch to %d", n))
	} else if n := longest(s, func(context int) bool { return fits(context, 1) }); n > 0 {
		remedies = append(remedies, fmt.Sprintf("lower --batch to 1 and --context to %d", n))
	}
	if e.Remedy = strings.Join(remedies, ", or "); e.Remedy == "" {
		least, err := Setup{Context: min(kv.PageTokens, c.MaxPositions), Slots: 1}.Fill(c)
		if err != nil {
			return err
		}
		e.Remedy = fmt.Sprintf("no context is short enough; one sequence of %d tokens takes %s, so free memory or raise its limit", least.Context, GB(Place(c, w, least, threads, have).Need()))
	}
	return e
}

// longest is the context of one text where several are wished and not even one has room for the whole context; else 0.
func longest(s Setup, fits func(context int) bool) int {
	if s.Slots < 2 {
		return 0
	}
	return kv.PageTokens * most(s.Context/kv.PageTokens, func(pages int) bool { return fits(pages * kv.PageTokens) })
}

// most is the largest n of 1..limit that is good, 0 for none; what holds for n holds for all below.
func most(limit int, good func(int) bool) int {
	low, high := 0, limit
	for low < high {
		if mid := (low + high + 1) / 2; good(mid) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}
