package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// object is a JSON object of a request.
type object map[string]any

// request is one of the closed set.
type request struct {
	path   string
	body   object
	stream bool
}

func (q *request) String() string {
	how := "whole"
	if q.stream {
		how = "streamed"
	}
	return q.path + " (" + how + ")"
}

// with is the body with further fields.
func (q *request) with(more object) object {
	out := object{}
	for _, o := range []object{q.body, more} {
		for k, v := range o {
			out[k] = v
		}
	}
	return out
}

// makeSet makes n requests of all kinds. Each has its own seed or no randomness, so its answer is always the same; many
// share long prefixes.
func makeSet(n int, seed uint64) []request {
	r := rand.New(rand.NewPCG(seed, 0))
	m := &maker{Rand: r}
	for range 3 {
		m.systems = append(m.systems, m.words(120))
	}
	kinds := []func() (string, object){m.chat, m.chatTools, m.chatForm, m.completion, m.completions, m.score, m.middle, m.messages, m.messagesTools, m.responses, m.responsesForm}
	set := make([]request, n)
	for i := range set {
		path, body := kinds[i%len(kinds)]()
		body["seed"], body["temperature"] = r.IntN(1<<30), []float64{0, 0.7, 1, 1.3}[r.IntN(4)]
		if i/len(kinds)%4 == 3 {
			body["cache"] = "off"
		}
		q := request{path: path, body: body, stream: i/len(kinds)%2 == 1}
		if q.stream {
			body["stream"] = true
			if q.path != "/v1/messages" && q.path != "/v1/responses" {
				body["stream_options"] = object{"include_usage": true}
			}
		}
		set[i] = q
	}
	return set
}

// maker makes random requests.
type maker struct {
	*rand.Rand
	systems []string
}

var vocabulary = strings.Fields(`the and of to that in he shall unto for his a they be is not them it with all thou thy was which my me said
but as thee upon have from we her by him ye their had who king there out are man came when people up this were son us
no day land then into came Lord God house Israel children hand earth men went father Moses Jacob David water sea gold`)

func (m *maker) words(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = vocabulary[m.IntN(len(vocabulary))]
	}
	return strings.Join(out, " ") + "."
}

func (m *maker) maybe(o object, name string, v any) {
	if m.IntN(3) == 0 {
		o[name] = v
	}
}

// conversation is some turns after a system prompt that others have too.
func (m *maker) conversation(system bool) (messages []object) {
	if system {
		messages = append(messages, object{"role": "system", "content": m.systems[m.IntN(len(m.systems))]})
	}
	for range m.IntN(3) {
		messages = append(messages, object{"role": "user", "content": m.words(4 + m.IntN(20))}, object{"role": "assistant", "content": m.words(3 + m.IntN(9))})
	}
	return append(messages, object{"role": "user", "content": m.words(3 + m.IntN(12))})
}

func (m *maker) stops() []string {
	return []string{" the", "\n", vocabulary[m.IntN(len(vocabulary))] + " and"}
}

func (m *maker) chat() (string, object) {
	o := object{"messages": m.conversation(true), "max_tokens": 4 + m.IntN(28)}
	m.maybe(o, "stop", m.stops())
	m.maybe(o, "n", 2+m.IntN(2))
	m.maybe(o, "frequency_penalty", 0.5)
	m.maybe(o, "thinking", object{"type": "enabled"})
	if m.IntN(3) == 0 {
		o["logprobs"], o["top_logprobs"] = true, m.IntN(6)
	}
	return "/v1/chat/completions", o
}

var parameters = object{
	"type": "object", "properties": object{"city": object{"type": "string", "maxLength": 8}, "days": object{"type": "integer", "minimum": 1, "maximum": 9}},
	"required": []string{"city", "days"}, "additionalProperties": false,
}

func (m *maker) chatTools() (string, object) {
	o := object{
		"messages": m.conversation(m.IntN(2) == 0), "max_tokens": 90,
		"tools":       []object{{"type": "function", "function": object{"name": "weather", "description": "The weather.", "parameters": parameters, "strict": true}}},
		"tool_choice": []any{"auto", "required", object{"type": "function", "function": object{"name": "weather"}}}[m.IntN(3)],
	}
	m.maybe(o, "parallel_tool_calls", false)
	return "/v1/chat/completions", o
}

func (m *maker) chatForm() (string, object) {
	o := object{"messages": m.conversation(m.IntN(2) == 0), "max_tokens": 60}
	if m.IntN(3) == 0 {
		o["response_format"] = object{"type": "json_object"}
	} else {
		o["response_format"] = object{"type": "json_schema", "json_schema": object{"name": "answer", "schema": parameters}}
	}
	return "/v1/chat/completions", o
}

func (m *maker) completion() (string, object) {
	o := object{"prompt": m.systems[m.IntN(len(m.systems))] + " " + m.words(5), "max_tokens": 4 + m.IntN(28)}
	m.maybe(o, "stop", m.stops())
	m.maybe(o, "logprobs", m.IntN(5))
	m.maybe(o, "repetition_penalty", 1.2)
	return "/v1/completions", o
}

func (m *maker) completions() (string, object) {
	return "/v1/completions", object{"prompt": []string{m.words(9), m.words(3), m.systems[0]}, "n": 1 + m.IntN(2), "max_tokens": 3 + m.IntN(8)}
}

func (m *maker) score() (string, object) {
	return "/v1/completions", object{"prompt": m.words(30), "echo": true, "logprobs": 2, "max_tokens": m.IntN(2) * 5}
}

func (m *maker) middle() (string, object) {
	return "/v1/completions", object{"prompt": "In the beginning " + m.words(4), "suffix": m.words(6), "max_tokens": 12}
}

func (m *maker) messages() (string, object) {
	o := object{"model": "claude-any", "system": m.systems[m.IntN(len(m.systems))], "messages": m.conversation(false), "max_tokens": 4 + m.IntN(28)}
	m.maybe(o, "stop_sequences", m.stops())
	m.maybe(o, "thinking", object{"type": "enabled", "budget_tokens": 1024})
	return "/v1/messages", o
}

func (m *maker) messagesTools() (string, object) {
	return "/v1/messages", object{
		"model": "claude-any", "messages": m.conversation(false), "max_tokens": 90,
		"tools":       []object{{"name": "weather", "description": "The weather.", "input_schema": parameters, "strict": true}},
		"tool_choice": object{"type": []string{"auto", "any"}[m.IntN(2)]},
	}
}

func (m *maker) responses() (string, object) {
	o := object{"input": m.words(8 + m.IntN(20)), "instructions": m.systems[m.IntN(len(m.systems))], "max_output_tokens": 16 + m.IntN(16)}
	m.maybe(o, "reasoning", object{"effort": "high"})
	return "/v1/responses", o
}

func (m *maker) responsesForm() (string, object) {
	return "/v1/responses", object{
		"input": m.words(6), "max_output_tokens": 60,
		"text": object{"format": object{"type": "json_schema", "name": "answer", "schema": parameters}},
	}
}

// session is a conversation of its own that grows: turns to be asked one after the other.
func session(n int, seed uint64) []string {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 1<<32+uint64(n)))}
	turns := []string{fmt.Sprintf("Session %d. %s", n, m.words(40))}
	for range 4 {
		turns = append(turns, m.words(20))
	}
	return turns
}
