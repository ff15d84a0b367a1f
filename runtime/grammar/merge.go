package grammar

import (
	"slices"
	"strings"
)

// merge is the schema of the values that two schemas allow, as far as it can be written down.
func merge(x, y *node) (*node, error) {
	for _, n := range []*node{x, y} {
		if n.kind == boolValue {
			if n.text == "false" {
				return n, nil
			}
			if n == x {
				return y, nil
			}
			return x, nil
		}
		if n.kind != objectValue {
			return nil, n.fail("a schema must be an object, true or false")
		}
		if err := check(n); err != nil {
			return nil, err
		}
	}
	if err := mergeable(x, y); err != nil {
		return nil, err
	}
	out := &node{kind: objectValue, at: y.at}
	for _, m := range x.members {
		o := y.get(m.key)
		if o == nil {
			if m.key != "nullable" {
				out.members = append(out.members, m)
			}
			continue
		}
		v, err := mergeKeyword(m.key, m.value, o)
		if err != nil {
			return nil, err
		}
		if m.key == "$ref" && v == nil { // one stays, the other follows
			out.members = append(out.members, m)
			also := &node{kind: objectValue, at: y.at, members: []member{{m.key, o}}}
			out.members = append(out.members, member{"allOf", &node{kind: arrayValue, at: y.at, items: []*node{also}}})
			continue
		}
		out.members = append(out.members, member{m.key, v})
	}
	for _, m := range y.members {
		if x.get(m.key) == nil && m.key != "nullable" {
			out.members = append(out.members, m)
		}
	}
	return joinAllOf(out), nil
}

// joinAllOf makes one list of several.
func joinAllOf(n *node) *node {
	var all *node
	out := n.without("allOf")
	for _, m := range n.members {
		if m.key != "allOf" {
			continue
		}
		if all == nil {
			all = &node{kind: arrayValue, at: m.value.at}
		}
		all.items = append(all.items, m.value.items...)
	}
	if all != nil {
		out.members = append(out.members, member{"allOf", all})
	}
	return out
}

// mergeable refuses objects of which one excludes the properties of the other.
func mergeable(x, y *node) error {
	for _, p := range [][2]*node{{x, y}, {y, x}} {
		a, props := p[0].get("additionalProperties"), p[1].get("properties")
		if a == nil || a.kind == boolValue && a.text == "true" || props == nil {
			continue
		}
		own := p[0].get("properties")
		for _, m := range props.members {
			if own == nil || own.get(m.key) == nil {
				return a.fail("additionalProperties would exclude the property %q of another part of the schema, which is not supported", clip(m.key))
			}
		}
	}
	return nil
}

// maxAlternatives bounds the product of alternatives that are merged.
const maxAlternatives = 64

// mergeKeyword merges the two values of one keyword; nil for $ref, of which both count.
func mergeKeyword(key string, x, y *node) (*node, error) {
	if key == "$ref" {
		if equal(x, y) {
			return x, nil
		}
		return nil, nil
	}
	if annotations[key] || strings.HasPrefix(key, "x-") || equal(x, y) {
		return x, nil
	}
	both := func(x, y *node) *node {
		return &node{kind: objectValue, at: y.at, members: []member{{"allOf", &node{kind: arrayValue, at: y.at, items: []*node{x, y}}}}}
	}
	switch key {
	case "items", "additionalProperties":
		if x.kind == arrayValue || y.kind == arrayValue {
			break
		}
		return both(x, y), nil
	case "properties":
		out := &node{kind: objectValue, at: y.at}
		for _, m := range x.members {
			if o := y.get(m.key); o != nil {
				m.value = both(m.value, o)
			}
			out.members = append(out.members, m)
		}
		for _, m := range y.members {
			if x.get(m.key) == nil {
				out.members = append(out.members, m)
			}
		}
		return out, nil
	case "required":
		return &node{kind: arrayValue, at: y.at, items: append(slices.Clone(x.items), y.items...)}, nil
	case "allOf":
		return &node{kind: arrayValue, at: y.at, items: append(slices.Clone(x.items), y.items...)}, nil
	case "anyOf", "oneOf":
		out := &node{kind: arrayValue, at: y.at}
		if len(x.items)*len(y.items) > maxAlternatives {
			return nil, y.fail("the combinations of these alternatives with others are more than %d", maxAlternatives)
		}
		for _, i := range x.items {
			for _, j := range y.items {
				out.items = append(out.items, both(i, j))
			}
		}
		return out, nil
	case "enum":
		out := &node{kind: arrayValue, at: y.at}
		for _, v := range x.items {
			if slices.ContainsFunc(y.items, func(o *node) bool { return equal(v, o) }) {
				out.items = append(out.items, v)
			}
		}
		if len(out.items) == 0 {
			return nil, y.fail("no value of this enum is in the other one that it is combined with")
		}
		return out, nil
	case "type":
		return mergeTypes(x, y)
	case "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties":
		return tighter(x, y, 1)
	case "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties":
		return tighter(x, y, -1)
	}
	return nil, y.fail("two different values of %q cannot be combined", key)
}

func tighter(x, y *node, sign int) (*node, error) {
	a, err := parseDecimal(x.text)
	if err != nil {
		return nil, x.fail("%v", err)
	}
	b, err := parseDecimal(y.text)
	if err != nil {
		return nil, y.fail("%v", err)
	}
	if sign*a.compare(b) > 0 {
		return x, nil
	}
	return y, nil
}

func mergeTypes(x, y *node) (*node, error) {
	wrap := func(n *node) *node { return &node{kind: objectValue, at: n.at, members: []member{{"type", n}}} }
	a, err := typesOf(wrap(x))
	if err != nil {
		return nil, err
	}
	b, err := typesOf(wrap(y))
	if err != nil {
		return nil, err
	}
	out := &node{kind: arrayValue, at: y.at}
	for _, t := range a {
		switch {
		case slices.Contains(b, t):
		case t == "integer" && slices.Contains(b, "number"):
		case t == "number" && slices.Contains(b, "integer"):
			t = "integer"
		default:
			continue
		}
		out.items = append(out.items, &node{kind: stringValue, text: t, at: y.at})
	}
	if len(out.items) == 0 {
		return nil, y.fail("excludes the type that another part of the schema asks for")
	}
	return out, nil
}

// disjoint reports whether no value matches both schemas, as far as can be told easily.
func (b *builder) disjoint(x, y *node, depth int) bool {
	x, y = b.plainly(x), b.plainly(y)
	if x == nil || y == nil || depth > 4 {
		return false
	}
	constants := func(n *node) []*node {
		if c := n.get("const"); c != nil {
			return []*node{c}
		}
		if e := n.get("enum"); e != nil {
			return e.items
		}
		return nil
	}
	cx, cy := constants(x), constants(y)
	tx, errX := typesOf(x)
	ty, errY := typesOf(y)
	if errX != nil || errY != nil {
		return false
	}
	switch {
	case cx != nil && cy != nil:
		return !slices.ContainsFunc(cx, func(v *node) bool {
			return slices.ContainsFunc(cy, func(o *node) bool { return equal(v, o) })
		})
	case cx != nil:
		return !slices.ContainsFunc(cx, func(v *node) bool { return v.is(ty) })
	case cy != nil:
		return !slices.ContainsFunc(cy, func(v *node) bool { return v.is(tx) })
	}
	// The types of a schema without "type" are a narrow reading: others match it too.
	if x.get("type") != nil && y.get("type") != nil && !slices.ContainsFunc(tx, func(t string) bool {
		return slices.Contains(ty, t) || t == "integer" && slices.Contains(ty, "number") || t == "number" && slices.Contains(ty, "integer")
	}) {
		return true
	}
	if !slices.Equal(tx, []string{"object"}) || !slices.Equal(ty, tx) {
		return false
	}
	px, ox, errX := propertiesOf(x)
	py, oy, errY := propertiesOf(y)
	if errX != nil || errY != nil {
		return false
	}
	return b.apart(px, py, oy != nil || y.get("additionalProperties") == nil, depth) ||
		b.apart(py, px, ox != nil || x.get("additionalProperties") == nil, depth)
}

// apart reports whether a required property of x excludes what y allows. open says that y allows others than it lists.
func (b *builder) apart(x, y []property, open bool, depth int) bool {
	return slices.ContainsFunc(x, func(p property) bool {
		if !p.required {
			return false
		}
		i := slices.IndexFunc(y, func(q property) bool { return q.name == p.name })
		if i < 0 {
			return !open
		}
		return b.disjoint(p.schema, y[i].schema, depth+1)
	})
}

// plainly follows references; nil if the schema is combined of others.
func (b *builder) plainly(n *node) *node {
	for range 8 {
		if n.kind != objectValue || n.get("anyOf") != nil || n.get("oneOf") != nil || n.get("allOf") != nil {
			return nil
		}
		ref := n.get("$ref")
		if ref == nil {
			return n
		}
		to, err := b.root.resolve(ref)
		if err != nil || !bare(n.without("$ref")) {
			return nil
		}
		n = to
	}
	return nil
}
