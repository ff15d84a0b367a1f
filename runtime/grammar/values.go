package grammar

import (
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

// typed compiles the values of one type.
func (b *builder) typed(n *node, t string, f form, next int32) (int32, error) {
	switch t {
	case "object":
		return b.object(n, next)
	case "array":
		return b.array(n, next)
	case "string":
		return b.text(n, f == rawText, next)
	case "number", "integer":
		return b.number(n, t == "integer", next)
	case "boolean":
		return b.split(b.literal("true", next), b.literal("false", next)), nil
	}
	return b.literal("null", next), nil
}

// anything is any value.
func (b *builder) anything(f form, next int32) int32 {
	switch f {
	case rawText:
		return b.word(b.v.raw, 0, -1, next)
	case notText:
		return b.split(b.scalars(next), b.containers(next))
	}
	return b.call(b.anyRule(), next)
}

func (b *builder) anyRule() int32 {
	if b.any < 0 {
		b.any = b.later()
		b.set(b.any, b.split(b.containers(b.ret), b.word(b.strings, 0, -1, b.ret), b.scalars(b.ret)))
	}
	return b.any
}

func (b *builder) scalars(next int32) int32 {
	return b.split(b.word(b.v.number, 0, -1, next), b.literal("true", next), b.literal("false", next), b.literal("null", next))
}

func (b *builder) containers(next int32) int32 {
	v := b.anyRule()
	return b.split(b.mapOf(b.strings, 0, -1, func(next int32) int32 { return b.call(v, next) }, next),
		b.listOf(0, -1, func(next int32) int32 { return b.call(v, next) }, next))
}

// space is whitespace, perhaps none.
func (b *builder) space(next int32) int32 { return b.word(b.v.space, 0, -1, next) }

// colon is what parts a name from its value.
func (b *builder) colon(next int32) int32 {
	return b.add(inst{op: opByte, b: ':', next: b.split(b.literal(" ", next), next)})
}

// several reads min to max items with commas between them; max -1: any number. item must go on to what it is given.
func (b *builder) several(min, max int, item func(next int32) int32, next int32) int32 {
	comma := func(next int32) int32 { return b.literal(",", b.space(next)) }
	if max == 0 {
		return next
	}
	// after is where the k-th item goes on: to the next one, or to the end.
	var after int32
	if max < 0 {
		after = b.later()
		b.set(after, b.split(comma(item(after)), next))
		max = min
	} else {
		after = next
	}
	for k := max; k > 1; k-- {
		more := comma(item(after))
		if k-1 >= min {
			more = b.split(more, next)
		}
		after = more
		if b.err != nil {
			return 0
		}
	}
	first := item(after)
	if min == 0 {
		return b.split(first, next)
	}
	return first
}

// mapOf reads an object of any names, and as many members as given.
func (b *builder) mapOf(names *dfa, min, max int, value func(next int32) int32, next int32) int32 {
	closing := b.space(b.literal("}", next))
	members := b.several(min, max, func(next int32) int32 { return b.word(names, 0, -1, b.colon(value(next))) }, closing)
	return b.literal("{", b.open(min, members, closing))
}

// listOf reads an array of as many items as given.
func (b *builder) listOf(min, max int, item func(next int32) int32, next int32) int32 {
	closing := b.space(b.literal("]", next))
	items := b.several(min, max, item, closing)
	return b.literal("[", b.open(min, items, closing))
}

// open goes on to the first of at least min members, or to the closing bracket.
func (b *builder) open(min int, members, closing int32) int32 {
	if min > 0 {
		return b.space(members)
	}
	return b.split(b.space(members), closing)
}

func (b *builder) number(n *node, integer bool, next int32) (int32, error) {
	r := numberRange{integer: integer, digits: maxFraction}
	var err error
	bound := func(key string) (d decimal) {
		v := n.get(key)
		if v == nil || err != nil {
			return d
		}
		if v.kind != numberValue {
			err = v.fail("must be a number")
			return d
		}
		if d, err = parseDecimal(v.text); err != nil {
			err = v.fail("%s %v", key, err)
		}
		return d
	}
	r.min, r.max = bound("minimum"), bound("maximum")
	if d := bound("exclusiveMinimum"); d.set && (!r.min.set || d.compare(r.min) >= 0) {
		r.min, r.min.open = d, true
	}
	if d := bound("exclusiveMaximum"); d.set && (!r.max.set || d.compare(r.max) <= 0) {
		r.max, r.max.open = d, true
	}
	step := bound("multipleOf")
	if err != nil {
		return 0, err
	}
	if step.set {
		m, _ := strconv.Atoi(step.whole)
		tenth := strings.TrimLeft(step.fraction, "0") == "1"
		switch {
		case step.negative || step.zero():
			return 0, n.get("multipleOf").fail("must be above 0")
		case step.fraction == "" && m <= maxMultiple && len(step.whole) < 5:
			r.multiple, r.integer = m, true
		case step.whole == "" && tenth && !integer:
			r.digits = len(step.fraction)
		case step.whole == "" && tenth:
		default:
			return 0, n.get("multipleOf").fail("multipleOf %s is not supported: use an integer up to %d, or 0.1, 0.01 and so on", n.get("multipleOf").text, maxMultiple)
		}
	}
	if r.integer {
		r.digits = 0
	}
	if v := n.get("format"); v != nil && !numberFormats[v.text] {
		return 0, v.fail("the format %q of numbers is not supported", clip(v.text))
	}
	switch {
	case r.min.set || r.max.set || step.set:
	case r.integer:
		return b.word(b.v.integer, 0, -1, next), nil
	default:
		return b.word(b.v.number, 0, -1, next), nil
	}
	d, ok := b.numbers[r]
	if !ok {
		if d, err = r.dfa(&b.left); err != nil {
			return 0, n.fail("the number %v", err)
		}
		b.numbers[r] = d
	}
	return b.word(d, 0, -1, next), nil
}

// numberFormats say how others store a number.
var numberFormats = setOf("int32", "int64", "float", "double", "decimal")

// count reads a keyword that is a natural number.
func count(n *node, key string, standard, most int) (int, error) {
	v := n.get(key)
	if v == nil {
		return standard, nil
	}
	d, err := parseDecimal(v.text)
	if v.kind != numberValue || err != nil || d.negative || d.fraction != "" {
		return 0, v.fail("%s must be a whole number from 0 on", key)
	}
	c, _ := strconv.Atoi("0" + d.whole)
	if c > most || len(d.whole) > 9 {
		return 0, v.fail("%s is %s; at most %d is possible", key, v.text, most)
	}
	return c, nil
}

func (b *builder) text(n *node, raw bool, next int32) (int32, error) {
	least, err := count(n, "minLength", 0, maxLength)
	if err != nil {
		return 0, err
	}
	most, err := count(n, "maxLength", -1, maxLength)
	if err != nil {
		return 0, err
	}
	expr := ""
	if v := n.get("pattern"); v != nil {
		if v.kind != stringValue {
			return 0, v.fail("must be a regular expression")
		}
		expr = v.text
	}
	if v := n.get("format"); v != nil && !textFormats[v.text] {
		f, ok := formats[v.text]
		switch {
		case !ok:
			return 0, v.fail("the format %q is not supported", clip(v.text))
		case expr != "":
			return 0, v.fail("format and pattern together are not supported")
		}
		if v.text == "uri" && most >= 0 {
			f, most = shortURI, min(most, max(least, longURI))
		}
		if least, most = lengths(f, least, most); least == 0 && most < 0 {
			d, err := b.format(v.text, raw)
			if err != nil {
				return 0, v.fail("%v", err)
			}
			return b.word(d, 0, -1, next), nil
		}
		expr = entire(f)
	}
	if expr == "" {
		if raw {
			return b.word(b.v.raw, int32(least), int32(most), next), nil
		}
		return b.word(b.strings, int32(least), int32(most), next), nil
	}
	k := textKey{expr, least, most, raw}
	d, ok := b.texts[k]
	if !ok {
		s := stringForm{pattern: expr, min: least, max: most, without: b.without, raw: raw}
		if d, err = s.dfa(&b.left); err != nil {
			return 0, n.fail("the %v", err)
		}
		b.texts[k] = d
	}
	return b.word(d, 0, -1, next), nil
}

// lengths are the limits of length that a format does not keep by itself.
func lengths(form string, least, most int) (int, int) {
	re, err := syntax.Parse(form, syntax.Perl)
	if err != nil { // not of the formats here
		return least, most
	}
	lo, hi := extent(re)
	if least <= lo {
		least = 0
	}
	if hi >= 0 && most >= hi {
		most = -1
	}
	return least, most
}

// entire is a pattern that the whole text must match.
func entire(pattern string) string { return "^(?:" + pattern + ")$" }

// format is the automaton of a format, which all grammars share.
func (b *builder) format(name string, raw bool) (*dfa, error) {
	k := formatKey{name, raw, b.strings == b.v.args}
	b.v.mu.Lock()
	defer b.v.mu.Unlock()
	if d := b.v.formats[k]; d != nil {
		return d, nil
	}
	s := stringForm{pattern: entire(formats[name]), max: -1, without: b.without, raw: raw}
	d, err := s.dfa(nil)
	if err == nil {
		b.v.formats[k] = d
	}
	return d, err
}

// textFormats are any text.
var textFormats = setOf("text", "string", "password")

func (b *builder) array(n *node, next int32) (int32, error) {
	least, err := count(n, "minItems", 0, maxItems)
	if err != nil {
		return 0, err
	}
	most, err := count(n, "maxItems", -1, maxItems)
	if err != nil {
		return 0, err
	}
	if most >= 0 && least > most {
		return b.nothing(), nil
	}
	items := n.get("items")
	if items == nil {
		items = &node{kind: boolValue, text: "true", at: n.at + "/items"}
	}
	prefix := n.get("prefixItems")
	if items.kind == arrayValue && prefix == nil { // the older spelling
		prefix, items = items, &node{kind: boolValue, text: "true", at: n.at + "/items"}
	}
	if prefix != nil {
		return b.tuple(n, prefix, items, least, most, next)
	}
	if items.kind == boolValue && items.text == "false" {
		most = 0
	}
	rule, err := b.rule(items, whole)
	if err != nil {
		return 0, err
	}
	if least > 0 && most == 0 {
		return b.nothing(), nil
	}
	return b.listOf(least, most, func(next int32) int32 { return b.call(rule, next) }, next), nil
}

// tuple is an array whose first items have schemas of their own.
func (b *builder) tuple(n, prefix, items *node, least, most int, next int32) (int32, error) {
	if prefix.kind != arrayValue {
		return 0, prefix.fail("must be a list of schemas")
	}
	more := items.kind != boolValue || items.text != "false"
	if most < 0 && !more || most >= 0 && most > len(prefix.items) && !more {
		most = len(prefix.items)
	}
	if most >= 0 && least > most {
		return b.nothing(), nil
	}
	closing := b.space(b.literal("]", next))
	after := closing // where the items behind the prefix go on
	if more && (most < 0 || most > len(prefix.items)) {
		rule, err := b.rule(items, whole)
		if err != nil {
			return 0, err
		}
		rest := most - len(prefix.items)
		if most < 0 {
			rest = -1
		}
		need := max(0, least-len(prefix.items))
		after = b.literal(",", b.space(b.several(max(need, 1), rest, func(next int32) int32 { return b.call(rule, next) }, closing)))
		if need == 0 {
			after = b.split(after, closing)
		}
	}
	for i := len(prefix.items) - 1; i >= 0; i-- {
		if most >= 0 && i >= most {
			continue
		}
		pc, err := b.value(prefix.items[i], whole, after)
		if err != nil {
			return 0, err
		}
		if i > 0 {
			pc = b.literal(",", b.space(pc))
		} else {
			pc = b.space(pc)
		}
		if i >= least {
			pc = b.split(pc, closing)
		}
		after = pc
	}
	return b.literal("[", after), nil
}

// fixed compiles const and enum.
func (b *builder) fixed(n *node, f form, next int32) (int32, error) {
	list := []*node{n.get("const")}
	if e := n.get("enum"); e != nil {
		if e.kind != arrayValue || len(e.items) == 0 {
			return 0, e.fail("must be a list of values")
		}
		list = e.items
		if c := n.get("const"); c != nil {
			list = slices.DeleteFunc(slices.Clone(list), func(v *node) bool { return !equal(v, c) })
		}
	}
	for _, m := range n.members {
		if objectWords[m.key] || arrayWords[m.key] || stringWords[m.key] || numberWords[m.key] {
			return 0, m.value.fail("the keyword %q beside enum or const is not supported", m.key)
		}
	}
	if n.get("type") != nil {
		types, err := typesOf(n)
		if err != nil {
			return 0, err
		}
		list = slices.DeleteFunc(slices.Clone(list), func(v *node) bool { return !v.is(types) })
	}
	var alternatives []int32
	var strings []string
	size := 0
	for _, v := range list {
		if v.kind != stringValue {
			if f != rawText {
				alternatives = append(alternatives, b.constant(v, next))
			}
			continue
		}
		if f == notText {
			continue
		}
		s := v.text
		if f == whole {
			s = quoted(s, b.without)
		} else if err := plain(v, b.without); err != nil {
			return 0, err
		}
		if size += len(s); size > maxWords {
			return 0, n.fail("the strings of the enum have more than %d bytes", maxWords)
		}
		strings = append(strings, s)
	}
	if len(strings) > 0 {
		d, err := words(&b.left, strings)
		if err != nil {
			return 0, n.fail("the enum %v", err)
		}
		if f == rawText {
			d = d.followedBy(rawFollow)
		}
		alternatives = append(alternatives, b.word(d, 0, -1, next))
	}
	return b.split(alternatives...), nil
}

// plain refuses text that cannot be written without quotes.
func plain(v *node, without []string) error {
	for _, m := range without {
		if strings.Contains(v.text, m) {
			return v.fail("spells the control token %s", m)
		}
	}
	return nil
}

// constant reads one value.
func (b *builder) constant(v *node, next int32) int32 {
	switch v.kind {
	case nullValue:
		return b.literal("null", next)
	case stringValue:
		return b.literal(quoted(v.text, b.without), next)
	case arrayValue:
		pc := b.space(b.literal("]", next))
		for i := len(v.items) - 1; i >= 0; i-- {
			if pc = b.constant(v.items[i], pc); i > 0 {
				pc = b.literal(",", b.space(pc))
			}
		}
		return b.literal("[", b.space(pc))
	case objectValue:
		pc := b.space(b.literal("}", next))
		for i := len(v.members) - 1; i >= 0; i-- {
			m := v.members[i]
			if pc = b.literal(quoted(m.key, b.without), b.colon(b.constant(m.value, pc))); i > 0 {
				pc = b.literal(",", b.space(pc))
			}
		}
		if len(v.members) > 0 {
			pc = b.space(pc)
		}
		return b.literal("{", pc)
	}
	return b.literal(v.text, next)
}

// is reports whether a value is of one of the types.
func (n *node) is(types []string) bool {
	for _, t := range types {
		switch {
		case t == "object" && n.kind == objectValue, t == "array" && n.kind == arrayValue, t == "string" && n.kind == stringValue,
			t == "boolean" && n.kind == boolValue, t == "null" && n.kind == nullValue, t == "number" && n.kind == numberValue:
			return true
		case t == "integer" && n.kind == numberValue:
			if d, err := parseDecimal(n.text); err == nil && d.fraction == "" {
				return true
			}
		}
	}
	return false
}

// equal compares JSON values; numbers by value.
func equal(a, b *node) bool {
	if a.kind != b.kind || len(a.items) != len(b.items) || len(a.members) != len(b.members) {
		return false
	}
	switch a.kind {
	case numberValue:
		x, errX := parseDecimal(a.text)
		y, errY := parseDecimal(b.text)
		return a.text == b.text || errX == nil && errY == nil && x.compare(y) == 0
	case arrayValue:
		for i := range a.items {
			if !equal(a.items[i], b.items[i]) {
				return false
			}
		}
	case objectValue:
		for _, m := range a.members {
			if o := b.get(m.key); o == nil || !equal(m.value, o) {
				return false
			}
		}
	}
	return a.text == b.text || a.kind == numberValue
}
