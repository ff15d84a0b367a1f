package grammar

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// described is a schema with a way to draw documents of it.
type described struct {
	schema any
	draw   func(t *rapid.T) string
}

type object = map[string]any

// schemas draws a schema.
func schemas(t *rapid.T, depth int) described {
	kinds := []string{"integer", "number", "string", "pattern", "enum", "boolean", "null"}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "array", "tuple", "anyOf")
	}
	switch k := rapid.SampledFrom(kinds).Draw(t, "kind"); k {
	case "integer":
		lo := rapid.IntRange(-1200, 1200).Draw(t, "lo")
		hi := lo + rapid.IntRange(0, 2000).Draw(t, "span")
		return described{object{"type": k, "minimum": lo, "maximum": hi}, func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(lo, hi).Draw(t, "integer")) }}
	case "number":
		lo := rapid.IntRange(-300, 300).Draw(t, "lo")
		hi := lo + rapid.IntRange(1, 500).Draw(t, "span")
		return described{object{"type": k, "minimum": json.Number(hundredths(lo)), "maximum": json.Number(hundredths(hi))},
			func(t *rapid.T) string { return hundredths(rapid.IntRange(lo, hi).Draw(t, "number")) }}
	case "string":
		lo := rapid.IntRange(0, 4).Draw(t, "lo")
		hi := lo + rapid.IntRange(0, 6).Draw(t, "span")
		return described{object{"type": k, "minLength": lo, "maxLength": hi}, func(t *rapid.T) string {
			return quoted(rapid.StringN(lo, hi, -1).Filter(func(s string) bool { return !strings.Contains(s, "<") && !strings.Contains(s, "｜") }).Draw(t, "string"), nil)
		}}
	case "pattern":
		p := rapid.SampledFrom([]string{`^[a-c]{2,4}$`, `^(ab|cd)*[^x-z]$`, `^\d+(\.\d+)?%?$`, `^[а-я]+!?$`}).Draw(t, "pattern")
		return described{object{"type": "string", "pattern": p}, func(t *rapid.T) string {
			return quoted(rapid.StringMatching(p).Filter(func(s string) bool { return len(s) < 40 && !strings.Contains(s, "<") && !strings.Contains(s, "｜") }).Draw(t, "matching"), nil)
		}}
	case "enum":
		list := rapid.SliceOfNDistinct(rapid.SampledFrom([]any{"a", "ab", "abc", 1, 12, nil, true, "ü", `"`}), 1, 5, func(v any) string { return fmt.Sprint(v) }).Draw(t, "enum")
		return described{object{"enum": list}, func(t *rapid.T) string { return marshal(rapid.SampledFrom(list).Draw(t, "value")) }}
	case "boolean":
		return described{object{"type": k}, func(t *rapid.T) string { return marshal(rapid.Bool().Draw(t, "boolean")) }}
	case "null":
		return described{object{"type": k}, func(*rapid.T) string { return "null" }}
	case "anyOf":
		of := []described{schemas(t, depth-1), schemas(t, depth-1)}
		return described{object{"anyOf": []any{of[0].schema, of[1].schema}}, func(t *rapid.T) string { return rapid.SampledFrom(of).Draw(t, "alternative").draw(t) }}
	case "array":
		item := schemas(t, depth-1)
		lo := rapid.IntRange(0, 3).Draw(t, "lo")
		hi := lo + rapid.IntRange(0, 3).Draw(t, "span")
		return described{object{"type": k, "items": item.schema, "minItems": lo, "maxItems": hi}, func(t *rapid.T) string {
			var items []string
			for range rapid.IntRange(lo, hi).Draw(t, "items") {
				items = append(items, item.draw(t))
			}
			return "[" + strings.Join(items, comma(t)) + "]"
		}}
	case "tuple":
		of := []described{schemas(t, depth-1), schemas(t, depth-1)}
		return described{object{"type": "array", "prefixItems": []any{of[0].schema, of[1].schema}, "items": false, "minItems": 1}, func(t *rapid.T) string {
			s := "[" + of[0].draw(t)
			if rapid.Bool().Draw(t, "second") {
				s += comma(t) + of[1].draw(t)
			}
			return s + "]"
		}}
	}
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "ab", "b", "x y", "é", `q"`}), 0, 4, rapid.ID).Draw(t, "names")
	var properties []string
	var required []string
	var values []described
	for _, n := range names {
		d := schemas(t, depth-1)
		values = append(values, d)
		properties = append(properties, marshal(n)+":"+marshal(d.schema)) // a map would lose the order
		if rapid.Bool().Draw(t, "required") {
			required = append(required, n)
		}
	}
	open := rapid.Bool().Draw(t, "open")
	schema := object{"type": "object", "properties": json.RawMessage("{" + strings.Join(properties, ",") + "}"), "additionalProperties": open}
	if required != nil {
		schema["required"] = required
	}
	return described{schema, func(t *rapid.T) string {
		var members []string
		for i, n := range names {
			must := false
			for _, r := range required {
				must = must || r == n
			}
			if must || rapid.Bool().Draw(t, "present") {
				members = append(members, quoted(n, nil)+":"+rapid.SampledFrom([]string{"", " "}).Draw(t, "space")+values[i].draw(t))
			}
		}
		if open && rapid.Bool().Draw(t, "more") {
			members = append(members, `"abx": [1, {"y": "z"}]`)
		}
		return "{" + strings.Join(members, comma(t)) + "}"
	}}
}

func comma(t *rapid.T) string {
	return rapid.SampledFrom([]string{",", ", ", ",\n    "}).Draw(t, "comma")
}

func hundredths(n int) string {
	s := ""
	if n < 0 {
		s, n = "-", -n
	}
	return fmt.Sprintf("%s%d.%02d", s, n/100, n%100)
}

func marshal(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// What a schema describes is accepted; what is accepted, the validator accepts.
func TestDocumentsOfASchemaAreAcceptedAndOnlyThose(t *testing.T) {
	v := must[*Vocab](t)(small())
	rapid.Check(t, func(t *rapid.T) {
		d := schemas(t, 3)
		schema := marshal(d.schema)
		g, err := v.Compile(Output{Format: Schema, Schema: []byte(schema)})
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		doc := d.draw(t)
		if n, complete := reads(g, doc); !complete {
			t.Fatalf("%s: %s is refused after %q", schema, doc, doc[:n])
		}
		at := rapid.IntRange(0, len(doc)-1).Draw(t, "at")
		with := rapid.SampledFrom([]string{"", "0", `"`, ",", "}", "a", "-", `"a":1`, " "}).Draw(t, "with")
		changed := doc[:at] + with + doc[at+1:]
		if _, complete := reads(g, changed); complete {
			if err := judged(schema)(changed); err != nil {
				t.Fatalf("%s: %s is accepted: %v", schema, changed, err)
			}
		}
	})
}

// Documents of the JSON test suite that every parser must refuse, or may; and some that it must take.
func TestWhatIsNoJSONIsRefused(t *testing.T) {
	g := ofSchema(t, `true`)
	for _, doc := range []string{
		`[1 true]`, `["": 1]`, `[""],`, `[,1]`, `[1,,2]`, `["x",,]`, `["x"]]`, `["",]`, `["x"`, `[x`, `[3[4]]`, `[,`, `[1,`, `[-]`, `[--2.]`, `[-01]`, `[-1.0.]`,
		`[-2.]`, `[.123]`, `[.-1]`, `[0.1.2]`, `[0.3e+]`, `[0.e1]`, `[0e]`, `[1.0e-]`, `[1eE2]`, `[2.e3]`, `[9.e+]`, `[Inf]`, `[NaN]`, `[0x1]`, `[1+2]`, `[- 1]`,
		`[-012]`, `[012]`, `{"x", null}`, `{"x"::"b"}`, `{"a":"a" 123}`, `{key: 'value'}`, `{"a" b}`, `{:"b"}`, `{"a"`, `{'a':0}`, `{"id":0,}`, `{"a":"b",,"c":"d"}`,
		`["\uD800\"]`, `["\u00A"]`, `["\`, `["\a"]`, "[\"new\nline\"]", "[\"\t\"]", `["\x00"]`, `[\n]`, `"`, `['single']`, `[\u000A""]`, `nul`, `[True]`, `tru`, `]`, `{}}`,
		"[\u2060]", "\ufeff[]", `// comment`, `[1]/**/`, `{"a":/*b*/1}`, "[\"\xe9\"]", "[\"\xf4\x90\x80\x80\"]", "[\"\xed\xbf\xbf\"]", "", " ", `"a"x`,
	} {
		if _, complete := reads(g, doc); complete {
			t.Errorf("%q is accepted", doc)
		}
		if json.Valid([]byte(doc)) && !strings.ContainsRune(doc, 0xFFFD) && strings.TrimSpace(doc) == doc && doc != "[\"\xe9\"]" && !strings.Contains(doc, "\xf4\x90") && !strings.Contains(doc, "\xed\xbf") {
			t.Errorf("%q is JSON", doc)
		}
	}
	for _, doc := range []string{
		`[[]]`, `[""]`, `["a"]`, `[false]`, `[null, 1, "1", {}]`, `[null]`, `[1]`, `[123e45]`, `[0e+1]`, `[0e1]`, `[-0]`, `[-123]`, `[1E22]`, `[1E-2]`, `[123.456e78]`,
		`{"asd":"sdf", "dfg":"fgh"}`, `{"a":"b","a":"c"}`, `{}`, `{"":0}`, `{"foo\u0000bar": 42}`, `{"x":[{"id": "x"}], "id": "x"}`, `["\u0060\u012a\u12AB"]`, `["\uD801\udc37"]`,
		`["\"\\\/\b\f\n\r\t"]`, `["\\u0000"]`, `["a/*b*/c/*d//e"]`, `["\uFFFF"]`, `["€𝄞"]`, `["\u0821"]`, "[\"\u2028\"]", "[\"\x7f\"]", `false`, `42`, `-0.1`, `null`, `"asd"`, `""`,
	} {
		if n, complete := reads(g, doc); !complete {
			t.Errorf("%s is refused after %q", doc, doc[:n])
		}
	}
}
