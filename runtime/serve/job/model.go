package job

import (
	"context"
	"fmt"
	"slices"
	"time"

	"cedrun/runtime/engine"
	"cedrun/runtime/model"
	"cedrun/runtime/prompt"
	"cedrun/runtime/sample"
	"cedrun/runtime/serve/wire"
	"cedrun/runtime/tokenizer"
)

// Engine runs requests.
type Engine interface {
	Submit(ctx context.Context, r engine.Request) (Generation, error)
	Load() engine.Load
}

// Generation is a running request of an Engine.
type Generation interface {
	Next(ctx context.Context) (t engine.Token, ok bool)
	Result() engine.Result
}

// Of is an engine as the server uses it.
func Of(e *engine.Engine) Engine { return running{e} }

type running struct{ *engine.Engine }

func (r running) Submit(ctx context.Context, q engine.Request) (Generation, error) {
	return r.Engine.Submit(ctx, q)
}

// Cache says how a prompt begins on what earlier ones have left in the KV cache.
type Cache string

// The modes of Cache.
const (
	CacheSnapshot Cache = "snapshot" // with the bits of a cold run
	CacheReplay   Cache = "replay"   // after bounded replay: the text may depend on whether the cache was still there
	CacheOff      Cache = "off"
)

// engine is the mode as the engine has it.
func (c Cache) engine() engine.Cache {
	switch c {
	case CacheSnapshot:
		return engine.CacheSnapshot
	case CacheReplay:
		return engine.CacheReplay
	}
	return engine.CacheOff
}

// ParseCache reads a mode.
func ParseCache(s string) (Cache, error) {
	switch c := Cache(s); c {
	case CacheSnapshot, CacheReplay, CacheOff:
		return c, nil
	}
	return "", fmt.Errorf("cache mode %q: use snapshot, replay or off", s)
}

// Model is what is served, and what requests get that do not ask for anything else.
type Model struct {
	Names       []string // the first is its id; * stands for any other name
	Tokenizer   *tokenizer.Tokenizer
	BOS, EOS    int32
	Banned      []int // ids that are never sampled
	Context     int   // tokens of prompt and text together
	Created     time.Time
	Fingerprint string   // of program and checkpoint
	Degraded    []string // what the checkpoint or this build leaves out

	Sampling  sample.Params
	MaxTokens int // 0 = what the context leaves
	Thinking  bool
	Keep      bool // earlier reasoning stays in the prompt
	Prefill   model.Prefill
	Cache     Cache
	Scoring   bool // log-probabilities of prompt tokens can be had

	forms forms
}

// ID is the model's name in responses.
func (m *Model) ID() string { return m.Names[0] }

// Check refuses names that the model does not have. No name is right.
func (m *Model) Check(name string) error {
	if name == "" || slices.Contains(m.Names, name) || slices.Contains(m.Names, "*") {
		return nil
	}
	return wire.NoModel(name, m.ID())
}

// Conversation renders and encodes messages.
func (m *Model) Conversation(messages []prompt.Message, o prompt.Options) ([]int32, prompt.Start, error) {
	p, err := prompt.Render(messages, o)
	if err != nil {
		return nil, prompt.Start{}, wire.Invalid("messages", "%v", err)
	}
	if len(p.Images) > 0 {
		return nil, prompt.Start{}, wire.Unsupported("messages", "messages: the conversation holds %d images; this build reads text only", len(p.Images))
	}
	if len(p.Warnings) > 0 {
		return nil, prompt.Start{}, wire.Invalid("messages", "%s", p.Warnings[0])
	}
	if p.Finished() {
		return nil, prompt.Start{}, wire.Invalid("messages", "messages: the last one is a complete answer, so there is nothing to write; end with a user message, or set \"prefix\": true on the last one to have it continued")
	}
	ids, err := p.Encode(m.Tokenizer)
	if err != nil {
		return nil, prompt.Start{}, wire.Unsupported("messages", "messages: %v", err)
	}
	return ids, p.Start(), nil
}
