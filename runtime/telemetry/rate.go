package telemetry

// Rates are what happened between two snapshots of a process. Nil: nothing did, or it is not offered.
type Rates struct {
	Seconds float64 `json:"seconds"` // between the snapshots
	// Tokens per second of the time in steps that had any of the phase.
	Prefill *float64 `json:"prefill_tokens_per_second"`
	Decode  *float64 `json:"decode_tokens_per_second"`
	// Shares of the limit: the least time of the work over the time it took.
	PrefillShare *float64 `json:"prefill_fraction_of_limit"`
	DecodeShare  *float64 `json:"decode_fraction_of_limit"`
	// Read is how many bytes the decode steps had to read, per second of theirs.
	Read       *float64 `json:"decode_read_bps"`
	EngramRows *float64 `json:"engram_rows_per_second"`
	// Experts are hit rates by layer; nil in a layer that no token went through.
	Experts []*float64 `json:"expert_hit_rate"`
}

// Between compares two snapshots; a nil or foreign first one stands for the start of the process.
func Between(first, second *Snapshot) Rates {
	var r Rates
	if second == nil || second.Model == nil {
		return r
	}
	b := second.Model
	a, since := &Model{}, second.Process.Started
	if first != nil && first.Model != nil && first.Process.PID == second.Process.PID && first.Process.Started.Equal(second.Process.Started) {
		a, since = first.Model, first.At
	}
	r.Seconds = second.At.Sub(since).Seconds()
	r.Prefill, r.Decode = b.Prefill.since(a.Prefill), b.Decode.since(a.Decode)
	if l := b.Limit; l != nil {
		if r.Prefill != nil && l.Prompt > 0 {
			r.PrefillShare = figure(*r.Prefill * l.Prompt)
		}
		if r.Decode != nil && b.Decode.Steps > a.Decode.Steps && l.Step > 0 {
			steps, t := b.Decode.Steps-a.Decode.Steps, b.Decode.Seconds-a.Decode.Seconds
			r.DecodeShare = figure(float64(steps) * l.Step / t)
			r.Read = figure(float64(steps) * l.Bytes / t)
		}
	}
	if b.Engram != nil && r.Seconds > 0 {
		before := uint64(0)
		if a.Engram != nil {
			before = a.Engram.Rows
		}
		if b.Engram.Rows >= before {
			r.EngramRows = figure(float64(b.Engram.Rows-before) / r.Seconds)
		}
	}
	r.Experts = b.Experts.since(a.Experts)
	return r
}

func figure(v float64) *float64 { return &v }

// since is tokens per second of a phase; nil when none ran.
func (p Phase) since(before Phase) *float64 {
	t := p.Seconds - before.Seconds
	if p.Tokens <= before.Tokens || t <= 0 {
		return nil
	}
	return figure(float64(p.Tokens-before.Tokens) / t)
}

func (e *Experts) since(before *Experts) []*float64 {
	if e == nil {
		return nil
	}
	out := make([]*float64, len(e.Chosen))
	for l := range out {
		chosen, missed := e.Chosen[l], e.Missed[l]
		if before != nil && l < len(before.Chosen) && before.Chosen[l] <= chosen && before.Missed[l] <= missed {
			chosen, missed = chosen-before.Chosen[l], missed-before.Missed[l]
		}
		if chosen > 0 {
			out[l] = figure(1 - min(1, float64(missed)/float64(chosen)))
		}
	}
	return out
}
