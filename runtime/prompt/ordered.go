package prompt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// maxDepth bounds the nesting of JSON that is re-serialised; Python's own limit is near 1000.
const maxDepth = 500

type kind uint8

const (
	jsonNull kind = iota
	jsonBool
	jsonNumber
	jsonString
	jsonArray
	jsonObject
)

// value is a JSON value that keeps the order of keys and the digits of numbers.
type value struct {
	kind    kind
	text    string // the string, the number's literal, or "true"/"false"
	items   []value
	members []member
}

type member struct {
	key   string
	value value
}

// parseValue reads exactly one JSON value. As in Python, a repeated key keeps its first place and its
// last value.
func parseValue(raw []byte) (value, error) {
	if err := checkSyntax(raw); err != nil {
		return value{}, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return readValue(dec, 0)
}

func readValue(dec *json.Decoder, depth int) (value, error) {
	if depth > maxDepth {
		return value{}, fmt.Errorf("JSON is nested deeper than %d levels", maxDepth)
	}
	token, err := dec.Token()
	if err != nil {
		return value{}, err
	}
	switch t := token.(type) {
	case nil:
		return value{kind: jsonNull}, nil
	case bool:
		return value{kind: jsonBool, text: strconv.FormatBool(t)}, nil
	case json.Number:
		return value{kind: jsonNumber, text: t.String()}, nil
	case string:
		return value{kind: jsonString, text: t}, nil
	case json.Delim:
		if t == '[' {
			return readArray(dec, depth)
		}
		return readObject(dec, depth)
	}
	return value{}, fmt.Errorf("unexpected JSON token %v", token)
}

func readArray(dec *json.Decoder, depth int) (value, error) {
	v := value{kind: jsonArray}
	for dec.More() {
		item, err := readValue(dec, depth+1)
		if err != nil {
			return value{}, err
		}
		v.items = append(v.items, item)
	}
	_, err := dec.Token()
	return v, err
}

func readObject(dec *json.Decoder, depth int) (value, error) {
	v := value{kind: jsonObject}
	place := map[string]int{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return value{}, err
		}
		key, ok := token.(string)
		if !ok {
			return value{}, fmt.Errorf("unexpected JSON key %v", token)
		}
		item, err := readValue(dec, depth+1)
		if err != nil {
			return value{}, err
		}
		if i, seen := place[key]; seen {
			v.members[i].value = item
			continue
		}
		place[key] = len(v.members)
		v.members = append(v.members, member{key, item})
	}
	_, err := dec.Token()
	return v, err
}

// checkSyntax reports the first syntax error with its line and column.
func checkSyntax(raw []byte) error {
	var ignored json.RawMessage
	err := json.Unmarshal(raw, &ignored)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	if len(bytes.TrimSpace(raw)) == 0 || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("JSON is empty or ends too early")
	}
	if !errors.As(err, &syntax) {
		return err
	}
	before := raw[:min(max(int(syntax.Offset)-1, 0), len(raw))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - (bytes.LastIndexByte(before, '\n') + 1) + 1
	return fmt.Errorf("not valid JSON at line %d, column %d: %w", line, column, err)
}

func (v value) get(key string) (value, bool) {
	for _, m := range v.members {
		if m.key == key {
			return m.value, true
		}
	}
	return value{}, false
}

// with returns v with key set to item, in its place if it exists and at the end otherwise.
func (v value) with(key string, item value) value {
	members := append([]member(nil), v.members...)
	for i := range members {
		if members[i].key == key {
			members[i].value = item
			v.members = members
			return v
		}
	}
	v.members = append(members, member{key, item})
	return v
}

func (v value) without(key string) value {
	var members []member
	for _, m := range v.members {
		if m.key != key {
			members = append(members, m)
		}
	}
	v.members = members
	return v
}

// String is Python's json.dumps(v, ensure_ascii=False).
func (v value) String() string {
	var b strings.Builder
	v.write(&b)
	return b.String()
}

func (v value) write(b *strings.Builder) {
	switch v.kind {
	case jsonNull:
		b.WriteString("null")
	case jsonBool:
		b.WriteString(v.text)
	case jsonNumber:
		b.WriteString(pythonNumber(v.text))
	case jsonString:
		b.WriteByte('"')
		writeEscaped(b, v.text)
		b.WriteByte('"')
	case jsonArray:
		b.WriteByte('[')
		for i, item := range v.items {
			if i > 0 {
				b.WriteString(", ")
			}
			item.write(b)
		}
		b.WriteByte(']')
	case jsonObject:
		b.WriteByte('{')
		for i, m := range v.members {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(quote(m.key))
			b.WriteString(": ")
			m.value.write(b)
		}
		b.WriteByte('}')
	}
}

// pythonNumber writes a JSON number literal as Python does after reading it: integers exactly, anything
// with a fraction or an exponent as the repr of a float64.
func pythonNumber(literal string) string {
	if !strings.ContainsAny(literal, ".eE") {
		if literal == "-0" {
			return "0"
		}
		return literal
	}
	f, err := strconv.ParseFloat(literal, 64)
	if err != nil && !math.IsInf(f, 0) {
		return literal
	}
	return floatRepr(f)
}

// floatRepr is Python's repr of a float.
func floatRepr(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	scientific := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, _ := strconv.Atoi(scientific[strings.IndexByte(scientific, 'e')+1:])
	if exponent < -4 || exponent >= 16 {
		return scientific
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quote is s as a JSON string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	writeEscaped(&b, s)
	b.WriteByte('"')
	return b.String()
}

// writeEscaped writes the inside of a JSON string with Python's escapes; only control characters, the
// quote and the backslash are escaped.
func writeEscaped(b *strings.Builder, s string) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		case '\b':
			b.WriteString(`\b`)
		case '\f':
			b.WriteString(`\f`)
		default:
			if c < 0x20 {
				fmt.Fprintf(b, `\u%04x`, c)
			} else {
				b.WriteByte(c)
			}
		}
	}
}
