package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cedrun/runtime/serve"
)

// field is a request field that docs/serving.md lists, and two requests that it tells apart.
type field struct {
	name       string
	with       object // the request beside it
	one, other any    // of the field; one nil: without it
	shown      string // the test that shows its effect where these requests cannot
}

var (
	plainSchema  = object{"type": "object", "properties": object{"a": object{"type": "boolean"}}}
	chatTool     = object{"type": "function", "function": object{"name": "f", "parameters": plainSchema}}
	messagesTool = object{"name": "f", "input_schema": plainSchema}
	flatTool     = object{"type": "function", "name": "f", "parameters": plainSchema}
	onlyOneCall  = "TestCallsAreMadeWhenTheyAreRequired"
)

// everywhere are the fields that all dialects take.
var everywhere = []field{
	{name: "temperature", other: 0.5}, {name: "top_p", other: 0.5}, {name: "top_k", other: 3}, {name: "min_p", other: 0.5}, {name: "repetition_penalty", other: 1.5},
	{name: "presence_penalty", other: 1}, {name: "frequency_penalty", other: 1}, {name: "logit_bias", other: object{"7": 3}}, {name: "seed", one: 5, other: 9},
	{name: "ignore_eos", other: true}, {name: "priority", other: 4}, {name: "cache", other: "off"}, {name: "cache_salt", other: "a"}, {name: "stream", other: true},
}

// strictly is a tool as it is and with arguments that must match their schema.
func strictly(tool object, within string) (plain, strict []object) {
	other := merged(object{}, tool)
	if within == "" {
		other["strict"] = true
	} else {
		other[within] = merged(merged(object{}, tool[within].(object)), object{"strict": true})
	}
	return []object{tool}, []object{other}
}

func fields() map[string][]field {
	chatPlain, chatStrict := strictly(chatTool, "function")
	messagesPlain, messagesStrict := strictly(messagesTool, "")
	flatPlain, flatStrict := strictly(flatTool, "")
	schema := object{"type": "json_schema", "json_schema": object{"name": "x", "schema": plainSchema}}
	flatSchema := object{"type": "json_schema", "name": "x", "schema": plainSchema}
	named := func(role string, more object) []object {
		return append(user("x"), merged(object{"role": role, "content": "b"}, more), object{"role": "user", "content": "y"})
	}
	reasoned := []object{user("x")[0], {"role": "assistant", "reasoning_content": "r", "content": "", "prefix": true}}
	return map[string][]field{
		chatPath: {
			{name: "messages", one: named("user", nil), other: named("system", nil)},
			{name: "reasoning_content", with: object{"messages": reasoned}, shown: "TestTheParserStartsWhereThePromptEnded"},
			{name: "max_tokens", one: 3, other: 4}, {name: "max_completion_tokens", other: 4}, {name: "stop", other: "END"}, {name: "n", other: 2},
			{name: "logprobs", other: true}, {name: "top_logprobs", with: object{"logprobs": true}, other: 2},
			{name: "stream_options.include_usage", with: object{"stream": true}, other: object{"include_usage": true}},
			{name: "tools", one: chatPlain, other: chatStrict}, {name: "strict", one: chatPlain, other: chatStrict},
			{name: "tool_choice", with: object{"tools": chatPlain}, other: "required"}, {name: "parallel_tool_calls", shown: onlyOneCall},
			{name: "response_format", one: object{"type": "json_object"}, other: schema},
			{name: "thinking", other: object{"type": "enabled"}}, {name: "reasoning_effort", one: "low", other: "max"},
			{name: "chat_template_kwargs", other: object{"enable_thinking": true}}, {name: "include_reasoning", with: object{"reasoning_effort": "low"}, other: false},
		},
		completionsPath: {
			{name: "prompt", one: "x", other: []int{5}}, {name: "suffix", other: "y"}, {name: "echo", other: true}, {name: "n", other: 2}, {name: "logprobs", one: 1, other: 2},
			{name: "max_tokens", one: 3, other: 4}, {name: "stop", other: "END"}, {name: "add_special_tokens", other: false}, {name: "response_format", other: schema},
			{name: "stream_options", with: object{"stream": true}, other: object{"include_usage": true}},
		},
		messagesPath: {
			{name: "system", other: "s"}, {name: "messages", other: user("y")}, {name: "max_tokens", one: 3, other: 4}, {name: "stop_sequences", other: []string{"END"}},
			{name: "tools", one: messagesPlain, other: messagesStrict}, {name: "strict", one: messagesPlain, other: messagesStrict},
			{name: "tool_choice", with: object{"tools": messagesPlain}, other: object{"type": "any"}}, {name: "disable_parallel_tool_use", shown: onlyOneCall},
			{name: "thinking", other: object{"type": "enabled"}}, {name: "output_config.effort", one: object{"effort": "low"}, other: object{"effort": "max"}},
			{name: "output_config.format", other: object{"format": object{"type": "json_schema", "schema": plainSchema}}},
		},
		responsesPath: {
			{name: "input", one: "x", other: "y"}, {name: "instructions", other: "s"}, {name: "max_output_tokens", one: 3, other: 4},
			{name: "tools", one: flatPlain, other: flatStrict}, {name: "strict", one: flatPlain, other: flatStrict},
			{name: "tool_choice", with: object{"tools": flatPlain}, other: "required"}, {name: "parallel_tool_calls", shown: onlyOneCall},
			{name: "text.format", one: object{"format": object{"type": "json_object"}}, other: object{"format": flatSchema}},
			{name: "reasoning.effort", one: object{"effort": "low"}, other: object{"effort": "max"}},
		},
	}
}

// ignored are the fields without effect, with a request that has them.
var ignored = map[string]map[string]object{
	"user": {chatPath: {"user": "u"}, completionsPath: {"user": "u"}, responsesPath: {"user": "u"}}, "user_id": {chatPath: {"user_id": "u"}},
	"safety_identifier": {chatPath: {"safety_identifier": "u"}}, "metadata": {chatPath: {"metadata": object{"a": "b"}}, messagesPath: {"metadata": object{"user_id": "u"}}},
	"store": {chatPath: {"store": true}, responsesPath: {"store": true}}, "service_tier": {chatPath: {"service_tier": "auto"}, messagesPath: {"service_tier": "auto"}},
	"prompt_cache_key": {chatPath: {"prompt_cache_key": "k"}, responsesPath: {"prompt_cache_key": "k"}}, "prompt_cache_retention": {chatPath: {"prompt_cache_retention": "24h"}},
	"verbosity": {chatPath: {"verbosity": "low"}, responsesPath: {"text": object{"verbosity": "low"}}}, "prediction": {chatPath: {"prediction": object{"type": "content", "content": "x"}}},
	"include_obfuscation": {responsesPath: {"stream_options": object{"include_obfuscation": false}}}, "continuous_usage_stats": {},
	"truncation": {responsesPath: {"truncation": "auto"}}, "include": {responsesPath: {"include": []string{}}}, "max_tool_calls": {responsesPath: {"max_tool_calls": 1}},
	"cache_control": {messagesPath: {"cache_control": object{"type": "ephemeral"}}}, "budget_tokens": {}, "is_error": {},
}

var (
	ids   = regexp.MustCompile(`[0-9a-f]{24}`)
	times = regexp.MustCompile(`"created(_at)?":\d+`)
)

// trace is what a request asks the engine for and what its client reads.
func (s *server) trace(e *script, path string, body object) string {
	s.t.Helper()
	resp := s.send(context.Background(), path, minimal(path, merged(object{"seed": 5}, body)))
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		s.t.Fatalf("%s %v: %d %s %v", path, body, resp.StatusCode, data, err)
	}
	if path == responsesPath && body["stream"] == nil { // which repeats the settings
		var o object
		decode(s.t.(*testing.T), string(data), &o)
		data, _ = json.Marshal([]any{o["output"], o["status"]})
	}
	got := []string{}
	for len(e.told) > 0 {
		r := <-e.told
		got = append(got, fmt.Sprint(r.Prompt, r.MaxTokens, fmt.Sprintf("%+v", r.Sampling), r.Constraint != nil, r.TopLogprobs, r.Cache, r.Salt, r.Priority, r.Session != nil))
	}
	slices.Sort(got)
	return strings.Join(got, "\n") + "\n" + times.ReplaceAllString(ids.ReplaceAllString(string(data), "ID"), "")
}

func TestEveryAcceptedFieldHasAnEffectOrIsSaidToHaveNone(t *testing.T) {
	e := says(t, "two</think>one two END three")
	s := start(t, setup{engine: e, options: serve.Options{Strict: true}})
	for path, own := range fields() {
		for _, f := range append(own, everywhere...) {
			if f.shown != "" {
				continue
			}
			request := func(value any) object {
				o := merged(object{"max_tokens": 50}, f.with)
				if path == responsesPath {
					o["max_output_tokens"] = 50
					delete(o, "max_tokens")
				}
				if name, _, _ := strings.Cut(f.name, "."); value != nil && name != "strict" {
					o[name] = value
				} else if value != nil {
					o["tools"] = value
				}
				return o
			}
			one, other := s.trace(e, path, request(f.one)), s.trace(e, path, request(f.other))
			if one == other {
				t.Errorf("%s: %s makes no difference:\n%s", path, f.name, one)
			}
		}
	}
	for name, at := range ignored {
		for path, more := range at {
			if without, with := s.trace(e, path, nil), s.trace(e, path, more); without != with {
				t.Errorf("%s: %s makes a difference:\n%s\n%s", path, name, without, with)
			}
		}
	}
}

// What docs/serving.md lists is what the test above knows.
func TestTheDocumentedFieldsAreThoseThatAreTested(t *testing.T) {
	data, err := os.ReadFile("../../docs/serving.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "## What requests may say\n")
	section, _, _ = strings.Cut(section, "**Reasoning**")
	quoted := regexp.MustCompile("`([a-z_.]+)`")
	names := func(from, to string) (out []string) {
		_, part, ok := strings.Cut(section, from)
		if !ok {
			t.Fatalf("the section has no %q", from)
		}
		part, _, _ = strings.Cut(part, to)
		for _, m := range quoted.FindAllStringSubmatch(part, -1) {
			out = append(out, m[1])
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	tested := func(list []field) (out []string) {
		for _, f := range list {
			out = append(out, f.name)
		}
		slices.Sort(out)
		return out
	}
	all := fields()
	for what, c := range map[string]struct{ got, want []string }{
		"all dialects": {names("All dialects:", "\n\n"), tested(everywhere)},
		"chat":         {names("| chat |", "\n"), tested(all[chatPath])},
		"completions":  {names("| completions |", "\n"), tested(all[completionsPath])},
		"messages":     {names("| messages |", "\n"), tested(all[messagesPath])},
		"responses":    {names("| responses |", "\n"), tested(all[responsesPath])},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: documented %q, tested %q", what, c.got, c.want)
		}
	}
	for _, name := range names("Accepted without effect:", "Fields that") {
		if _, ok := ignored[name]; !ok {
			t.Errorf("%s is documented as ignored and not tested", name)
		}
	}
}
