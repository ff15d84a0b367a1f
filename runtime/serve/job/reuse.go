package job

// Debug is what a response says beside the answer when the request asks for it.
type Debug struct {
	Cache []Reuse `json:"cache"`
}

// Reuse is what a text found in the prefix cache.
type Reuse struct {
	Choice   int    `json:"choice"`
	Mode     Cache  `json:"mode"`
	Restore  string `json:"restore"` // none, snapshot, rows, replay
	Prompt   int    `json:"prompt_tokens"`
	Hit      int    `json:"hit_tokens"`
	Replayed int    `json:"replayed_tokens"` // of the hit: run again to fill windows
	Loaded   int    `json:"disk_tokens"`     // read from disk for it
	// Agreed are the prompt tokens that the cache knew, usable or not; Difference is what follows them, if the cache goes
	// on with something else.
	Agreed     int         `json:"agreed_tokens"`
	Difference *Difference `json:"first_difference,omitempty"`
}

// Difference is where a prompt left what the cache knows: the text of some tokens from there on.
type Difference struct {
	Token  int    `json:"token"`
	Prompt string `json:"prompt"`
	Cached string `json:"cached"`
}

// Debug is what a job's texts found in the cache, nil unless asked. The texts have ended.
func (j *Job) Debug(asked bool) *Debug {
	if !asked {
		return nil
	}
	d := &Debug{Cache: []Reuse{}}
	tok := j.runner.Model.Tokenizer
	for _, c := range j.choices {
		x := Reuse{
			Choice: c.index, Mode: j.spec.Cache, Restore: "none", Prompt: len(c.prompt),
			Hit: c.reuse.Hit, Replayed: c.reuse.Rerun, Loaded: c.reuse.Loaded, Agreed: c.reuse.Agreed,
		}
		if c.reuse.Restore != "" {
			x.Restore = string(c.reuse.Restore)
		}
		if at := c.reuse.Differs; at != nil {
			x.Difference = &Difference{c.reuse.Agreed, tok.Decode(at.Prompt), tok.Decode(at.Cached)}
		}
		d.Cache = append(d.Cache, x)
	}
	return d
}
