package grammar

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// allowed lists the tokens of a mask.
func allowed(mask []uint64) []int32 {
	var ids []int32
	for i, w := range mask {
		for ; w != 0; w &= w - 1 {
			ids = append(ids, int32(64*i+bits.TrailingZeros64(w)))
		}
	}
	return ids
}

// walk draws tokens from the masks, uniformly, until the end. After patience tokens it prefers those that close things.
func walk(t testing.TB, g *Grammar, r *rand.Rand, patience int) string {
	t.Helper()
	m := g.Start()
	var b strings.Builder
	for n := 0; !m.Done(); n++ {
		ids := allowed(m.Mask())
		if len(ids) == 0 {
			t.Fatalf("nothing can follow %q", b.String())
		}
		if n > 20*patience {
			t.Fatalf("no end after %q", b.String())
		}
		id := ids[r.IntN(len(ids))]
		if n > patience {
			id = closing(g.vocab, ids, b.String(), r)
		}
		if err := m.Accept(id); err != nil {
			t.Fatalf("after %q: the mask allows what Accept refuses: %v", b.String(), err)
		}
		if id == g.vocab.symbols.eos {
			break
		}
		b.WriteString(text(g.vocab, id))
	}
	return b.String()
}

// closing picks the end, what closes a string or a bracket, or else any single byte.
func closing(v *Vocab, ids []int32, doc string, r *rand.Rand) int32 {
	quoted := strings.Count(strings.ReplaceAll(strings.ReplaceAll(doc, `\\`, ""), `\"`, ""), `"`)%2 == 1
	var single []int32
	for _, id := range ids {
		s := v.bytes[id]
		switch {
		case id == v.symbols.eos, quoted && s == `"`, !quoted && (s == "]" || s == "}"):
			return id
		case len(s) < 2:
			single = append(single, id)
		}
	}
	if len(single) == 0 {
		single = ids
	}
	return single[r.IntN(len(single))]
}

func text(v *Vocab, id int32) string {
	switch id {
	case v.symbols.dsml:
		return "｜DSML｜"
	case v.symbols.thinkEnd:
		return "</think>"
	}
	return v.bytes[id]
}

// more are schemas as people write them.
var more = []string{
	`{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,"maximum":130},"email":{"type":"string","format":"email"},"score":{"type":"number","minimum":0,"maximum":1},"tags":{"type":"array","items":{"type":"string","enum":["red","green","blue"]},"maxItems":3},"born":{"type":"string","format":"date"},"id":{"type":"string","format":"uuid"}},"required":["name","age","tags","id"],"additionalProperties":false}`,
	`{"$defs":{"expr":{"anyOf":[{"type":"integer"},{"type":"object","properties":{"op":{"enum":["+","-"]},"left":{"$ref":"#/$defs/expr"},"right":{"$ref":"#/$defs/expr"}},"required":["op","left","right"],"additionalProperties":false}]}},"$ref":"#/$defs/expr"}`,
	`{"type":"object","properties":{"steps":{"type":"array","minItems":1,"items":{"type":"object","properties":{"explanation":{"type":"string"},"output":{"type":"string"}},"required":["explanation","output"],"additionalProperties":false}},"final_answer":{"type":"string"}},"required":["steps","final_answer"],"additionalProperties":false}`,
	`{"type":"array","items":{"type":"string","format":"hostname"},"minItems":1,"maxItems":2}`,
	`{"type":"array","items":{"type":"string","format":"duration"},"minItems":1,"maxItems":2}`,
	`{"type":"array","items":{"type":"string","format":"time"},"minItems":1,"maxItems":2}`,
	`{"type":"array","items":{"type":"string","format":"uri"},"minItems":1,"maxItems":2}`,
	`{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"boolean"},"maxProperties":2},"maxProperties":2}`,
}

func TestAnyWalkThroughMasksEndsInAValidDocument(t *testing.T) {
	v := must[*Vocab](t)(released())
	schemas := append([]string(nil), more...)
	for _, c := range cases {
		if c.name != "nullable" && c.name != "pattern anywhere" { // not in the standard; found by chance only
			schemas = append(schemas, c.schema)
		}
	}
	walks := 5
	if testing.Short() {
		walks = 3
	}
	for i, schema := range schemas {
		valid := judge(t, schema)
		g := must[*Grammar](t)(v.Compile(Output{Format: Schema, Schema: []byte(schema)}))
		for n := range walks {
			doc := walk(t, g, rand.New(rand.NewPCG(uint64(i), uint64(n))), 30)
			if err := valid(doc); err != nil {
				t.Errorf("schema %s\ndocument %s\n%v", schema, doc, err)
			}
			if !utf8.ValidString(doc) {
				t.Errorf("%q is not UTF-8", doc)
			}
		}
	}
}

func TestAnyJSONObject(t *testing.T) {
	v := must[*Vocab](t)(released())
	g := must[*Grammar](t)(v.Compile(Output{Format: Object}))
	for n := range 10 {
		doc := walk(t, g, rand.New(rand.NewPCG(7, uint64(n))), 60)
		var o map[string]any
		if err := json.Unmarshal([]byte(doc), &o); err != nil {
			t.Errorf("%q: %v", doc, err)
		}
	}
}

// A mask is what trying every token says.
func TestMasksAgreeWithAccept(t *testing.T) {
	v := must[*Vocab](t)(small())
	for i, schema := range []string{more[0], more[1], more[2], `{}`, `{"type":"string","minLength":3,"maxLength":9}`, `{"type":"string","pattern":"[é-ö]+x"}`} {
		for _, o := range []Output{
			{Format: Schema, Schema: []byte(schema)},
			{Reasoning: true, Calls: MayCall, Format: Schema, Schema: []byte(schema), Tools: []Tool{{Name: "f", Parameters: []byte(more[0]), Strict: true}}},
		} {
			g := must[*Grammar](t)(v.Compile(o))
			r := rand.New(rand.NewPCG(1, uint64(i)))
			m := g.Start()
			for n := 0; n < 40 && !m.Done(); n++ {
				mask := m.Mask()
				for id := range int32(v.size) {
					err := m.Clone().Accept(id)
					if got := mask[id>>6]>>(id&63)&1 == 1; got != (err == nil) {
						t.Fatalf("schema %s, token %d (%q): mask %v, Accept %v", schema, id, v.bytes[id], got, err)
					}
				}
				ids := allowed(mask)
				if err := m.Accept(ids[r.IntN(len(ids))]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestAccept(t *testing.T) {
	v := must[*Vocab](t)(small())
	g := must[*Grammar](t)(v.Compile(Output{Format: Schema, Schema: []byte(`{"enum":[12]}`)}))
	m := g.Start()
	for _, id := range []int32{-1, int32(v.size), v.symbols.eos, v.symbols.dsml} {
		if err := m.Accept(id); err == nil {
			t.Errorf("token %d is accepted at the beginning", id)
		}
	}
	other := m.Clone()
	for _, s := range []string{"1", "2"} {
		for id, b := range v.bytes {
			if b == s {
				if err := m.Accept(int32(id)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if !m.Complete() || !m.Done() || m.Ended() || other.Complete() {
		t.Error("12 is complete, and its clone has not begun")
	}
	if ids := allowed(m.Mask()); fmt.Sprint(ids) != fmt.Sprint([]int32{v.symbols.eos}) {
		t.Errorf("tokens %v may follow, want the end alone", ids)
	}
	if err := m.Accept(v.symbols.eos); err != nil || !m.Ended() {
		t.Error(err)
	}
	if len(allowed(m.Mask())) > 0 || m.Accept(v.symbols.eos) == nil {
		t.Error("something follows the end")
	}
}
