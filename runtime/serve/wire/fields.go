package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// Fields reads the members of a request object. The first thing that is wrong is kept and Err returns it, so that a
// decoder reads straight on. A member that is null counts as absent.
type Fields struct {
	members map[string]json.RawMessage
	at      string // what comes before a member's name in messages
	known   map[string]bool
	root    *root
}

// root is shared by an object and those within it.
type root struct {
	err     *Error
	objects []*Fields
}

// Object begins to read the JSON object of a request body.
func Object(body []byte) (*Fields, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil || m == nil {
		return nil, notJSON(body, err)
	}
	return newFields(m, "", &root{}), nil
}

func newFields(m map[string]json.RawMessage, at string, r *root) *Fields {
	f := &Fields{members: m, at: at, known: map[string]bool{}, root: r}
	r.objects = append(r.objects, f)
	return f
}

func notJSON(body []byte, err error) *Error {
	var syntax *json.SyntaxError
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return Invalid("", "the request has no body: send a JSON object")
	case errors.As(err, &syntax):
		return Invalid("", "the body is not JSON: %v at byte %d", syntax, syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Invalid("", "the body is not JSON: it ends too early")
	}
	return Invalid("", "the body must be a JSON object")
}

// Err is the first fault. With strict, members that nobody asked for are faults too.
func (f *Fields) Err(strict bool) error {
	if f.root.err != nil {
		return f.root.err
	}
	if strict {
		for _, o := range f.root.objects {
			if u := o.unknown(); len(u) > 0 {
				return &Error{Status: 400, Code: "unknown_parameter", Param: o.at + u[0], Message: fmt.Sprintf("unknown field %q", o.at+Clip(u[0]))}
			}
		}
	}
	return nil
}

func (f *Fields) unknown() []string {
	var out []string
	for name := range f.members {
		if !f.known[name] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Fail records a fault of a member.
func (f *Fields) Fail(name, format string, args ...any) {
	f.FailWith(Invalid(f.at+name, "%s "+format, append([]any{f.at + name}, args...)...))
}

// FailWith records a fault.
func (f *Fields) FailWith(err error) {
	if f.root.err == nil {
		f.root.err = AsError(err)
	}
}

// Ignore accepts members that have no effect.
func (f *Fields) Ignore(names ...string) {
	for _, n := range names {
		f.known[n] = true
	}
}

// Raw is a member as it was sent, nil if absent.
func (f *Fields) Raw(name string) json.RawMessage {
	f.known[name] = true
	raw := f.members[name]
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// Has reports whether a member is there.
func (f *Fields) Has(name string) bool { return f.Raw(name) != nil }

// String reads a string.
func (f *Fields) String(name string, to *string) bool { return read(f, name, to, "a string") }

// Bool reads true or false.
func (f *Fields) Bool(name string, to *bool) bool { return read(f, name, to, "true or false") }

func read[T any](f *Fields, name string, to *T, what string) bool {
	raw := f.Raw(name)
	if raw == nil {
		return false
	}
	var v T
	if json.Unmarshal(raw, &v) != nil {
		f.Fail(name, "must be %s, not %s", what, Clip(string(raw)))
		return false
	}
	*to = v
	return true
}

// Float reads a number from lo to hi.
func (f *Fields) Float(name string, to *float64, lo, hi float64) bool {
	var v float64
	if !read(f, name, &v, "a number") {
		return false
	}
	if v < lo || v > hi {
		f.Fail(name, "must be from %v to %v, not %v", lo, hi, v)
		return false
	}
	*to = v
	return true
}

// Int reads an integer from lo to hi; 16.0 is one.
func (f *Fields) Int(name string, to *int, lo, hi int) bool {
	raw := f.Raw(name)
	if raw == nil {
		return false
	}
	v, err := strconv.Atoi(string(raw))
	if err != nil {
		var x float64
		if json.Unmarshal(raw, &x) != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
			f.Fail(name, "must be an integer, not %s", Clip(string(raw)))
			return false
		}
		v = int(x)
	}
	if v < lo || v > hi {
		if hi == math.MaxInt {
			f.Fail(name, "must be %d or more, not %d", lo, v)
		} else {
			f.Fail(name, "must be from %d to %d, not %d", lo, hi, v)
		}
		return false
	}
	*to = v
	return true
}

// Object reads an object within; nil if absent.
func (f *Fields) Object(name string) *Fields {
	var m map[string]json.RawMessage
	if !read(f, name, &m, "an object") {
		return nil
	}
	return newFields(m, f.at+name+".", f.root)
}

// List reads a list; nil if absent.
func (f *Fields) List(name string) []json.RawMessage {
	var l []json.RawMessage
	read(f, name, &l, "a list")
	return l
}

// Item reads item i of the list name as an object; nil if it is none.
func (f *Fields) Item(name string, i int, raw json.RawMessage) *Fields {
	var m map[string]json.RawMessage
	at := fmt.Sprintf("%s[%d]", name, i)
	if json.Unmarshal(raw, &m) != nil || m == nil {
		f.Fail(at, "must be an object, not %s", Clip(string(raw)))
		return nil
	}
	return newFields(m, f.at+at+".", f.root)
}

// Name is how a member is called in messages.
func (f *Fields) Name(name string) string { return f.at + name }

// Strings reads a string or a list of at most most of them, none of them empty.
func (f *Fields) Strings(name string, most int) []string {
	raw := f.Raw(name)
	if raw == nil {
		return nil
	}
	var one string
	var all []string
	if json.Unmarshal(raw, &one) == nil {
		all = []string{one}
	} else if json.Unmarshal(raw, &all) != nil {
		f.Fail(name, "must be a string or a list of strings, not %s", Clip(string(raw)))
		return nil
	}
	if len(all) > most {
		f.Fail(name, "has %d strings; at most %d are possible", len(all), most)
	}
	if slices.Contains(all, "") {
		f.Fail(name, "has an empty string")
	}
	return all
}

// Ints reads raw as a list of token ids; false if it is none.
func Ints(raw json.RawMessage) ([]int32, bool) {
	var ids []int32
	if json.Unmarshal(raw, &ids) != nil {
		return nil, false
	}
	return ids, ids != nil
}
