package job

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"cedrun/runtime/grammar"
	"cedrun/runtime/prompt"
	"cedrun/runtime/serve/wire"
)

// Form is what a request demands of its output.
type Form struct {
	Format  grammar.Format
	Schema  json.RawMessage
	At      string          // the field that holds the schema, or the format
	Strict  map[string]bool // the functions by name: whether calls must fit their schemas
	Require bool            // a function must be called
	Name    string          // with Require: that one
	One     bool            // at most one call
}

// Demand makes a prompt say what the form is.
func (f *Form) Demand(o *prompt.Options) error {
	switch f.Format {
	case grammar.Object:
		o.ResponseFormat = json.RawMessage(`{"type": "json_object"}`)
	case grammar.Schema:
		o.ResponseFormat = f.Schema
	}
	if !f.Require || o.Thinking { // after reasoning the grammar alone makes the model call
		return nil
	}
	o.RequireTool = true
	if f.Name != "" {
		tools, err := f.tools(o.Tools)
		if err != nil {
			return err
		}
		o.ToolName = tools[0].Name
	}
	return nil
}

// tools are the functions that may be called, as the model knows them.
func (f *Form) tools(given []json.RawMessage) ([]grammar.Tool, error) {
	var tools []grammar.Tool
	for i, raw := range given {
		var t struct {
			Function struct {
				Name       string          `json:"name"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"function"`
		}
		full, err := prompt.ToolName(raw)
		if err == nil {
			err = json.Unmarshal(raw, &t)
		}
		if err != nil {
			return nil, wire.Invalid("tools", "tools[%d]: %v", i, err)
		}
		fn := &t.Function
		if f.Name != "" && f.Name != fn.Name {
			continue
		}
		if string(fn.Parameters) == "null" {
			fn.Parameters = nil
		}
		if fn.Parameters == nil && f.Strict[fn.Name] {
			fn.Parameters = json.RawMessage(`{"type": "object", "properties": {}}`)
		}
		tools = append(tools, grammar.Tool{Name: full, Parameters: fn.Parameters, Strict: f.Strict[fn.Name]})
	}
	return tools, nil
}

// Grammar compiles a form for outputs that begin as the prompt says; nil if any output will do.
func (m *Model) Grammar(f *Form, o *prompt.Options, start prompt.Start) (*grammar.Grammar, error) {
	tools, err := f.tools(o.Tools)
	if err != nil {
		return nil, err
	}
	out := grammar.Output{Reasoning: start.Reasoning, Format: f.Format, Schema: f.Schema, Tools: tools, One: f.One || f.Name != ""}
	switch {
	case f.Require:
		out.Calls = grammar.MustCall
	case len(tools) > 0:
		out.Calls = grammar.MayCall
	}
	if start.Prefill != "" {
		if out.Started = grammar.InBlock; f.Name != "" {
			out.Started = grammar.InCall
		}
	}
	if out.Free() {
		return nil, nil
	}
	if start.Continues && !start.Reasoning {
		return nil, wire.Unsupported("messages", "messages: \"prefix\" does not go with constrained output (%s, a required or strict tool)", "response_format")
	}
	g, err := m.forms.compile(m, out)
	var schema *grammar.Error
	switch {
	case err == nil:
		return g, nil
	case errors.As(err, &schema) && f.Format == grammar.Schema && err == error(schema):
		return nil, wire.Unsupported(f.At, "%s: %v", f.At, err)
	}
	return nil, wire.Unsupported("tools", "tools: %v", err)
}

// maxForms bounds the grammars that are kept for requests that ask for the same.
const maxForms = 16

// forms are the grammars of late requests.
type forms struct {
	mu    sync.Mutex
	vocab *grammar.Vocab
	known map[[sha256.Size]byte]*grammar.Grammar
}

func (f *forms) compile(m *Model, out grammar.Output) (*grammar.Grammar, error) {
	key, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(key)
	f.mu.Lock()
	vocab := f.vocab
	if vocab == nil {
		if vocab, err = grammar.NewVocab(m.Tokenizer); err != nil {
			f.mu.Unlock()
			return nil, fmt.Errorf("this model cannot constrain its output: %w", err)
		}
		f.vocab = vocab
	}
	g := f.known[digest]
	f.mu.Unlock()
	if g != nil {
		return g, nil
	}
	if g, err = vocab.Compile(out); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known == nil || len(f.known) >= maxForms {
		f.known = map[[sha256.Size]byte]*grammar.Grammar{}
	}
	f.known[digest] = g
	return g, nil
}
