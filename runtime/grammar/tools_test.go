package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"cedrun/runtime/prompt"
)

const weather = `{"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string","enum":["C","F"]},"days":{"type":"integer","minimum":1,"maximum":7},"near":{"anyOf":[{"type":"string","maxLength":5},{"type":"array","items":{"type":"string"},"maxItems":2},{"type":"null"}]}},"required":["city","days"],"additionalProperties":false}`

// outputs are walked as they come, and read as the server reads them.
func TestAnyWalkThroughCallsIsReadAsCalls(t *testing.T) {
	v := must[*Vocab](t)(released())
	strict := Tool{Name: "weather", Parameters: []byte(weather), Strict: true}
	none := Tool{Name: "now", Parameters: []byte(`{"type":"object","properties":{},"additionalProperties":false}`), Strict: true}
	loose := Tool{Name: "space::any"}
	schemas := map[string]string{"weather": weather, "now": `{"type":"object","maxProperties":0}`, "space::any": `{"type":"object"}`}
	for _, c := range []struct {
		name  string
		o     Output
		start prompt.Start
		want  []prompt.Reason
	}{
		{"required", Output{Calls: MustCall, Tools: []Tool{strict, none}}, prompt.Start{}, []prompt.Reason{prompt.ReasonToolCalls}},
		{"required after reasoning", Output{Reasoning: true, Calls: MustCall, Tools: []Tool{strict, none}}, prompt.Start{Reasoning: true}, []prompt.Reason{prompt.ReasonToolCalls}},
		{"required, begun by the prompt", Output{Calls: MustCall, Tools: []Tool{strict, none}, Started: InBlock},
			prompt.Start{Prefill: "\n\n<｜DSML｜ calls>\n"}, []prompt.Reason{prompt.ReasonToolCalls}},
		{"named", Output{Calls: MustCall, One: true, Tools: []Tool{strict}, Started: InCall},
			prompt.Start{Prefill: "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"weather\">\n"}, []prompt.Reason{prompt.ReasonToolCalls}},
		{"any arguments", Output{Calls: MustCall, One: true, Tools: []Tool{loose}}, prompt.Start{}, []prompt.Reason{prompt.ReasonToolCalls}},
		{"text or calls", Output{Calls: MayCall, Tools: []Tool{strict}}, prompt.Start{}, []prompt.Reason{prompt.ReasonToolCalls, prompt.ReasonStop}},
		{"JSON or calls", Output{Calls: MayCall, Tools: []Tool{strict}, Format: Schema, Schema: []byte(more[0])}, prompt.Start{}, []prompt.Reason{prompt.ReasonToolCalls, prompt.ReasonStop}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := must[*Grammar](t)(v.Compile(c.o))
			for n := range 4 {
				out := walkCalls(t, g, rand.New(rand.NewPCG(3, uint64(n))))
				r := must[*prompt.Result](t)(prompt.Parse(out, c.start, nil, prompt.ReasonStop))
				if r.Finish.Err != nil || r.Finish.UnclosedThinking {
					t.Fatalf("%q: %v", out, r.Finish.Err)
				}
				found := false
				for _, w := range c.want {
					found = found || r.Finish.Reason == w
				}
				if !found {
					t.Fatalf("%q ends with %s", out, r.Finish.Reason)
				}
				if len(r.Calls) == 0 && c.o.Calls == MustCall || len(r.Calls) > 1 && c.o.One {
					t.Fatalf("%q has %d calls", out, len(r.Calls))
				}
				if c.o.Format == Schema && len(r.Calls) == 0 {
					if err := judge(t, more[0])(r.Content); err != nil {
						t.Errorf("%q: %v", r.Content, err)
					}
				}
				for _, call := range r.Calls {
					if err := judge(t, schemas[call.Name])(call.Arguments); err != nil || !call.Complete {
						t.Errorf("%s(%s): %v", call.Name, call.Arguments, err)
					}
				}
			}
		})
	}
}

// walkCalls draws tokens uniformly, control tokens with even chances.
func walkCalls(t *testing.T, g *Grammar, r *rand.Rand) string {
	t.Helper()
	m, v := g.Start(), g.vocab
	var b strings.Builder
	for n := 0; !m.Done(); n++ {
		ids := allowed(m.Mask())
		if len(ids) == 0 || n > 300 {
			t.Fatalf("no end after %q", b.String())
		}
		id := ids[r.IntN(len(ids))]
		if n > 30 || r.IntN(4) == 0 {
			id = leaving(v, ids, id)
		}
		if err := m.Accept(id); err != nil {
			t.Fatalf("after %q: %v", b.String(), err)
		}
		if id == v.symbols.eos {
			break
		}
		b.WriteString(text(v, id))
	}
	return b.String()
}

// leaving is the token that leads out of a text or a value, if there is one.
func leaving(v *Vocab, ids []int32, other int32) int32 {
	best := 100
	for _, id := range ids {
		s := v.bytes[id]
		if len(s) > 2 {
			continue
		}
		for rank, way := range []string{"", "</", "/", "]", "}", `"`, ">", "<"} {
			if s == way && rank < best {
				best, other = rank, id
			}
		}
	}
	return other
}

func TestWrittenCallsFit(t *testing.T) {
	v := must[*Vocab](t)(released())
	g := must[*Grammar](t)(v.Compile(Output{Reasoning: true, Calls: MustCall, Tools: []Tool{{Name: "weather", Parameters: []byte(weather), Strict: true}}}))
	const call = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"weather\">\n"
	const end = "\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"
	parameter := func(name, flag, v string) string {
		return "<｜DSML｜ parameter name=\"" + name + "\" string=\"" + flag + "\">" + v + "</｜DSML｜ parameter>"
	}
	city := parameter("city", "true", "Rome </b> <x>\n\"'")
	for _, c := range []struct {
		name, text string
		fits       bool
	}{
		{"all", "Let me see.</think>" + call + city + "\n" + parameter("unit", "true", "C") + "\n" + parameter("days", "false", "3") + "\n" + parameter("near", "false", `["a", "b"]`) + end, true},
		{"required only", "</think>" + call + city + "\n" + parameter("days", "false", "7") + end, true},
		{"two calls", "</think>" + call + city + "\n" + parameter("days", "false", "7") + "\n</｜DSML｜ invoke>\n" + strings.TrimPrefix(call, "\n\n<｜DSML｜ calls>\n") + city + "\n" + parameter("days", "false", "1") + end, true},
		{"near as text", "</think>" + call + city + "\n" + parameter("days", "false", "7") + "\n" + parameter("near", "true", "here") + end, true},
		{"near null", "</think>" + call + city + "\n" + parameter("days", "false", "7") + "\n" + parameter("near", "false", "null") + end, true},
		{"no reasoning end", call + city, false},
		{"days missing", "</think>" + call + city + end, false},
		{"days as text", "</think>" + call + city + "\n" + parameter("days", "true", "7") + end, false},
		{"city as JSON", "</think>" + call + parameter("city", "false", `"Rome"`) + "\n" + parameter("days", "false", "7") + end, false},
		{"other unit", "</think>" + call + city + "\n" + parameter("unit", "true", "K") + "\n" + parameter("days", "false", "7") + end, false},
		{"other parameter", "</think>" + call + city + "\n" + parameter("days", "false", "7") + "\n" + parameter("x", "true", "") + end, false},
		{"other tool", "</think>" + strings.Replace(call, "weather", "whether", 1) + city + "\n" + parameter("days", "false", "7") + end, false},
		{"content instead", "</think>Hello", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := g.Start()
			fits := true
			for _, id := range encode(v, c.text) {
				if fits = m.Accept(id) == nil; !fits {
					break
				}
			}
			if fits = fits && m.Complete(); fits != c.fits {
				t.Errorf("fits: %v, want %v", fits, c.fits)
			}
		})
	}
}

// encode takes control tokens by their spelling and all other text byte by byte.
func encode(v *Vocab, s string) []int32 {
	single := map[string]int32{}
	for id, b := range v.bytes {
		if len(b) == 1 {
			single[b] = int32(id)
		}
	}
	var ids []int32
	for len(s) > 0 {
		switch {
		case strings.HasPrefix(s, prompt.DSML):
			ids, s = append(ids, v.symbols.dsml), s[len(prompt.DSML):]
		case strings.HasPrefix(s, prompt.ThinkEnd):
			ids, s = append(ids, v.symbols.thinkEnd), s[len(prompt.ThinkEnd):]
		default:
			ids, s = append(ids, single[s[:1]]), s[1:]
		}
	}
	return ids
}

func TestWhatCannotBeCompiledIsOneSentence(t *testing.T) {
	v := must[*Vocab](t)(small())
	deep := strings.Repeat(`{"type":"array","items":`, 70) + "{}" + strings.Repeat("}", 70)
	var optional strings.Builder
	optional.WriteString(`{"type":"object","properties":{"p0":{}`)
	for i := range 299 {
		fmt.Fprintf(&optional, `,"p%d":{}`, i+1)
	}
	optional.WriteString("}}")
	for _, c := range []struct{ schema, at, problem string }{
		{`{"type":"object","properties":{"a":{"not":{}}}}`, "#/properties/a/not", `the keyword "not" is not supported`},
		{`{"patternProperties":{}}`, "#/patternProperties", "not supported"},
		{`{"type":"array","uniqueItems":true}`, "#/uniqueItems", "not supported"},
		{`{"if":{},"then":{}}`, "#/if", "not supported"},
		{`{"properties":{"a/b":{"contains":{}}}}`, "#/properties/a~1b/contains", "not supported"},
		{`{"type":"strin"}`, "#/type", "is no type"},
		{`{"type":7}`, "#/type", "name of a type"},
		{`7`, "#", "a schema must be an object"},
		{`{"type":"object"`, "#", "not valid JSON"},
		{`{} {}`, "#", "more follows"},
		{`{"type":"string","type":"string"}`, "#/type", "given twice"},
		{`{"$ref":"#/$defs/x"}`, "#/$ref", "points to nothing"},
		{`{"$ref":"https://example.org/s"}`, "#/$ref", "must point into the schema"},
		{`{"$ref":"#"}`, "#", "no value matches"},
		{`false`, "#", "no value matches"},
		{`{"type":"string","minLength":3,"maxLength":2}`, "#", "no value matches"},
		{`{"type":"integer","minimum":3,"maximum":2}`, "#", "no value matches"},
		{`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, "#", "no value matches"},
		{`{"type":"string","pattern":"("}`, "#", "missing closing )"},
		{`{"type":"string","pattern":"(?=a)"}`, "#", "RE2"},
		{`{"type":"string","pattern":"\\bx"}`, "#", "word boundaries"},
		{`{"type":"string","pattern":"(a|b)*a(a|b){14}$"}`, "#", "automaton of more than"},
		{`{"type":"string","format":"json-pointer"}`, "#/format", "not supported"},
		{`{"type":"string","maxLength":99999999}`, "#/maxLength", "at most"},
		{`{"type":"string","maxLength":-1}`, "#/maxLength", "whole number"},
		{`{"type":"array","items":{},"maxItems":10001}`, "#/maxItems", "at most 10000"},
		{`{"type":"number","multipleOf":0.3}`, "#/multipleOf", "not supported"},
		{`{"type":"integer","minimum":1e30}`, "#/minimum", "out of range"},
		{`{"enum":[]}`, "#/enum", "list of values"},
		{`{"enum":["a"],"minLength":2}`, "#/minLength", "beside enum"},
		{`{"oneOf":[{"type":"string"},{"type":"string","maxLength":3}]}`, "#/oneOf/1", "use anyOf"},
		{`{"allOf":[{"type":"string"},{"type":"integer"}]}`, "#/allOf/1/type", "excludes the type"},
		{`{"allOf":[{"pattern":"a"},{"pattern":"b"}]}`, "#/allOf/1/pattern", "cannot be combined"},
		{`{"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]}`, "#/allOf/0/additionalProperties", "exclude"},
		{`{"$ref":"#","minLength":1}`, "#", "nested deeper"},
		{`{"type":"object","properties":{"a":{}},"required":["b"]}`, "#/required/0", "not among the properties"},
		{`{"type":"object","properties":{"a":{}},"minProperties":1}`, "#/minProperties", "not supported"},
		{optional.String(), "#/properties/p43", "more than 256 properties"},
		{deep, "#/items", "nested deeper than 64"},
		{`{"enum":["` + strings.Repeat("x", 300_000) + `"]}`, "#", "at most 262144"},
		{`{"type":"array","maxItems":9999,"items":{"type":"array","maxItems":9999,"items":{"type":"array","maxItems":9999,"items":{"type":"array","maxItems":9999}}}}`, "#", "too large"},
	} {
		_, err := v.Compile(Output{Format: Schema, Schema: []byte(c.schema)})
		var e *Error
		if !errors.As(err, &e) || !strings.HasPrefix(e.At, c.at) || !strings.Contains(e.Problem, c.problem) || strings.Contains(e.Problem, "\n") {
			t.Errorf("%.80s: %v, want one at %s with %q", c.schema, err, c.at, c.problem)
		}
	}
	for _, c := range []struct {
		tool    Tool
		problem string
	}{
		{Tool{Name: "f", Strict: true, Parameters: []byte(`{"type":"object","properties":{"a":{"not":{}}}}`)}, `tool "f": at #/properties/a/not: the keyword "not" is not supported`},
		{Tool{Name: "f", Strict: true, Parameters: []byte(`{"type":"object"}`)}, "must have listed properties"},
		{Tool{Name: "f", Strict: true, Parameters: []byte(`{"type":"string"}`)}, "must be of type object"},
		{Tool{Name: "f", Strict: true, Parameters: []byte(`{"type":"object","properties":{"a\"":{}}}`)}, "cannot be written"},
		{Tool{Name: "f", Strict: true, Parameters: []byte(`{"type":"object","properties":{"a":{"const":"｜DSML｜"}}}`)}, "control token"},
		{Tool{Name: "f\n"}, "cannot be written"},
	} {
		if _, err := v.Compile(Output{Calls: MustCall, Tools: []Tool{c.tool}}); err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%+v: %v, want %q", c.tool, err, c.problem)
		}
	}
	if _, err := v.Compile(Output{Calls: MustCall}); err == nil {
		t.Error("calls without tools compile")
	}
}

// A schema that is not strict and not supported leaves the arguments free.
func TestToolsThatAreNotStrictAreTakenAsFarAsPossible(t *testing.T) {
	v := must[*Vocab](t)(small())
	o := Output{Calls: MustCall, Tools: []Tool{{Name: "f", Parameters: []byte(`{"type":"object","properties":{"a":{"not":{}}}}`)}, {Name: "g", Parameters: []byte(weather)}}}
	g := must[*Grammar](t)(v.Compile(o))
	m := g.Start()
	for _, id := range encode(v, "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"zz\" string=\"false\">[1, {\"a\": null}]</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>") {
		if err := m.Accept(id); err != nil {
			t.Fatal(err)
		}
	}
	if !m.Done() {
		t.Error("not done")
	}
	if (&Output{}).Free() == false || o.Free() {
		t.Error("Free")
	}
}

func FuzzCompile(f *testing.F) {
	for _, c := range cases {
		f.Add([]byte(c.schema), uint64(1))
	}
	for _, s := range more {
		f.Add([]byte(s), uint64(2))
	}
	v, err := small()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, schema []byte, seed uint64) {
		if len(schema) > 2000 {
			return
		}
		for _, o := range []Output{{Format: Schema, Schema: schema}, {Calls: MustCall, Tools: []Tool{{Name: "f", Parameters: schema, Strict: true}}}} {
			g, err := v.Compile(o)
			if err != nil {
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("%q", err)
				}
				continue
			}
			r := rand.New(rand.NewPCG(seed, 1))
			m := g.Start()
			var b strings.Builder
			for n := 0; n < 50 && !m.Done(); n++ {
				ids := allowed(m.Mask())
				if len(ids) == 0 {
					t.Fatalf("%s: nothing can follow %q", schema, b.String())
				}
				id := ids[r.IntN(len(ids))]
				if err := m.Accept(id); err != nil {
					t.Fatalf("%s: after %q: %v", schema, b.String(), err)
				}
				if id == v.symbols.eos {
					break
				}
				b.WriteString(v.bytes[id])
			}
			if o.Format == Schema && m.Ended() && !json.Valid([]byte(b.String())) {
				t.Errorf("%s: %q is not JSON", schema, b.String())
			}
		}
	})
}
