package serve_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"cedrun/runtime/engine"
	"cedrun/runtime/serve"
	"cedrun/runtime/serve/job"
)

const chatPath, messagesPath, responsesPath, completionsPath = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"

// minimal is a request that would be answered.
func minimal(path string, more object) object {
	o := map[string]object{
		chatPath: {"messages": user("x"), "max_tokens": 1}, messagesPath: {"messages": user("x"), "max_tokens": 1},
		responsesPath: {"input": "x", "max_output_tokens": 1}, completionsPath: {"prompt": "x", "max_tokens": 1},
		"/tokenize": {"prompt": "x"}, "/detokenize": {"tokens": []int{5}},
	}[path]
	return merged(o, more)
}

// refused checks that an answer is an error in its dialect's shape.
func refused(t *testing.T, path string, code int, o object, status int, param, want string) {
	t.Helper()
	message := text(o, "error", "message")
	if code != status || !strings.Contains(message, want) {
		t.Errorf("status %d, %q; want %d and %q", code, message, status, want)
	}
	if strings.Contains(message, "\n") || strings.Contains(message, "goroutine") {
		t.Errorf("more than one sentence: %q", message)
	}
	if strings.Contains(path, "messages") {
		if o["type"] != "error" || text(o, "error", "type") == "" || text(o, "request_id") == "" || len(o["error"].(map[string]any)) != 2 {
			t.Errorf("no error of Anthropic's: %v", o)
		}
		return
	}
	e, _ := o["error"].(map[string]any)
	if len(o) != 1 || len(e) != 4 || text(e, "type") == "" {
		t.Errorf("no error of OpenAI's: %v", o)
	}
	if param != "" && text(e, "param") != param {
		t.Errorf("param %q, want %q", text(e, "param"), param)
	}
}

func TestABadRequestIsRefusedWithTheFieldThatIsWrong(t *testing.T) {
	s := start(t, setup{engine: says(t, "Yes.")})
	tools := []object{{"type": "function", "function": object{"name": "f"}}}
	seventeen := strings.Split(strings.Repeat("x,", 16)+"x", ",")
	for _, c := range []struct {
		path   string
		more   object
		status int
		param  string
		want   string
	}{
		{chatPath, object{"model": "gpt-9"}, 404, "model", `the model "gpt-9" is not served here; use "demo"`},
		{chatPath, object{"messages": nil}, 400, "messages", "messages is missing"},
		{chatPath, object{"messages": []object{}}, 400, "messages", "missing or empty"},
		{chatPath, object{"messages": "x"}, 400, "messages", "must be a list"},
		{chatPath, object{"messages": []object{{"role": "boss", "content": "x"}}}, 400, "messages[0]", `role "boss"`},
		{chatPath, object{"messages": []object{{"role": "user", "content": []object{{"type": "image_url", "image_url": object{"url": "data:"}}}}}}, 400, "messages", "reads text only"},
		{chatPath, object{"messages": []object{{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}}}, 400, "messages", "nothing to write"},
		{chatPath, object{"messages": []object{{"role": "tool", "content": "x", "tool_call_id": "a"}}}, 400, "messages[0]", "does not make"},
		{chatPath, object{"messages": []object{{"role": "tool", "content": "x"}}}, 400, "messages[0]", "without tool_call_id"},
		{chatPath, object{"temperature": 9}, 400, "temperature", "from 0 to 5"},
		{chatPath, object{"temperature": "warm"}, 400, "temperature", "must be a number"},
		{chatPath, object{"top_p": 0}, 400, "", "top_p"},
		{chatPath, object{"presence_penalty": 3}, 400, "presence_penalty", "from -2 to 2"},
		{chatPath, object{"logit_bias": object{"x": 1}}, 400, "logit_bias", "token ids"},
		{chatPath, object{"seed": 1.5}, 400, "seed", "must be an integer"},
		{chatPath, object{"max_tokens": 0}, 400, "max_tokens", "1"},
		{chatPath, object{"n": 0}, 400, "n", "from 1"},
		{chatPath, object{"n": 100}, 400, "n", "runs 4 and queues 64"},
		{chatPath, object{"stop": seventeen}, 400, "stop", "at most 16"},
		{chatPath, object{"stop": ""}, 400, "stop", "empty"},
		{chatPath, object{"stop": 5}, 400, "stop", "must be a string or a list"},
		{chatPath, object{"top_logprobs": 2}, 400, "top_logprobs", "needs logprobs"},
		{chatPath, object{"logprobs": true, "top_logprobs": 21}, 400, "top_logprobs", "from 0 to 20"},
		{chatPath, object{"stream_options": object{}}, 400, "stream_options", "needs stream"},
		{chatPath, object{"response_format": object{"type": "json_schema"}}, 400, "response_format", "needs json_schema"},
		{chatPath, object{"response_format": object{"type": "json_schema", "json_schema": object{"name": "x"}}}, 400, "response_format.json_schema.schema", "is missing"},
		{chatPath, object{"response_format": object{"type": "json_schema", "json_schema": object{"schema": object{"properties": object{"a": object{"not": object{}}}}}}}, 400, "response_format.json_schema.schema", `at #/properties/a/not: the keyword "not" is not supported`},
		{chatPath, object{"response_format": object{"type": "json_schema", "json_schema": object{"schema": false}}}, 400, "response_format.json_schema.schema", "no value matches"},
		{chatPath, object{"response_format": object{"type": "json_object"}, "messages": []object{{"role": "user", "content": "x"}, {"role": "assistant", "content": "{", "prefix": true}}}, 400, "messages", "does not go with"},
		{chatPath, object{"tools": []object{{"type": "function", "function": object{"name": "f", "strict": true, "parameters": object{"type": "object", "properties": object{"a": object{"uniqueItems": true}}}}}}}, 400, "tools", `tool "f": at #/properties/a/uniqueItems`},
		{chatPath, object{"tools": []object{{"type": "function", "function": object{"name": "f", "strict": 1}}}}, 400, "tools[0].function.strict", "true or false"},
		{chatPath, object{"response_format": object{"type": "xml"}}, 400, "response_format.type", "must be text"},
		{chatPath, object{"tools": []object{{"type": "web"}}}, 400, "tools[0].type", "only functions"},
		{chatPath, object{"tools": []object{tools[0], tools[0]}}, 400, "tools[1].function.name", "two tools"},
		{chatPath, object{"tool_choice": "required"}, 400, "tool_choice", "there are no tools"},
		{chatPath, object{"tool_choice": "must", "tools": tools}, 400, "tool_choice", "must be auto"},
		{chatPath, object{"tool_choice": object{"type": "function", "function": object{"name": "g"}}, "tools": tools}, 400, "tool_choice", "not among the tools"},
		{chatPath, object{"thinking": object{"type": "maybe"}}, 400, "thinking.type", "must be enabled"},
		{chatPath, object{"thinking": true}, 400, "thinking", "must be an object"},
		{chatPath, object{"reasoning_effort": 0}, 400, "reasoning_effort", "from 1 to 100, not 0"},
		{chatPath, object{"reasoning_effort": 101}, 400, "reasoning_effort", "not 101"},
		{chatPath, object{"reasoning_effort": true}, 400, "reasoning_effort", "not true"},
		{chatPath, object{"reasoning_effort": "hard"}, 400, "reasoning_effort", `not "hard"`},
		{chatPath, object{"reasoning_effort": 1.5}, 400, "reasoning_effort", "not 1.5"},
		{chatPath, object{"functions": []object{}}, 400, "functions", "use tools"},
		{chatPath, object{"modalities": []string{"audio"}}, 400, "modalities", "text only"},
		{chatPath, object{"cache": "never"}, 400, "cache", "snapshot, replay or off"},
		{completionsPath, object{"prompt": nil}, 400, "prompt", "must be a text"},
		{completionsPath, object{"prompt": []any{1, "x"}}, 400, "prompt", "entry 0"},
		{completionsPath, object{"prompt": []int{999999}}, 400, "prompt", "999999"},
		{completionsPath, object{"prompt": []int{5}, "suffix": "x"}, 400, "suffix", "must be text"},
		{completionsPath, object{"prompt": "", "add_special_tokens": false}, 400, "prompt", "empty"},
		{completionsPath, object{"best_of": 3}, 400, "best_of", "only the value of n"},
		{completionsPath, object{"max_tokens": 0}, 400, "max_tokens", "1"},
		{completionsPath, object{"logprobs": 21}, 400, "logprobs", "from 0 to 20"},
		{messagesPath, object{"max_tokens": nil}, 400, "", "max_tokens is missing"},
		{messagesPath, object{"model": "gpt-9"}, 404, "", "not served here"},
		{messagesPath, object{"messages": []object{{"role": "user", "content": []object{{"type": "image"}}}}}, 400, "", "messages[0].content[0].type"},
		{messagesPath, object{"messages": []object{{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": "a"}}}}}, 400, "", "names no tool_use"},
		{messagesPath, object{"messages": []object{{"role": "robot", "content": "x"}}}, 400, "", "must be user, assistant"},
		{messagesPath, object{"tools": []object{{"type": "web_search_20250305", "name": "w"}}}, 400, "", "run by a server"},
		{messagesPath, object{"tool_choice": object{"type": "any"}}, 400, "", "there are no tools"},
		{messagesPath, object{"output_config": object{"format": object{"type": "json_object"}}}, 400, "", "output_config.format.type must be json_schema"},
		{messagesPath, object{"output_config": object{"format": object{"type": "json_schema", "schema": object{"if": true}}}}, 400, "", `output_config.format.schema: at #/if: the keyword "if" is not supported`},
		{responsesPath, object{"text": object{"format": object{"type": "json_schema", "schema": object{"if": true}}}}, 400, "text.format.schema", `the keyword "if" is not supported`},
		{messagesPath, object{"stop_sequences": seventeen}, 400, "", "at most 16"},
		{messagesPath, object{"mcp_servers": []object{}}, 400, "", "runs no tools"},
		{responsesPath, object{"input": nil}, 400, "input", "is missing"},
		{responsesPath, object{"previous_response_id": "resp_1"}, 400, "previous_response_id", "keeps no responses"},
		{responsesPath, object{"background": true}, 400, "background", "at once"},
		{responsesPath, object{"input": []object{{"type": "computer_call"}}}, 400, "input[0].type", "not possible"},
		{responsesPath, object{"input": []object{{"type": "function_call_output", "call_id": "a", "output": "x"}}}, 400, "input[0].call_id", "names no function_call"},
		{responsesPath, object{"text": object{"format": object{"type": "json_schema", "name": "x"}}}, 400, "text.format.schema", "is missing"},
		{responsesPath, object{"input": []object{{"role": "assistant", "content": "done"}}}, 400, "input", "input: the last one is a complete answer"},
		{"/tokenize", object{"prompt": nil}, 400, "prompt", "give prompt or messages"},
		{"/detokenize", object{"tokens": "x"}, 400, "tokens", "list of token ids"},
		{"/detokenize", object{"tokens": []int{-1}}, 400, "tokens", "does not know"},
	} {
		t.Run(c.path+" "+c.want, func(t *testing.T) {
			code, o := s.call(c.path, minimal(c.path, c.more))
			refused(t, c.path, code, o, c.status, c.param, c.want)
			if c.param == "stream_options" {
				return
			}
			code, o = s.call(c.path, minimal(c.path, merged(object{"stream": true}, c.more)))
			refused(t, c.path, code, o, c.status, c.param, c.want) // before a stream begins
		})
	}
	for _, path := range []string{chatPath, messagesPath, responsesPath, completionsPath, "/tokenize", "/detokenize"} {
		for body, want := range map[string]string{"": "no body", "{": "not JSON", "[]": "must be a JSON object", "null": "must be a JSON object", `{"a":tru}`: "not JSON"} {
			code, o := s.call(path, body)
			refused(t, path, code, o, 400, "", want)
		}
		if code, o := s.call(path, minimal(path, object{"user_name": "x"})); code != 200 {
			t.Errorf("%s with an unknown field: %d %v", path, code, o)
		}
	}
}

func TestStrictRefusesFieldsWithoutAMeaning(t *testing.T) {
	s := start(t, setup{engine: says(t, "Yes."), options: serve.Options{Strict: true}})
	for _, path := range []string{chatPath, messagesPath, responsesPath, completionsPath, "/tokenize", "/detokenize"} {
		code, o := s.call(path, minimal(path, object{"temprature": 1}))
		refused(t, path, code, o, 400, "temprature", `unknown field "temprature"`)
		if code, o := s.call(path, minimal(path, nil)); code != 200 {
			t.Errorf("%s: %d %v", path, code, o)
		}
	}
	code, o := s.call(chatPath, minimal(chatPath, object{"stream": true, "stream_options": object{"usage": true}}))
	refused(t, chatPath, code, o, 400, "stream_options.usage", "unknown field")
	if code, o := s.call(chatPath, minimal(chatPath, object{"user": "u", "metadata": object{}, "parallel_tool_calls": true, "store": false})); code != 200 {
		t.Errorf("fields documented as ignored: %d %v", code, o)
	}
}

func TestAPromptThatIsTooLongIsRefusedWithNumbers(t *testing.T) {
	s := start(t, setup{})
	long := strings.Repeat("word and ", contextSize)
	for _, path := range []string{chatPath, messagesPath, responsesPath, completionsPath} {
		more := map[string]object{
			chatPath: {"messages": user(long)}, messagesPath: {"messages": user(long)}, responsesPath: {"input": long}, completionsPath: {"prompt": long},
		}[path]
		code, o := s.call(path, minimal(path, more))
		refused(t, path, code, o, 400, "", fmt.Sprintf("this server's context holds %d", contextSize))
		if path == chatPath && text(o, "error", "code") != "context_length_exceeded" {
			t.Errorf("code %q", text(o, "error", "code"))
		}
	}
	// What is asked for beyond the context is cut to it.
	almost := make([]int, contextSize-3)
	for i := range almost {
		almost[i] = 300 + i%50
	}
	o := s.must(completionsPath, object{"prompt": almost, "max_tokens": 5000})
	if number(o, "usage", "completion_tokens") != 3 || text(o, "choices", 0, "finish_reason") != "length" {
		t.Errorf("%v", o["usage"])
	}
}

func TestHTTPErrorsHaveTheShapeOfTheDialect(t *testing.T) {
	s := start(t, setup{engine: says(t, "Yes."), options: serve.Options{MaxBody: 2000, BodyTime: 200 * time.Millisecond}})
	do := func(method, path, kind, body string) (*http.Response, object) {
		t.Helper()
		q, _ := http.NewRequest(method, s.URL+path, strings.NewReader(body))
		if kind != "" {
			q.Header.Set("Content-Type", kind)
		}
		resp, err := s.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var o object
		data, _ := io.ReadAll(resp.Body)
		decode(t, string(data), &o)
		return resp, o
	}
	for _, c := range []struct {
		method, path, kind, body string
		status                   int
		want                     string
	}{
		{"GET", "/v1/nothing", "", "", 404, "nothing at /v1/nothing"},
		{"GET", "/v1/models/gpt-9", "", "", 404, "not served here"},
		{"GET", chatPath, "", "", 405, "takes POST"},
		{"POST", "/v1/models", "application/json", "{}", 405, "takes GET"},
		{"GET", messagesPath, "", "", 405, "takes POST"},
		{"POST", chatPath, "", "{}", 415, "Content-Type: application/json"},
		{"POST", messagesPath, "text/plain", "{}", 415, "Content-Type: application/json"},
		{"POST", chatPath, "application/json", `{"a":"` + strings.Repeat("x", 3000) + `"}`, 413, "more than 2000 bytes"},
		{"POST", messagesPath, "application/json", `{"a":"` + strings.Repeat("x", 3000) + `"}`, 413, "more than 2000 bytes"},
	} {
		resp, o := do(c.method, c.path, c.kind, c.body)
		refused(t, c.path, resp.StatusCode, o, c.status, "", c.want)
		if c.status == 405 && resp.Header.Get("Allow") == "" {
			t.Error("405 without Allow")
		}
	}
	if resp, _ := do("POST", chatPath, "application/json; charset=utf-8", `{"messages":[{"role":"user","content":"x"}]}`); resp.StatusCode != 200 {
		t.Errorf("a content type with a parameter: %d", resp.StatusCode)
	}

	// A client that does not send what it announced gets an answer, and its connection back.
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", chatPath)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	data, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(data), "HTTP/1.1 408") {
		t.Errorf("a slow body: %q", data)
	}
}

func TestAFailureOfTheServerSaysNothingOfItsInside(t *testing.T) {
	for name, e := range map[string]job.Engine{"panic": panics{}, "error": fails{}} {
		for _, path := range []string{chatPath, messagesPath, responsesPath, completionsPath} {
			s := start(t, setup{engine: e})
			code, o := s.call(path, minimal(path, nil))
			refused(t, path, code, o, 500, "", "the server failed")
			es := s.stream(path, minimal(path, nil))
			last := es[len(es)-1]
			if !strings.Contains(last.data, "the server failed") || strings.Contains(last.data, "secret") || last.data == "[DONE]" {
				t.Errorf("%s %s: the stream ends in %q", name, path, last.data)
			}
			if !strings.Contains(s.log.String(), "secret") {
				t.Errorf("%s %s: the log does not say why: %s", name, path, s.log)
			}
			if _, o := s.call("/ready", nil); text(o, "status") != "ready" || number(o, "running")+number(o, "waiting") != 0 {
				t.Errorf("after it: %v", o)
			}
		}
	}
}

// A device without memory for a request, and one that failed, are the server's trouble, not the request's: the client may
// come again.
func TestTroubleWithTheDeviceIsA503(t *testing.T) {
	for code, reason := range map[string]error{"out_of_memory": engine.ErrNoMemory, "device_failed": engine.ErrDevice} {
		s := start(t, setup{engine: ends{fmt.Errorf("%w: a secret", reason)}})
		for _, path := range []string{chatPath, completionsPath} {
			status, o := s.call(path, minimal(path, nil))
			refused(t, path, status, o, 503, "", "the device")
			if got := text(o, "error", "code"); got != code {
				t.Errorf("%s: code %q, want %q", path, got, code)
			}
		}
	}
}

// ends is an engine whose requests end with an error.
type ends struct{ err error }

func (ends) Load() engine.Load { return engine.Load{} }

func (e ends) Submit(context.Context, engine.Request) (job.Generation, error) { return e, nil }

func (ends) Next(context.Context) (engine.Token, bool) { return engine.Token{}, false }

func (e ends) Result() engine.Result { return engine.Result{Finish: engine.FinishError, Err: e.err} }

type panics struct{}

func (panics) Load() engine.Load { return engine.Load{} }

func (panics) Submit(context.Context, engine.Request) (job.Generation, error) { panic("a secret") }

type fails struct{}

func (fails) Load() engine.Load { return engine.Load{} }

func (fails) Submit(context.Context, engine.Request) (job.Generation, error) { return fails{}, nil }

func (fails) Next(context.Context) (engine.Token, bool) { return engine.Token{}, false }

func (fails) Result() engine.Result {
	return engine.Result{Finish: engine.FinishError, Err: fmt.Errorf("step: a secret")}
}
