package job

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"

	"cedrun/runtime/prompt"
	"cedrun/runtime/sample"
	"cedrun/runtime/serve/wire"
)

// ReadSampling reads the sampling settings of a request, which have the same names in all dialects. Without a seed each
// request has its own.
func (m *Model) ReadSampling(f *wire.Fields) sample.Params {
	p := m.Sampling
	f.Float("temperature", &p.Temperature, 0, sample.MaxTemperature)
	f.Float("top_p", &p.TopP, 0, 1)
	f.Int("top_k", &p.TopK, -1, math.MaxInt)
	p.TopK = max(p.TopK, 0) // -1 is off elsewhere
	f.Float("min_p", &p.MinP, 0, 1)
	f.Float("repetition_penalty", &p.RepetitionPenalty, 0.01, 10)
	f.Float("presence_penalty", &p.PresencePenalty, -2, 2)
	f.Float("frequency_penalty", &p.FrequencyPenalty, -2, 2)
	p.Banned = m.Banned
	var ignoreEOS bool
	if f.Bool("ignore_eos", &ignoreEOS); ignoreEOS {
		p.Banned = append(p.Banned[:len(p.Banned):len(p.Banned)], int(m.EOS))
	}
	p.Seed = readSeed(f)
	readBias(f, &p)
	if err := p.Validate(); err != nil {
		f.FailWith(wire.Invalid("", "%v", err))
	}
	return p
}

// readSeed takes any integer of 64 bits, signed or not.
func readSeed(f *wire.Fields) uint64 {
	raw := string(f.Raw("seed"))
	if raw == "" {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		return binary.LittleEndian.Uint64(b[:])
	}
	if v, err := strconv.ParseUint(raw, 10, 64); err == nil {
		return v
	}
	v, err := strconv.ParseInt(raw, 10, 64)
	if err != nil {
		f.Fail("seed", "must be an integer, not %s", wire.Clip(raw))
	}
	return uint64(v)
}

func readBias(f *wire.Fields, p *sample.Params) {
	raw := f.Raw("logit_bias")
	if raw == nil {
		return
	}
	var given map[string]float64
	if json.Unmarshal(raw, &given) != nil {
		f.Fail("logit_bias", "must be an object of token ids and numbers, not %s", wire.Clip(string(raw)))
		return
	}
	p.Bias = map[int]float64{}
	for id, v := range given {
		n, err := strconv.Atoi(id)
		if err != nil || n < 0 || !(math.Abs(v) <= 100) {
			f.Fail("logit_bias", "must give token ids from 0 values from -100 to 100, not %q: %v", wire.Clip(id), v)
			return
		}
		p.Bias[n] = v
	}
}

// Thinking is whether and how hard the model reasons before it answers.
type Thinking struct {
	On     bool
	Effort int // 1 to 100; 0 = default
	Keep   bool
}

// Thinking is the setting of a request that says nothing.
func (m *Model) DefaultThinking() Thinking { return Thinking{On: m.Thinking, Keep: m.Keep} }

// ReadEffort reads a reasoning effort (serving.md 7.2): a name, or an integer from 1 to 100; none turns reasoning off,
// any other turns it on.
func (t *Thinking) ReadEffort(f *wire.Fields, name string) {
	raw := f.Raw(name)
	if raw == nil {
		return
	}
	var given string
	if json.Unmarshal(raw, &given) == nil {
		switch given {
		case "none":
			t.On = false
			return
		case "minimal", "low":
			t.On, t.Effort = true, prompt.EffortLow
			return
		case "medium", "high", "xhigh":
			t.On, t.Effort = true, prompt.EffortHigh
			return
		case "max", "ultra":
			t.On, t.Effort = true, prompt.EffortMax
			return
		}
	} else if n, err := prompt.EffortFromJSON(raw); err == nil {
		t.On, t.Effort = true, n
		return
	}
	f.Fail(name, "must be none, low, high, max or an integer from 1 to 100, not %s", wire.Clip(string(raw)))
}

// ReadSwitch reads {"type": "enabled"}, which wins over an effort.
func (t *Thinking) ReadSwitch(f *wire.Fields, name string) {
	o := f.Object(name)
	if o == nil {
		return
	}
	var kind string
	if !o.String("type", &kind) {
		o.Fail("type", "is missing: use enabled, adaptive or disabled")
	}
	switch kind {
	case "enabled", "adaptive":
		t.On = true
	case "disabled":
		t.On = false
	default:
		o.Fail("type", "must be enabled, adaptive or disabled, not %q", wire.Clip(kind))
	}
	o.Ignore("budget_tokens", "display")
}

// ReadCache reads the request's own cache mode and what sets its cache apart.
func (m *Model) ReadCache(f *wire.Fields) (c Cache, salt string) {
	c = m.Cache
	var given string
	if f.String("cache", &given) {
		var err error
		if c, err = ParseCache(given); err != nil {
			f.Fail("cache", "must be snapshot, replay or off, not %q", wire.Clip(given))
		}
	}
	f.String("cache_salt", &salt)
	return c, salt
}
