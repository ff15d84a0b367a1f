package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/engine"
	"cedrun/runtime/grammar"
	"cedrun/runtime/sample"
)

// form is the schema that a text must match.
type form struct {
	name   string
	schema string
}

// readForm reads --json-schema; nil without one. A prompt in the chat template tells the model of it.
func (con *console) readForm(c *cli.Context, a *ask) (*form, error) {
	if !c.IsSet("json-schema") {
		return nil, nil
	}
	f := &form{name: c.String("json-schema")}
	var err error
	if f.schema, err = con.readFile("--json-schema", f.name); err != nil {
		return nil, err
	}
	if !a.raw && a.options.ResponseFormat == nil && json.Valid([]byte(f.schema)) {
		a.options.ResponseFormat = json.RawMessage(f.schema)
	}
	return f, nil
}

// constraint limits a text after the prompt to the schema.
func (f *form) constraint(files *engine.Files, in *input) (sample.Constraint, error) {
	if in.start.Continues && !in.start.Reasoning && !in.raw {
		return nil, errors.New("--json-schema: the conversation ends in the beginning of an answer; end it with a user message")
	}
	vocab, err := grammar.NewVocab(files.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("--json-schema: %w", err)
	}
	g, err := vocab.Compile(grammar.Output{Reasoning: in.start.Reasoning, Format: grammar.Schema, Schema: []byte(f.schema)})
	if err != nil {
		return nil, fmt.Errorf("--json-schema %s: %w", f.name, err)
	}
	return g.Start(), nil
}
