package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"cedrun/runtime/tokenizer"
)

// released is the vocabulary of the released model.
var released = sync.OnceValues(func() (*Vocab, error) { return vocabOf("tokenizer/tokenizer.json") })

// small is that of the demo model.
var small = sync.OnceValues(func() (*Vocab, error) { return vocabOf("demo/tokenizer.json") })

func vocabOf(name string) (*Vocab, error) {
	tok, err := tokenizer.Load(filepath.Join("..", "..", "testdata", name))
	if err != nil {
		return nil, err
	}
	return NewVocab(tok)
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// ofSchema compiles a schema with the demo model's vocabulary.
func ofSchema(t testing.TB, schema string) *Grammar {
	t.Helper()
	return must[*Grammar](t)(must[*Vocab](t)(small()).Compile(Output{Format: Schema, Schema: []byte(schema)}))
}

// reads feeds s byte by byte. It returns how many bytes fit, and whether the text may end there.
func reads(g *Grammar, s string) (n int, complete bool) {
	m := g.Start()
	single := map[string]int32{}
	for id, b := range g.vocab.bytes {
		if len(b) == 1 {
			single[b] = int32(id)
		}
	}
	for i := range len(s) {
		if m.Accept(single[s[i:i+1]]) != nil {
			return i, false
		}
	}
	return len(s), m.Complete()
}

// judge is an independent validator of a schema.
func judge(t testing.TB, schema string) func(doc string) error {
	t.Helper()
	return judged(schema)
}

func judged(schema string) func(doc string) error {
	broken := func(err error) func(string) error {
		return func(string) error { return fmt.Errorf("the schema: %w", err) }
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		return broken(err)
	}
	if err := c.AddResource("schema.json", parsed); err != nil {
		return broken(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		return broken(err)
	}
	return func(doc string) error {
		if !json.Valid([]byte(doc)) {
			return errNotJSON
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(doc)))
		if err != nil {
			return err
		}
		return s.Validate(v)
	}
}

type constError string

func (e constError) Error() string { return string(e) }

const errNotJSON = constError("not JSON")

// cases are schemas with documents that are written, and documents that are not.
var cases = []struct {
	name, schema string
	yes, no      []string
}{
	{"object", `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"]}`,
		[]string{`{"a":1}`, `{"a": -12, "b": "x"}`, "{\n  \"a\": 1,\n  \"b\": \"\"\n}", `{ "a":1 }`},
		[]string{`{}`, `{"b":"x"}`, `{"b":"x","a":1}`, `{"a":1,}`, `{"a":01}`, `{"a":1.5}`, `{"a":1,"c":2}`, `{"a" :1}`, `{"a":  1}`, ` {"a":1}`, `{"a":1}x`}},
	{"all optional", `{"type":"object","properties":{"a":{"type":"null"},"b":{"type":"boolean"}},"additionalProperties":false}`,
		[]string{`{}`, `{ }`, `{"a":null}`, `{"b":true}`, `{"a":null,"b":false}`},
		[]string{`{,}`, `{"b":true,"a":null}`, `{"a":null "b":true}`, `{"a":null,"a":null}`, `{"b":tru}`}},
	{"additional", `{"type":"object","properties":{"ab":{"type":"integer"}},"additionalProperties":{"type":"string"}}`,
		[]string{`{}`, `{"ab":1}`, `{"ab":1,"a":"x","abc":"y"}`, `{"é":"x"}`, `{"":"x"}`},
		[]string{`{"a":1}`, `{"x":"y","ab":1}`, `{"ab":"1"}`, `{"\u0061b":"1"}`}},
	{"map", `{"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2}`,
		[]string{`{"x":1}`, `{"x":1,"y":2}`}, []string{`{}`, `{"x":1,"y":2,"z":3}`, `{"x":"1"}`}},
	{"array", `{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3}`,
		[]string{`[1,2]`, `[1, 2, 3]`, "[\n1,\n2\n]"}, []string{`[]`, `[1]`, `[1,2,3,4]`, `[1,2,]`, `[1 ,2]`}},
	{"any array", `{"type":"array"}`, []string{`[]`, `[ ]`, `[1,"a",null,[],{}]`, `[[[[1]]]]`}, []string{`[`, `{}`, `[,]`}},
	{"tuple", `{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":1,"maxItems":4}`,
		[]string{`[1]`, `[1,"a"]`, `[1,"a",null]`, `[1,"a",null,null]`}, []string{`[]`, `["a"]`, `[1,2]`, `[1,"a",3]`, `[1,"a",null,null,null]`}},
	{"closed tuple", `{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false}`,
		[]string{`[]`, `[1]`, `[1,"a"]`}, []string{`[1,"a",1]`}},
	{"string length", `{"type":"string","minLength":2,"maxLength":3}`,
		[]string{`"ab"`, `"abc"`, `"äö"`, `"😀😀😀"`, `"\n\u00e4"`, `"\ud83d\ude00x"`}, []string{`"a"`, `"abcd"`, `"\ud83d\ude00"`, `""`, `"😀"`}},
	{"strings", `{"type":"string"}`,
		[]string{`""`, `"a b"`, `"\"\\\/\b\f\n\r\t"`, `"\u0000\uABCD"`, `"中文"`, `"\uD83D\uDE00"`, `"\uD7FF\uE000"`},
		[]string{`"`, `"a`, "\"\n\"", "\"\x00\"", `"\x"`, `"\u12"`, `"\ud83d"`, `"\ud83dx"`, `"\ude00"`, "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", `'a'`, `"</think>"`, `"｜DSML｜"`}},
	{"pattern", `{"type":"string","pattern":"^[a-z]+-\\d{2}$"}`, []string{`"a-12"`, `"abc-00"`}, []string{`"a-1"`, `"A-12"`, `"a-12x"`, `"-12"`}},
	{"pattern anywhere", `{"type":"string","pattern":"b+c"}`, []string{`"bc"`, `"xxbbcx\n"`, `"bbbc"`, `"äbc€"`}, []string{`"bb"`, `"cb"`}},
	{"pattern with escapes", `{"type":"string","pattern":"^[^a]$"}`, []string{`"\""`, `"\\"`, `"\n"`, `"b"`, `"é"`, `"中"`, `"😀"`, `"\u0001"`}, []string{`"a"`, `"bb"`, `""`, `"\u0062"`}},
	{"pattern and length", `{"type":"string","pattern":"^(ab)*$","minLength":3,"maxLength":6}`, []string{`"abab"`, `"ababab"`}, []string{`"ab"`, `"aba"`, `"abababab"`, `""`}},
	{"unicode ranges", `{"type":"string","pattern":"^[α-ω一-龥😀-😎]+$"}`, []string{`"αω"`, `"中文"`, `"😀😎"`}, []string{`"a"`, `"Α"`, `"😏"`, `"ぁ"`}},
	{"case folding", `{"type":"string","pattern":"^(?i)kelvin$"}`, []string{`"kelvin"`, `"KELVIN"`, `"Kelvin"`}, []string{`"kelvi"`}},
	{"date", `{"type":"string","format":"date"}`, []string{`"2024-02-29"`, `"2000-02-29"`, `"1999-12-31"`}, []string{`"2023-02-29"`, `"1900-02-29"`, `"2023-04-31"`, `"2023-13-01"`, `"23-01-01"`}},
	{"date-time", `{"type":"string","format":"date-time"}`, []string{`"2024-02-29T23:59:59Z"`, `"2024-01-01T00:00:00.123+01:30"`}, []string{`"2024-01-01"`, `"2024-01-01T24:00:00Z"`}},
	{"uuid", `{"type":"string","format":"uuid"}`, []string{`"123e4567-e89b-12d3-a456-426614174000"`}, []string{`"123e4567"`}},
	{"ipv4", `{"type":"string","format":"ipv4"}`, []string{`"0.0.0.0"`, `"255.255.255.255"`, `"192.168.1.10"`}, []string{`"256.1.1.1"`, `"1.2.3"`, `"01.2.3.4"`}},
	{"ipv6", `{"type":"string","format":"ipv6"}`, []string{`"::"`, `"::1"`, `"fe80::1"`, `"1:2:3:4:5:6:7:8"`, `"2001:db8::8:800:200c:417a"`}, []string{`"1:2:3"`, `":::"`, `"1::2::3"`, `"12345::"`}},
	{"limits of length that a format keeps by itself", `{"type":"string","format":"uuid","minLength":1,"maxLength":64}`, []string{`"123e4567-e89b-12d3-a456-426614174000"`}, []string{`""`}},
	{"an email of limited length", `{"type":"string","format":"email","minLength":8,"maxLength":11}`, []string{`"a@bc.def"`, `"a@bcde.fghi"`}, []string{`"a@b.c"`, `"a@bcde.fghij"`}},
	{"an address of limited length", `{"type":"string","format":"uri","minLength":1,"maxLength":2083}`, []string{`"https://example.com:80/a/%20b?c=d#e"`}, []string{`""`, `"example.com"`, `"https://-.com"`}},
	{"a short address", `{"type":"string","format":"uri","maxLength":12}`, []string{`"http://a.b/c"`}, []string{`"http://a.b/cd"`}},
	{"integers", `{"type":"integer"}`, []string{`0`, `-1`, `1234567890123456789`}, []string{`-`, `00`, `1.0`, `1e3`, `12345678901234567890`, `+1`}},
	{"integer range", `{"type":"integer","minimum":-5,"maximum":120}`, []string{`-5`, `-1`, `0`, `9`, `99`, `100`, `120`}, []string{`-6`, `-10`, `121`, `200`, `1000`}},
	{"exclusive range", `{"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":10}`, []string{`1`, `9`}, []string{`0`, `10`, `-1`, `-0`}},
	{"only negative", `{"type":"integer","maximum":-10}`, []string{`-10`, `-99`}, []string{`-9`, `-1`, `0`, `10`}},
	{"large bounds", `{"type":"integer","minimum":1e3,"maximum":2147483647}`, []string{`1000`, `2147483647`, `999999`}, []string{`999`, `2147483648`, `9999999999`}},
	{"multiples", `{"type":"integer","multipleOf":7,"minimum":10}`, []string{`14`, `21`, `700`}, []string{`7`, `15`, `0`}},
	{"numbers", `{"type":"number"}`, []string{`0`, `-0`, `-1.5`, `1e10`, `1.25E-7`, `0.001`, `12e+3`}, []string{`.5`, `1.`, `01`, `1e`, `NaN`, `1e999`}},
	{"number range", `{"type":"number","minimum":0,"maximum":1}`, []string{`0`, `0.5`, `1`, `1.0`, `1.00`, `0.0`}, []string{`1.01`, `-0.1`, `2`, `1e0`, `10`}},
	{"number bounds", `{"type":"number","exclusiveMinimum":-2.5,"maximum":10.25}`, []string{`-2.49`, `-2`, `-0.1`, `10.25`, `10.2`, `10.249`, `10.250`}, []string{`-2.5`, `-2.50`, `-3`, `10.26`, `10.2501`, `11`}},
	{"cents", `{"type":"number","multipleOf":0.01,"minimum":0}`, []string{`1`, `1.5`, `1.25`}, []string{`1.255`, `-1`}},
	{"enum", `{"enum":["a","ab",1,null,{"k":[1,2]}]}`, []string{`"a"`, `"ab"`, `1`, `null`, `{"k":[1,2]}`, `{"k": [1, 2]}`}, []string{`"abc"`, `""`, `2`, `{}`, `"b"`}},
	{"enum of a type", `{"type":"string","enum":["x",1]}`, []string{`"x"`}, []string{`1`}},
	{"const", `{"const":"a\"b"}`, []string{`"a\"b"`}, []string{`"a"`}},
	{"a constant that spells markup", `{"const":"<think>"}`, []string{`"\u003cthink>"`}, []string{`"<think>"`}},
	{"types", `{"type":["integer","string","null"]}`, []string{`1`, `"x"`, `null`}, []string{`true`, `1.5`, `[]`}},
	{"nullable", `{"type":"integer","nullable":true}`, []string{`1`, `null`}, []string{`"x"`}},
	{"anyOf", `{"anyOf":[{"type":"integer"},{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false},{"type":"object","properties":{"ab":{"type":"integer"}},"required":["ab"],"additionalProperties":false}]}`,
		[]string{`3`, `{"a":1}`, `{"ab":1}`}, []string{`"x"`, `{}`, `{"abc":1}`}},
	{"anyOf beside others", `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"additionalProperties":false,"anyOf":[{"required":["a"]},{"required":["b"]}]}`,
		[]string{`{"a":1}`, `{"b":1}`, `{"a":1,"b":2}`}, []string{`{}`}},
	{"oneOf by type", `{"oneOf":[{"type":"string"},{"type":"number"}]}`, []string{`"x"`, `1.5`}, []string{`null`}},
	{"oneOf by a constant", `{"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},"required":["k","v"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]}`,
		[]string{`{"k":"a","v":1}`, `{"k":"b"}`}, []string{`{"k":"a"}`, `{"k":"c"}`, `{"k":"b","v":1}`}},
	{"allOf", `{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"type":"object","properties":{"b":{"type":"string"},"a":{"minimum":5}},"required":["b"]}]}`,
		[]string{`{"a":5,"b":"x"}`}, []string{`{"a":4,"b":"x"}`, `{"a":5}`}},
	{"reference", `{"$ref":"#/$defs/p","$defs":{"p":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"]},"n":{"type":"integer","maximum":3}}}`,
		[]string{`{"n":3}`}, []string{`{"n":4}`, `{}`}},
	{"reference beside others", `{"properties":{"x":{"$ref":"#/$defs/n","minimum":2,"description":"y"}},"required":["x"],"$defs":{"n":{"type":"integer","maximum":3}}}`,
		[]string{`{"x":2}`, `{"x":3}`}, []string{`{"x":1}`, `{"x":4}`}},
	{"recursion", `{"$defs":{"t":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/t"}}},"required":["v","kids"],"additionalProperties":false}},"$ref":"#/$defs/t"}`,
		[]string{`{"v":1,"kids":[]}`, `{"v":1,"kids":[{"v":2,"kids":[]},{"v":3,"kids":[{"v":4,"kids":[]}]}]}`}, []string{`{"v":1}`, `{"v":1,"kids":[1]}`}},
	{"a list that links itself", `{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"],"additionalProperties":false}`,
		[]string{`{"next":null}`, `{"next":{"next":null}}`}, []string{`{}`, `{"next":1}`}},
	{"a reference to itself", `{"anyOf":[{"$ref":"#"},{"type":"integer"}]}`, []string{`1`}, []string{`"x"`}},
	{"true", `true`, []string{`1`, `{"a":[true]}`, `"x"`}, []string{`x`}},
	{"empty", `{}`, []string{`null`, `[{}]`}, []string{``}},
	{"false beside", `{"anyOf":[false,{"type":"null"}]}`, []string{`null`}, []string{`1`}},
	{"keys to be escaped", `{"type":"object","properties":{"a\"b/c":{"type":"integer"}},"required":["a\"b/c"]}`, []string{`{"a\"b/c":1}`}, []string{`{"ab":1}`}},
	{"required only", `{"type":"object","required":["a"],"additionalProperties":{"type":"integer"}}`, []string{`{"a":1}`, `{"a":1,"b":2}`}, []string{`{}`, `{"b":1}`}},
}

func TestSchemasReadWhatTheyDescribe(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g := ofSchema(t, c.schema)
			valid := judge(t, c.schema)
			for _, s := range c.yes {
				if n, complete := reads(g, s); !complete {
					t.Errorf("%s is refused after %q", s, s[:n])
				}
				if err := valid(s); err != nil {
					t.Logf("%s: %v", s, err)
					if c.name != "nullable" { // not in the standard
						t.Errorf("%s is not valid: %v", s, err)
					}
				}
			}
			for _, s := range c.no {
				if _, complete := reads(g, s); complete {
					t.Errorf("%s is accepted", s)
				}
			}
		})
	}
}
