package grammar

import (
	"fmt"
	"strings"

	"cedrun/runtime/prompt"
)

// Format is what the content of an output must be.
type Format uint8

// The formats of content.
const (
	Text   Format = iota // anything
	Object               // any JSON object
	Schema               // JSON of a schema
)

// Calls says whether an output calls tools.
type Calls uint8

// The ways to call tools.
const (
	NoCalls  Calls = iota
	MayCall        // content, or calls after content
	MustCall       // calls and nothing else
)

// Tool is a function that the model may call.
type Tool struct {
	Name       string
	Parameters []byte // the schema of its arguments, an object; nil: none are known
	Strict     bool   // a schema that is not supported is an error; else it is left out of account
}

// Output describes the outputs of a request.
type Output struct {
	Reasoning bool   // the output begins inside of the reasoning, which is free
	Format    Format // of the content
	Schema    []byte // with Format Schema
	Calls     Calls
	Tools     []Tool
	One       bool // at most one call
	// Started says how much of the markup of calls the prompt already holds: nothing, the beginning of the block, or that
	// of a call of the only tool.
	Started Started
}

// Started is how far a prompt has begun to call tools.
type Started uint8

// The beginnings of calls.
const (
	NotStarted Started = iota
	InBlock            // after "<｜DSML｜ calls>\n"
	InCall             // after the header of the call
)

// Free reports whether any output will do, so that no grammar is needed.
func (o *Output) Free() bool {
	if o.Format != Text || o.Calls == MustCall {
		return false
	}
	for _, t := range o.Tools {
		if t.Strict && o.Calls == MayCall {
			return false
		}
	}
	return true
}

// maxTools bounds the tools of an output.
const maxTools = 256

// Compile makes the grammar of outputs. Errors about a schema are of type *Error, perhaps wrapped with the tool's name.
func (v *Vocab) Compile(o Output) (*Grammar, error) {
	b := newBuilder(v, program{left: maxTotalStates}, false)
	end := b.add(inst{op: opEnd})
	content, err := b.content(&o, end)
	if err != nil {
		return nil, err
	}
	start := content
	if o.Calls != NoCalls {
		calls, err := b.calls(&o, end)
		if err != nil {
			return nil, err
		}
		switch {
		case o.Calls == MustCall:
			start = calls
		case o.Format == Text: // calls may follow text; the newlines before them belong to it
			start = b.word(v.free, 0, -1, b.split(end, calls))
		default:
			start = b.split(content, b.literal("\n\n", calls))
		}
		if o.Calls == MustCall && o.Started == NotStarted {
			start = b.literal("\n\n", start)
		}
	}
	if o.Reasoning {
		if v.symbols.thinkEnd < 0 {
			return nil, fmt.Errorf("the vocabulary has no token %s; constrained output after reasoning needs it", prompt.ThinkEnd)
		}
		start = b.word(v.mind, 0, -1, b.symbol(v.symbols.thinkEnd, start))
	}
	if b.err != nil {
		return nil, &Error{"#", b.err.Error()}
	}
	if !b.measure(start) {
		return nil, &Error{"#", "no value matches the schema, or all are nested too deep"}
	}
	return &Grammar{
		vocab: v, insts: b.insts, start: start, frames: map[frame]*stack{}, masks: map[string][]uint64{}, seen: map[visit]struct{}{},
	}, nil
}

func (b *builder) content(o *Output, end int32) (int32, error) {
	switch o.Format {
	case Object:
		return b.mapOf(b.strings, 0, -1, func(next int32) int32 { return b.call(b.anyRule(), next) }, end), nil
	case Schema:
		return b.within(o.Schema, func(root *node) (int32, error) { return b.value(root, whole, end) })
	}
	return b.word(b.v.free, 0, -1, end), nil
}

// within compiles within a schema of its own.
func (b *builder) within(schema []byte, compile func(*node) (int32, error)) (int32, error) {
	root, err := parse(schema)
	if err != nil {
		return 0, err
	}
	b.root = root
	return compile(root)
}

// Markup of calls around the control token (serving.md 6.3).
const (
	callsOpen   = " calls>\n"
	invokeOpen  = ` invoke name="`
	invokeClose = " invoke>\n"
	callsClose  = " calls>"
)

// tag reads "<" or "</", the token and what follows it.
func (b *builder) tag(before, after string, next int32) int32 {
	return b.literal(before, b.symbol(b.v.symbols.dsml, b.literal(after, next)))
}

// calls compiles the block of calls, or what is left of it.
func (b *builder) calls(o *Output, end int32) (int32, error) {
	switch {
	case b.v.symbols.dsml < 0:
		return 0, fmt.Errorf("the vocabulary has no token %s; calls of tools need it", prompt.DSML)
	case len(o.Tools) == 0:
		return 0, fmt.Errorf("there are no tools to call")
	case len(o.Tools) > maxTools:
		return 0, fmt.Errorf("%d tools; at most %d are possible with constrained output", len(o.Tools), maxTools)
	case o.Started == InCall && len(o.Tools) != 1:
		return 0, fmt.Errorf("a call was begun, but there are %d tools", len(o.Tools))
	}
	closing := b.tag("</", callsClose, end)
	after := b.later()  // what follows a call
	var bodies []int32  // of calls, from behind their headers
	var headers []int32 // the rest of the line, with the body
	for _, t := range o.Tools {
		body, err := b.tool(t, after)
		if err != nil {
			return 0, fmt.Errorf("tool %q: %w", clip(t.Name), err)
		}
		bodies = append(bodies, body)
		headers = append(headers, b.literal(t.Name+"\">\n", body))
	}
	invoke := b.tag("<", invokeOpen, b.split(headers...))
	if o.One {
		b.set(after, closing)
	} else {
		b.set(after, b.split(closing, invoke))
	}
	switch o.Started {
	case InBlock:
		return invoke, nil
	case InCall:
		return bodies[0], nil
	}
	return b.tag("<", callsOpen, invoke), nil
}

// tool compiles a call from behind its header to the end of its last line.
func (b *builder) tool(t Tool, next int32) (int32, error) {
	if t.Name == "" || strings.ContainsAny(t.Name, "\"\n") || strings.Contains(t.Name, prompt.DSML) || strings.Contains(t.Name, prompt.EOS) {
		return 0, fmt.Errorf("the name cannot be written in a call")
	}
	closing := b.tag("\n</", invokeClose, next)
	if t.Parameters != nil {
		args := newBuilder(b.v, b.program, true)
		pc, err := args.within(t.Parameters, func(root *node) (int32, error) { return args.arguments(root, closing) })
		if err == nil && args.err == nil && pc >= 0 {
			b.program = args.program
			return pc, nil
		}
		b.left = args.left
		if t.Strict && err == nil && args.err == nil {
			err = &Error{"#", "the arguments must have listed properties and no additional ones"}
		}
		if t.Strict && err == nil {
			err = &Error{"#", args.err.Error()}
		}
		if t.Strict {
			return 0, err
		}
	}
	return b.anyArguments(closing), nil
}

// arguments compiles the parameters of a call; -1 if the schema allows any.
func (b *builder) arguments(n *node, closing int32) (int32, error) {
	for range maxMerges {
		if n.kind != objectValue {
			return 0, n.fail("the schema of arguments must be an object")
		}
		if err := check(n); err != nil {
			return 0, err
		}
		rest := n
		var parts []*node
		if ref := n.get("$ref"); ref != nil {
			to, err := b.root.resolve(ref)
			if err != nil {
				return 0, err
			}
			rest, parts = n.without("$ref"), []*node{to}
		} else if all := n.get("allOf"); all != nil {
			rest, parts = n.without("allOf"), all.items
		} else {
			break
		}
		for _, s := range parts {
			var err error
			if rest, err = merge(rest, s); err != nil {
				return 0, err
			}
		}
		n = rest
	}
	for _, key := range []string{"$ref", "allOf", "anyOf", "oneOf", "enum", "const", "minProperties", "maxProperties"} {
		if v := n.get(key); v != nil {
			return 0, v.fail("the keyword %q of the arguments themselves is not supported", key)
		}
	}
	if types, err := typesOf(n); err != nil || len(types) == 0 || types[0] != "object" && n.get("type") != nil {
		return 0, n.fail("the arguments must be of type object")
	}
	list, others, err := propertiesOf(n)
	if err != nil {
		return 0, err
	}
	if others != nil {
		return -1, nil
	}
	// some and none are where it goes on after a parameter and before the first: parameters stand on lines of their own.
	some, none := closing, closing
	for i := len(list) - 1; i >= 0; i-- {
		p := list[i]
		v, err := b.parameter(p, some)
		if err != nil {
			return 0, err
		}
		line := b.literal("\n", v)
		if p.required {
			some, none = line, v
		} else {
			some, none = b.split(line, some), b.split(v, none)
		}
	}
	return none, nil
}

const (
	parameterOpen  = ` parameter name="`
	parameterClose = " parameter>"
	isText         = `" string="true">`
	isJSON         = `" string="false">`
)

func (b *builder) parameter(p property, next int32) (int32, error) {
	if p.name == "" || strings.ContainsAny(p.name, "\"\n") || len(p.name) > 1000 || plain(&node{text: p.name, at: p.schema.at}, valueMarkers) != nil {
		return 0, p.schema.fail("the name of the parameter cannot be written in a call")
	}
	end := b.tag("</", parameterClose, next)
	text, err := b.value(p.schema, rawText, end)
	if err != nil {
		return 0, err
	}
	other, err := b.value(p.schema, notText, end)
	if err != nil {
		return 0, err
	}
	return b.tag("<", parameterOpen, b.literal(p.name, b.split(b.literal(isText, text), b.literal(isJSON, other)))), nil
}

// anyArguments compiles parameters of any names and values.
func (b *builder) anyArguments(closing int32) int32 {
	end := b.later()
	values := b.split(b.literal(isText, b.word(b.v.raw, 0, -1, end)), b.literal(isJSON, b.anythingIn(end)))
	first := b.add(inst{op: opWord, dfa: b.v.name, max: -1, next: values})
	parameter := b.tag("<", parameterOpen, first)
	b.set(end, b.tag("</", parameterClose, b.split(closing, b.literal("\n", parameter))))
	return b.split(closing, parameter)
}

// anythingIn is any value but a string, as arguments hold it.
func (b *builder) anythingIn(next int32) int32 {
	args := newBuilder(b.v, b.program, true)
	pc := args.anything(notText, next)
	b.program = args.program
	return pc
}
