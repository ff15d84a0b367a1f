package grammar

import (
	"slices"
)

// property is a member that an object may have.
type property struct {
	name     string
	schema   *node
	required bool
}

// propertiesOf lists the properties of an object schema, those that are only required last, and the schema of others: nil
// if there are none.
func propertiesOf(n *node) (list []property, others *node, err error) {
	if p := n.get("properties"); p != nil {
		if p.kind != objectValue {
			return nil, nil, p.fail("must be an object of schemas")
		}
		for _, m := range p.members {
			list = append(list, property{name: m.key, schema: m.value})
		}
	}
	others = n.get("additionalProperties")
	if others != nil && others.kind != boolValue && others.kind != objectValue {
		return nil, nil, others.fail("must be a schema, true or false")
	}
	anything := &node{kind: boolValue, text: "true", at: n.at}
	if others == nil && n.get("properties") == nil {
		others = anything
	}
	if r := n.get("required"); r != nil {
		if r.kind != arrayValue {
			return nil, nil, r.fail("must be a list of names")
		}
		for _, v := range r.items {
			if v.kind != stringValue {
				return nil, nil, v.fail("must be the name of a property")
			}
			i := slices.IndexFunc(list, func(p property) bool { return p.name == v.text })
			if i < 0 {
				schema := others
				if schema == nil {
					if n.get("additionalProperties") == nil {
						return nil, nil, v.fail("the required property %q is not among the properties", clip(v.text))
					}
					schema = &node{kind: boolValue, text: "false", at: v.at}
				}
				i, list = len(list), append(list, property{name: v.text, schema: schema})
			}
			list[i].required = true
		}
	}
	if len(list) > maxProperties {
		return nil, nil, n.fail("the object has %d properties; at most %d are possible", len(list), maxProperties)
	}
	if others != nil && others.kind == boolValue && others.text == "false" {
		others = nil
	}
	return list, others, nil
}

// object compiles an object with its properties in order.
func (b *builder) object(n *node, next int32) (int32, error) {
	list, others, err := propertiesOf(n)
	if err != nil {
		return 0, err
	}
	least, err := count(n, "minProperties", 0, maxItems)
	if err != nil {
		return 0, err
	}
	most, err := count(n, "maxProperties", -1, maxItems)
	if err != nil {
		return 0, err
	}
	if len(list) == 0 {
		if others == nil {
			if least > 0 {
				return b.nothing(), nil
			}
			return b.literal("{", b.space(b.literal("}", next))), nil
		}
		rule, err := b.rule(others, whole)
		return b.mapOf(b.strings, least, most, func(next int32) int32 { return b.call(rule, next) }, next), err
	}
	required := 0
	for _, p := range list {
		if p.required {
			required++
		}
	}
	if least > required {
		return 0, n.get("minProperties").fail("minProperties of an object that lists properties is not supported")
	}
	if most >= 0 && (others != nil || most < len(list)) {
		return 0, n.get("maxProperties").fail("maxProperties of an object that lists properties is not supported")
	}
	return b.listed(list, others, next)
}

// listed compiles the listed properties, and others after them.
func (b *builder) listed(list []property, others *node, next int32) (int32, error) {
	closing := b.space(b.literal("}", next))
	// first is where the next member begins, after the whitespace; some is what follows a member.
	var first []int32
	some, optional := closing, 0
	if others != nil {
		taken := make([]string, len(list))
		for i, p := range list {
			taken[i] = p.name
		}
		names, err := nameDFA(&b.left, b.without, taken)
		if err != nil {
			return 0, others.fail("%v", err)
		}
		rule, err := b.rule(others, whole)
		if err != nil {
			return 0, err
		}
		some = b.later()
		member := b.word(names, 0, -1, b.colon(b.call(rule, some)))
		b.set(some, b.split(b.literal(",", b.space(member)), closing))
		first = []int32{member}
	}
	complete := true // without the members that come
	for i := len(list) - 1; i >= 0; i-- {
		p := list[i]
		v, err := b.value(p.schema, whole, some)
		if err != nil {
			return 0, err
		}
		member := b.literal(quoted(p.name, b.without), b.colon(v))
		optional++
		if p.required {
			first, complete, optional = nil, false, 0
		}
		if optional > maxOptional {
			return 0, p.schema.fail("more than %d properties in a row may be left out: make some of them required", maxOptional)
		}
		first = append([]int32{member}, first...)
		if some = b.literal(",", b.space(b.split(first...))); complete {
			some = b.split(some, closing)
		}
		if b.err != nil {
			return 0, p.schema.fail("%v", b.err)
		}
	}
	none := b.space(b.split(first...))
	if complete {
		none = b.split(none, closing)
	}
	return b.literal("{", none), nil
}
