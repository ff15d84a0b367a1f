package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"cedrun/runtime/serve"
)

const personSchema = `{
	"type": "object",
	"properties": {
		"name": {"type": "string", "maxLength": 8},
		"age": {"type": "integer", "minimum": 0, "maximum": 120},
		"tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 1, "maxItems": 2},
		"born": {"type": "string", "format": "date"},
		"next": {"anyOf": [{"type": "null"}, {"type": "number", "minimum": 0, "maximum": 1}]}
	},
	"required": ["name", "age", "tags", "next"],
	"additionalProperties": false
}`

// fits checks a document by an independent validator.
func fits(t *testing.T, schema, doc string) {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddResource("s.json", parsed); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("s.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
	if err == nil {
		err = s.Validate(v)
	}
	if err != nil || !json.Valid([]byte(doc)) {
		t.Errorf("%q: %v", doc, err)
	}
}

// hot are settings under which the demo model writes nonsense.
func hot(more object) object {
	o := object{"temperature": 1.5, "top_p": 1, "max_tokens": 400}
	for k, v := range more {
		o[k] = v
	}
	return o
}

func TestAnswersHaveTheSchemaThatWasAskedFor(t *testing.T) {
	s := start(t, setup{options: serve.Options{Strict: true}})
	schema := json.RawMessage(personSchema)
	for name, d := range map[string]struct {
		path  string
		body  object
		path2 []any
	}{
		"chat":      {chatPath, object{"messages": user("x"), "response_format": object{"type": "json_schema", "json_schema": object{"name": "p", "strict": true, "schema": schema}}}, []any{"choices", 0, "message", "content"}},
		"responses": {responsesPath, object{"input": "x", "max_output_tokens": 400, "max_tokens": nil, "text": object{"format": object{"type": "json_schema", "name": "p", "schema": schema}}}, []any{"output", 0, "content", 0, "text"}},
		"messages":  {messagesPath, object{"messages": user("x"), "output_config": object{"format": object{"type": "json_schema", "schema": schema}}}, []any{"content", 0, "text"}},
		"text":      {completionsPath, object{"prompt": "x", "response_format": object{"type": "json_schema", "json_schema": object{"name": "p", "schema": schema}}}, []any{"choices", 0, "text"}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range 4 {
				o := s.must(d.path, hot(object{"seed": seed, "model": "demo"}).with(d.body))
				fits(t, personSchema, text(o, d.path2...))
			}
		})
	}
}

// with is o with the members of p; a null of p takes one out.
func (o object) with(p object) object {
	for k, v := range p {
		if o[k] = v; v == nil {
			delete(o, k)
		}
	}
	return o
}

func TestSchemasHoldForEveryChoiceAndAfterReasoning(t *testing.T) {
	s := start(t, setup{})
	o := s.must(chatPath, hot(object{"messages": user("x"), "n": 3, "seed": 5, "logprobs": true,
		"response_format": object{"type": "json_schema", "json_schema": object{"name": "p", "schema": json.RawMessage(personSchema)}}}))
	for i := range 3 {
		fits(t, personSchema, text(o, "choices", i, "message", "content"))
		if got := text(o, "choices", i, "finish_reason"); got != "stop" {
			t.Errorf("choice %d ended by %q", i, got)
		}
	}
	o = s.must(chatPath, hot(object{"messages": user("x"), "seed": 1, "temperature": 1, "thinking": object{"type": "enabled"}, "max_tokens": 900,
		"logit_bias":      object{fmt.Sprint(thinkEnd(t)): 100},
		"response_format": object{"type": "json_schema", "json_schema": object{"name": "p", "schema": json.RawMessage(personSchema)}}}))
	fits(t, personSchema, text(o, "choices", 0, "message", "content"))
}

func thinkEnd(t *testing.T) int {
	id, ok := instance(t).Tokenizer.ID("</think>")
	if !ok {
		t.Fatal("no </think>")
	}
	return id
}

func TestAnyJSONObject(t *testing.T) {
	s := start(t, setup{})
	for seed := range 3 {
		o := s.must(chatPath, object{"messages": user("x"), "seed": seed, "temperature": 0.7, "max_tokens": 600, "response_format": object{"type": "json_object"}})
		if text(o, "choices", 0, "finish_reason") == "length" {
			continue // free text may be long
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(text(o, "choices", 0, "message", "content")), &v); err != nil {
			t.Errorf("%v: %v", o, err)
		}
	}
}

const callSchema = `{"type": "object", "properties": {"city": {"type": "string", "maxLength": 6}, "days": {"type": "integer", "minimum": 1, "maximum": 7}, "unit": {"enum": ["C", "F"]}}, "required": ["city", "days"], "additionalProperties": false}`

func TestCallsAreMadeWhenTheyAreRequired(t *testing.T) {
	s := start(t, setup{})
	call := object{"name": "weather", "strict": true, "parameters": json.RawMessage(callSchema)}
	other := object{"name": "time", "parameters": json.RawMessage(`{"type": "object", "properties": {}, "additionalProperties": false}`)}
	tools := []object{{"type": "function", "function": call}, {"type": "function", "function": other}}
	schemas := map[string]string{"weather": callSchema, "time": `{"type": "object", "maxProperties": 0}`}
	for _, thinking := range []string{"disabled", "enabled"} {
		for name, choice := range map[string]any{"required": "required", "named": object{"type": "function", "function": object{"name": "weather"}}} {
			t.Run(name+", thinking "+thinking, func(t *testing.T) {
				for seed := range 2 {
					o := s.must(chatPath, hot(object{"messages": user("x"), "seed": seed, "tools": tools, "tool_choice": choice, "parallel_tool_calls": false,
						"thinking": object{"type": thinking}, "logit_bias": object{fmt.Sprint(thinkEnd(t)): 100}}))
					calls, _ := at(o, "choices", 0, "message", "tool_calls").([]any)
					if len(calls) != 1 || text(o, "choices", 0, "finish_reason") != "tool_calls" {
						t.Fatalf("%v", o)
					}
					called := text(calls[0], "function", "name")
					if name == "named" && called != "weather" {
						t.Errorf("called %s", called)
					}
					fits(t, schemas[called], text(calls[0], "function", "arguments"))
				}
			})
		}
	}
	o := s.must(messagesPath, hot(object{"model": "demo", "messages": user("x"), "seed": 1, "thinking": object{"type": "disabled"},
		"tools":       []object{{"name": "weather", "input_schema": json.RawMessage(callSchema), "strict": true}},
		"tool_choice": object{"type": "any", "disable_parallel_tool_use": true}}))
	input, err := json.Marshal(at(o, "content", 0, "input"))
	if err != nil || text(o, "stop_reason") != "tool_use" {
		t.Fatalf("%v (%v)", o, err)
	}
	fits(t, callSchema, string(input))
}

// A text is the same whatever else runs, and with the same seed, constrained or not.
func TestConstrainedTextsAreReproducible(t *testing.T) {
	s := start(t, setup{})
	body := hot(object{"messages": user("x"), "seed": 9, "response_format": object{"type": "json_schema", "json_schema": object{"schema": json.RawMessage(personSchema)}}})
	want := text(s.must(chatPath, body), "choices", 0, "message", "content")
	var streamed strings.Builder
	for _, e := range s.stream(chatPath, body) {
		streamed.WriteString(text(e.object, "choices", 0, "delta", "content"))
	}
	if got := text(s.must(chatPath, body), "choices", 0, "message", "content"); got != want || streamed.String() != want {
		t.Errorf("%q, streamed %q, want %q", got, streamed.String(), want)
	}
}
