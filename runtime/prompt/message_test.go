package prompt

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMessagesFile(t *testing.T) {
	c, err := ParseMessages([]byte(`{
		"messages": [
			{"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "a.png"}}]},
			{"role": "assistant", "content": null, "tool_calls": [
				{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}, {"function": {"name": "g"}}]},
			{"role": "tool", "tool_call_id": "1", "content": "done"},
			{"role": "assistant", "content": "So", "prefix": true}
		],
		"tools": [{"type": "function", "function": {"name": "f"}}],
		"thinking": true, "effort": "max", "response_format": null}`))
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	want := &Conversation{
		Messages: []Message{
			{Role: "user", Content: []Block{{Type: "text", Text: "look"}, {Type: "image", Image: []byte(`{"type": "image_url", "image_url": {"url": "a.png"}}`)}}},
			{Role: "assistant", ToolCalls: []ToolCall{{ID: "1", Name: "f", Arguments: []byte(`{"a": 1}`)}, {Name: "g", Arguments: []byte("{}")}}},
			{Role: "tool", ToolCallID: "1", Content: Text("done")},
			{Role: "assistant", Content: Text("So"), Prefix: true},
		},
		Tools:    []json.RawMessage{[]byte(`{"type": "function", "function": {"name": "f"}}`)},
		Thinking: &yes, Effort: 100,
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

func TestMessagesFileErrorsSayWhatAndWhere(t *testing.T) {
	for _, c := range []struct{ name, file, says string }{
		{"empty", "", "empty or ends too early"},
		{"blank", " \n", "empty or ends too early"},
		{"syntax", "[\n  {\"role\": \"user\",}\n]", "line 2, column 19"},
		{"cut", `[{"role":`, "line 1"},
		{"two values", `[] []`, "line 1, column 4"},
		{"scalar", `5`, "expected a list, not 5"},
		{"scalar before a line break", "9\n", "expected a list, not 9"},
		{"no messages", `[]`, "the list is empty"},
		{"null", `null`, "the list is empty"},
		{"object without messages", `{"thinking": true}`, `no "messages"`},
		{"unknown key of the file", `{"messages": [], "temperature": 1}`, `unknown key "temperature"`},
		{"unknown key", `[{"role": "user", "content": "x"}, {"role": "user", "contnet": "x"}]`, `message 1: unknown key "contnet"`},
		{"empty key", `[{"role": "user", "": "x"}]`, `unknown key ""`},
		{"role missing", `[{"content": "x"}]`, "message 0: no role"},
		{"role", `[{"role": "developer"}]`, `role "developer" is not one of`},
		{"role type", `[{"role": 1}]`, "role must be a string, not 1"},
		{"content type", `[{"role": "user", "content": 5}]`, "content must be a string or a list of blocks, not 5"},
		{"content_blocks", `[{"role": "user", "content_blocks": "x"}]`, "content_blocks must be a list"},
		{"block", `[{"role": "user", "content": ["x"]}]`, `content[0]: expected an object, not "x"`},
		{"block type", `[{"role": "user", "content": [{"type": "audio"}]}]`, `block type "audio"`},
		{"text missing", `[{"role": "user", "content": [{"type": "text"}]}]`, `needs "text"`},
		{"nested result", `[{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "tool_result"}]}]}]`, "cannot hold another"},
		{"call", `[{"role": "assistant", "tool_calls": [{"id": "1"}]}]`, `message 0: tool_calls[0]: a tool call needs "function"`},
		{"call name", `[{"role": "assistant", "tool_calls": [{"function": {}}]}]`, "no name"},
		{"prefix", `[{"role": "assistant", "prefix": "yes"}]`, `prefix must be true or false, not "yes"`},
		{"tools", `[{"role": "system", "tools": {}}]`, "tools: expected a list"},
		{"thinking", `{"messages": [{"role": "user"}], "thinking": 1}`, "thinking must be true or false, not 1"},
		{"effort", `{"messages": [{"role": "user"}], "effort": 101}`, "effort must be low, high, max or an integer from 1 to 100, not 101"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseMessages([]byte(c.file))
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q does not say %q", err, c.says)
			}
		})
	}
}

func TestMessagesOfARequestMayHaveOtherKeys(t *testing.T) {
	var m []Message
	if err := json.Unmarshal([]byte(`[{"role": "user", "content": "x", "refusal": null, "annotations": []}]`), &m); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Message{{Role: "user", Content: Text("x")}}, m); diff != "" {
		t.Error(diff)
	}
}

func TestEffort(t *testing.T) {
	for given, want := range map[string]int{"low": 50, "high": 75, "max": 100, "1": 1, "100": 100, "75": 75} {
		if n, err := ParseEffort(given); err != nil || n != want {
			t.Errorf("%q: %d, error %v", given, n, err)
		}
	}
	for _, given := range []string{"", "0", "101", "-1", "+5", "05", "50.0", "medium", "Low", "true", "1e1", " 5"} {
		if n, err := ParseEffort(given); err == nil {
			t.Errorf("%q is read as %d", given, n)
		}
	}
	for given, want := range map[string]int{`null`: 75, `"low"`: 50, `"high"`: 75, `"max"`: 100, `1`: 1, `100`: 100} {
		if n, err := EffortFromJSON([]byte(given)); err != nil || n != want {
			t.Errorf("%s: %d, error %v", given, n, err)
		}
	}
	for _, given := range []string{`0`, `101`, `true`, `"medium"`, `1.5`, `50.0`, `"75"`, `[]`, `{}`, `-1`, `1e1`} {
		if n, err := EffortFromJSON([]byte(given)); err == nil {
			t.Errorf("%s is read as %d", given, n)
		}
	}
}

func TestJSONIsWrittenAsPythonWritesIt(t *testing.T) {
	for given, want := range map[string]string{
		`{"b":1,"a":{"c":[ ]} , "":{}}`:      `{"b": 1, "a": {"c": []}, "": {}}`,
		`{"a":1,"b":2,"a":3}`:                `{"a": 3, "b": 2}`,
		`"\u00e9\ud83d\ude00\/<>&\u2028"`:    "\"é😀/<>&\u2028\"",
		`"\u0000\u001f\u007f\b\f\n\r\t\"\\"`: "\"\\u0000\\u001f\x7f\\b\\f\\n\\r\\t\\\"\\\\\"",
		`1`:                                  `1`, `-0`: `0`, `12345678901234567890123`: `12345678901234567890123`,
		`1.0`: `1.0`, `1.50`: `1.5`, `-0.0`: `-0.0`, `0.1`: `0.1`, `1e5`: `100000.0`, `1E5`: `100000.0`, `1e15`: `1000000000000000.0`,
		`1e16`: `1e+16`, `123456789012345678.0`: `1.2345678901234568e+17`, `1e-4`: `0.0001`, `1e-5`: `1e-05`, `0.00001234`: `1.234e-05`,
		`1e-7`: `1e-07`, `5e-324`: `5e-324`, `1e308`: `1e+308`, `1e400`: `Infinity`, `-1e400`: `-Infinity`, `1e-400`: `0.0`, `1e22`: `1e+22`, `0e0`: `0.0`,
		`[true,false,null]`: `[true, false, null]`,
	} {
		v, err := parseValue([]byte(given))
		if err != nil || v.String() != want {
			t.Errorf("%s: got %s, want %s, error %v", given, v, want, err)
		}
	}
}

func FuzzParseMessages(f *testing.F) {
	for _, c := range encodings(f).Encode {
		f.Add([]byte(c.Messages), c.Kwargs.ThinkingMode == "thinking")
	}
	f.Add([]byte(`{"messages": [{"role": "user", "content": "x"}], "tools": [], "thinking": false, "effort": 3}`), true)
	f.Fuzz(func(t *testing.T, data []byte, thinking bool) {
		c, err := ParseMessages(data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
			return
		}
		o := c.Options()
		o.Thinking = o.Thinking || thinking
		p, err := Render(c.Messages, o)
		if err != nil {
			return
		}
		images := 0
		for i, s := range p.Segments {
			if s.Text == "" || i > 0 && !s.Control && !p.Segments[i-1].Control {
				t.Errorf("segment %d is empty or follows text", i)
			}
			if s.Control && s.Text == ImagePad {
				images++
			}
		}
		if images != len(p.Images) {
			t.Errorf("%d images are listed, %d rendered", len(p.Images), images)
		}
		if again, err := Render(c.Messages, o); err != nil || again.String() != p.String() {
			t.Errorf("rendered twice: error %v", err)
		}
	})
}
