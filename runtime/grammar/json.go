package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a schema.
const (
	maxSchema  = 256 << 10 // bytes
	maxNesting = 64
	maxNodes   = 20_000
)

type kind uint8

const (
	nullValue kind = iota
	boolValue
	numberValue
	stringValue
	arrayValue
	objectValue
)

// node is a JSON value with its place. Members keep their order.
type node struct {
	kind    kind
	text    string // of a string, the digits of a number, true or false
	items   []*node
	members []member
	at      string // JSON pointer
}

type member struct {
	key   string
	value *node
}

// Error says what is wrong with a schema, and where.
type Error struct {
	At      string // JSON pointer as a fragment: "#/properties/x"
	Problem string
}

func (e *Error) Error() string { return "at " + e.At + ": " + e.Problem }

func (n *node) fail(format string, args ...any) error {
	at := n.at
	if len(at) > 200 {
		at = at[:200] + "..."
	}
	return &Error{At: strings.ToValidUTF8(at, ""), Problem: fmt.Sprintf(format, args...)}
}

func (n *node) get(key string) *node {
	for i := range n.members {
		if n.members[i].key == key {
			return n.members[i].value
		}
	}
	return nil
}

// without is an object without some members.
func (n *node) without(keys ...string) *node {
	c := &node{kind: n.kind, at: n.at}
	for _, m := range n.members {
		keep := true
		for _, k := range keys {
			keep = keep && m.key != k
		}
		if keep {
			c.members = append(c.members, m)
		}
	}
	return c
}

// parse reads a JSON document.
func parse(data []byte) (*node, error) {
	if len(data) > maxSchema {
		return nil, &Error{"#", fmt.Sprintf("the schema has %d bytes; at most %d are possible", len(data), maxSchema)}
	}
	if !utf8.Valid(data) {
		return nil, &Error{"#", "the schema is not valid UTF-8"}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	p := parser{d: d}
	n, err := p.value("#", 0)
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return n, nil
		}
		err = fmt.Errorf("more follows the schema")
	}
	if e, ok := err.(*Error); ok {
		return nil, e
	}
	return nil, &Error{"#", "the schema is not valid JSON: " + strings.TrimPrefix(err.Error(), "json: ")}
}

type parser struct {
	d     *json.Decoder
	nodes int
}

func (p *parser) value(at string, depth int) (*node, error) {
	n := &node{at: at}
	if p.nodes++; p.nodes > maxNodes {
		return nil, n.fail("the schema has more than %d values", maxNodes)
	}
	if depth > maxNesting {
		return nil, n.fail("the schema is nested deeper than %d", maxNesting)
	}
	t, err := p.d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case nil:
	case bool:
		n.kind, n.text = boolValue, strconv.FormatBool(t)
	case json.Number:
		n.kind, n.text = numberValue, string(t)
	case string:
		n.kind, n.text = stringValue, t
	case json.Delim:
		if t == '[' {
			n.kind = arrayValue
			for p.d.More() {
				v, err := p.value(at+"/"+strconv.Itoa(len(n.items)), depth+1)
				if err != nil {
					return nil, err
				}
				n.items = append(n.items, v)
			}
		} else {
			n.kind = objectValue
			seen := map[string]bool{}
			for p.d.More() {
				k, err := p.d.Token()
				if err != nil {
					return nil, err
				}
				key, _ := k.(string)
				v, err := p.value(at+"/"+escapePointer(key), depth+1)
				if err != nil {
					return nil, err
				}
				if seen[key] {
					return nil, v.fail("is given twice")
				}
				seen[key] = true
				n.members = append(n.members, member{key, v})
			}
		}
		_, err = p.d.Token()
	}
	return n, err
}

func escapePointer(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1")
}

// resolve follows a JSON pointer from the root.
func (n *node) resolve(ref *node) (*node, error) {
	path, ok := strings.CutPrefix(ref.text, "#")
	if ref.kind != stringValue || !ok || path != "" && path[0] != '/' {
		return nil, ref.fail("$ref must point into the schema itself, like \"#/$defs/name\"")
	}
	if path == "" {
		return n, nil
	}
	to := n
	for _, part := range strings.Split(path[1:], "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch {
		case to.kind == objectValue && to.get(part) != nil:
			to = to.get(part)
			continue
		case to.kind == arrayValue:
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(to.items) {
				to = to.items[i]
				continue
			}
		}
		return nil, ref.fail("$ref %q points to nothing", ref.text)
	}
	return to, nil
}

// quoted writes a string as JSON, without spelling any of the markers.
func quoted(s string, without []string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, r := range s {
		marks := false
		for _, m := range without {
			marks = marks || strings.HasPrefix(s[i:], m)
		}
		switch {
		case marks:
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x20:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
