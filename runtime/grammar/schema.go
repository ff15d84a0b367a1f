package grammar

import (
	"slices"
	"strings"
)

// Limits of what a schema asks for.
const (
	maxProperties = 1000
	maxOptional   = 256 // properties in a row that may be left out; each is a thread
	maxItems      = 10_000
	maxLength     = 1 << 24 // characters
	maxWords      = 1 << 16 // bytes of the strings of an enum
	maxMerges     = 200     // $ref, allOf and anyOf within each other
)

// form says which values of a schema are written, and how.
type form uint8

const (
	whole   form = iota // JSON
	rawText             // the strings, as they are
	notText             // all but strings, as JSON
)

// keywords that schemas may have, by what they do.
var (
	annotations = setOf("title", "description", "default", "examples", "example", "$schema", "$id", "$comment", "$anchor", "deprecated",
		"readOnly", "writeOnly", "contentMediaType", "contentEncoding", "discriminator", "$defs", "definitions", "externalDocs")
	objectWords = setOf("properties", "required", "additionalProperties", "minProperties", "maxProperties")
	arrayWords  = setOf("items", "prefixItems", "minItems", "maxItems", "uniqueItems")
	stringWords = setOf("minLength", "maxLength", "pattern", "format")
	numberWords = setOf("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
	otherWords  = setOf("type", "nullable", "enum", "const", "anyOf", "oneOf", "allOf", "$ref")
)

func setOf(list ...string) map[string]bool {
	m := map[string]bool{}
	for _, w := range list {
		m[w] = true
	}
	return m
}

// types of JSON values, in the order in which alternatives are tried.
var allTypes = []string{"object", "array", "string", "number", "boolean", "null"}

// builder compiles schemas.
type builder struct {
	program
	v       *Vocab
	root    *node
	strings *dfa     // any JSON string
	without []string // spellings that no text has
	rules   map[ruleKey]int32
	numbers map[numberRange]*dfa
	texts   map[textKey]*dfa
	ret     int32 // the end of every rule
	any     int32 // the rule of any value
	merges  int
}

type ruleKey struct {
	n *node
	f form
}

type textKey struct {
	pattern  string
	min, max int
	raw      bool
}

// newBuilder compiles into p: content, or the arguments of calls.
func newBuilder(v *Vocab, p program, args bool) *builder {
	b := &builder{
		program: p, v: v, strings: v.json, without: contentMarkers, any: -1,
		rules: map[ruleKey]int32{}, numbers: map[numberRange]*dfa{}, texts: map[textKey]*dfa{},
	}
	if args {
		b.strings, b.without = v.args, valueMarkers
	}
	b.ret = b.add(inst{op: opReturn})
	return b
}

// value compiles a schema; what it returns goes on to next.
func (b *builder) value(n *node, f form, next int32) (int32, error) {
	if b.err != nil {
		return 0, n.fail("%v", b.err)
	}
	if n.kind == boolValue {
		if n.text == "true" {
			return b.anything(f, next), nil
		}
		return b.nothing(), nil
	}
	if n.kind != objectValue {
		return 0, n.fail("a schema must be an object, true or false")
	}
	if err := check(n); err != nil {
		return 0, err
	}
	for _, key := range []string{"$ref", "allOf", "anyOf", "oneOf"} {
		if v := n.get(key); v != nil {
			return b.combined(n, key, v, f, next)
		}
	}
	if n.get("const") != nil || n.get("enum") != nil {
		return b.fixed(n, f, next)
	}
	types, err := typesOf(n)
	if err != nil {
		return 0, err
	}
	var alternatives []int32
	for _, t := range types {
		if f == rawText && t != "string" || f == notText && t == "string" {
			continue
		}
		pc, err := b.typed(n, t, f, next)
		if err != nil {
			return 0, err
		}
		alternatives = append(alternatives, pc)
	}
	return b.split(alternatives...), nil
}

// check refuses keywords that are not supported.
func check(n *node) error {
	for _, m := range n.members {
		k := m.key
		switch {
		case k == "uniqueItems" && m.value.kind == boolValue && m.value.text == "false":
		case k == "uniqueItems":
			return m.value.fail("the keyword %q is not supported", k)
		case annotations[k], objectWords[k], arrayWords[k], stringWords[k], numberWords[k], otherWords[k], strings.HasPrefix(k, "x-"):
		default:
			return m.value.fail("the keyword %q is not supported", clip(k))
		}
	}
	return nil
}

// bare reports whether nothing but annotations is in the schema.
func bare(n *node) bool {
	return !slices.ContainsFunc(n.members, func(m member) bool { return !annotations[m.key] && !strings.HasPrefix(m.key, "x-") })
}

// combined compiles a schema that refers to others.
func (b *builder) combined(n *node, key string, v *node, f form, next int32) (int32, error) {
	if b.merges++; b.merges > maxMerges {
		return 0, n.fail("$ref, allOf and anyOf are nested deeper than %d", maxMerges)
	}
	defer func() { b.merges-- }()
	rest := n.without(key)
	if key == "$ref" {
		to, err := b.root.resolve(v)
		if err != nil {
			return 0, err
		}
		if bare(rest) {
			rule, err := b.rule(to, f)
			return b.call(rule, next), err
		}
		m, err := merge(rest, to)
		if err != nil {
			return 0, err
		}
		return b.value(m, f, next)
	}
	if v.kind != arrayValue || len(v.items) == 0 {
		return 0, v.fail("must be a list of schemas")
	}
	if key == "allOf" {
		var err error
		for _, s := range v.items {
			if rest, err = merge(rest, s); err != nil {
				return 0, err
			}
		}
		return b.value(rest, f, next)
	}
	if key == "oneOf" {
		for i := range v.items {
			for j := range i {
				if !b.disjoint(v.items[j], v.items[i], 0) {
					return 0, v.items[i].fail("this alternative of oneOf may overlap with number %d, which is not supported: use anyOf", j)
				}
			}
		}
	}
	var alternatives []int32
	for _, s := range v.items {
		if !bare(rest) {
			m, err := merge(rest, s)
			if err != nil {
				return 0, err
			}
			s = m
		}
		pc, err := b.value(s, f, next)
		if err != nil {
			return 0, err
		}
		alternatives = append(alternatives, pc)
	}
	return b.split(alternatives...), nil
}

// rule is the entry of a schema that may be used in several places, itself included.
func (b *builder) rule(n *node, f form) (int32, error) {
	k := ruleKey{n, f}
	if at, ok := b.rules[k]; ok {
		return at, nil
	}
	at := b.later()
	b.rules[k] = at
	pc, err := b.value(n, f, b.ret)
	b.set(at, pc)
	return at, err
}

// typesOf are the types that a schema allows: those it names, or those that its keywords are about.
func typesOf(n *node) ([]string, error) {
	var types []string
	t := n.get("type")
	switch {
	case t == nil:
		for _, m := range n.members {
			switch {
			case objectWords[m.key]:
				types = append(types, "object")
			case arrayWords[m.key]:
				types = append(types, "array")
			case stringWords[m.key]:
				types = append(types, "string")
			case numberWords[m.key]:
				types = append(types, "number")
			}
		}
		if types == nil {
			types = allTypes
		}
	case t.kind == stringValue:
		types = []string{t.text}
	case t.kind == arrayValue && len(t.items) > 0:
		for _, i := range t.items {
			if i.kind != stringValue {
				return nil, i.fail("must be the name of a type")
			}
			types = append(types, i.text)
		}
	default:
		return nil, t.fail("must be the name of a type or a list of them")
	}
	if v := n.get("nullable"); v != nil && v.text == "true" && t != nil {
		types = append(types[:len(types):len(types)], "null")
	}
	var out []string
	for _, name := range types {
		switch name {
		case "object", "array", "string", "number", "integer", "boolean", "null":
		default:
			return nil, t.fail("%q is no type: use object, array, string, number, integer, boolean or null", clip(name))
		}
		if !slices.Contains(out, name) && !(name == "integer" && slices.Contains(types, "number")) {
			out = append(out, name)
		}
	}
	return out, nil
}
