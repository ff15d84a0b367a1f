package openai

import (
	"encoding/json"
	"math"
	"net/http"
	"time"

	"cedrun/runtime/engine"
	"cedrun/runtime/grammar"
	"cedrun/runtime/prompt"
	"cedrun/runtime/sample"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/wire"
	"cedrun/runtime/tokenizer"
)

// API answers calls by a Runner.
type API struct {
	Runner *job.Runner
	Strict bool // fields without a meaning here are refused
}

// maxChoices bounds n, as the API does.
const maxChoices = 128

// WriteError writes an error in this dialect.
func WriteError(w http.ResponseWriter, e *wire.Error, _ string) {
	e.Head(w.Header())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	data, _ := wire.Marshal(failure(e)) // strings only
	_, _ = w.Write(append(data, '\n'))
}

type failed struct {
	Error errorBody `json:"error"`
}

type errorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func failure(e *wire.Error) failed {
	kind := "invalid_request_error"
	switch {
	case e.Status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case e.Status >= 500:
		kind = "server_error"
	}
	return failed{errorBody{Message: e.Message, Type: kind, Param: optional(e.Param), Code: optional(e.Code)}}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// usage counts tokens. The hit and miss fields are DeepSeek's.
type usage struct {
	Prompt     int               `json:"prompt_tokens"`
	Completion int               `json:"completion_tokens"`
	Total      int               `json:"total_tokens"`
	Hit        int               `json:"prompt_cache_hit_tokens"`
	Miss       int               `json:"prompt_cache_miss_tokens"`
	PromptPart promptDetails     `json:"prompt_tokens_details"`
	Written    completionDetails `json:"completion_tokens_details"`
}

type promptDetails struct {
	Cached  int `json:"cached_tokens"`
	Written int `json:"cache_write_tokens"` // always 0: writing is not charged
}

type completionDetails struct {
	Reasoning int `json:"reasoning_tokens"`
}

func newUsage(c *wire.Call, u job.Usage) *usage {
	c.Note.Prompt, c.Note.Cached, c.Note.Written = u.Prompt, u.Cached, u.Written
	return &usage{
		Prompt: u.Prompt, Completion: u.Written, Total: u.Prompt + u.Written, Hit: u.Cached, Miss: u.Prompt - u.Cached,
		PromptPart: promptDetails{Cached: u.Cached}, Written: completionDetails{u.Reasoning},
	}
}

// head is what all responses begin with.
type head struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     int64  `json:"created"`
	Model       string `json:"model"`
	Fingerprint string `json:"system_fingerprint,omitempty"`
}

func (a *API) head(c *wire.Call, prefix, object string) head {
	m := a.Runner.Model
	return head{prefix + c.ID, object, time.Now().Unix(), m.ID(), m.Fingerprint}
}

// common reads the fields that all three dialects share.
func (a *API) common(f *wire.Fields) (s job.Spec) {
	var name string
	f.String("model", &name)
	if err := a.Runner.Model.Check(name); err != nil {
		f.FailWith(err)
	}
	s.Sampling = a.Runner.Model.ReadSampling(f)
	s.Cache, s.Caller = a.Runner.Model.ReadCache(f)
	f.Int("priority", &s.Priority, -job.MaxPriority, job.MaxPriority)
	s.MaxTokens = -1
	f.Ignore("user", "user_id", "safety_identifier", "metadata", "store", "service_tier", "prompt_cache_retention")
	return s
}

// owner is whose conversations a call may continue: the caller's, apart by what it gave to set them apart.
func owner(c *wire.Call, salt string) string { return c.Caller + "\x00" + salt }

// readFormat reads the format of the content; nested says that the schema is within "json_schema", as in chat completions.
func readFormat(f *wire.Fields, name string, nested bool, form *job.Form) {
	o := f.Object(name)
	if o == nil {
		return
	}
	kind := ""
	o.String("type", &kind)
	switch kind {
	case "text", "":
	case "json_object":
		form.Format, form.At = grammar.Object, f.Name(name)
	case "json_schema":
		if nested {
			if o = o.Object("json_schema"); o == nil {
				f.Fail(name, "of type json_schema needs json_schema, an object with the schema")
				return
			}
		}
		if form.Schema = o.Raw("schema"); form.Schema == nil {
			o.Fail("schema", "is missing")
		}
		o.Ignore("name", "strict", "description")
		form.Format, form.At = grammar.Schema, o.Name("schema")
	default:
		o.Fail("type", "must be text, json_object or json_schema, not %q", wire.Clip(kind))
	}
}

// readTools checks function tools and keeps them as the client wrote them. Names are unique; names tells which are strict.
func readTools(f *wire.Fields) (tools []json.RawMessage, names map[string]bool) {
	names = map[string]bool{}
	for i, raw := range f.List("tools") {
		t := f.Item("tools", i, raw)
		if t == nil {
			return nil, names
		}
		kind, name := "function", ""
		t.String("type", &kind)
		if kind != "function" {
			t.FailWith(wire.Unsupported(t.Name("type"), "%s: tools of type %q are not possible here, only functions", t.Name("type"), wire.Clip(kind)))
			return nil, names
		}
		t.Ignore("namespace")
		fn := t.Object("function")
		if fn == nil {
			t.Fail("function", "is missing")
			return nil, names
		}
		fn.Ignore("description", "parameters", "namespace")
		strict := false
		fn.Bool("strict", &strict)
		if !fn.String("name", &name) || name == "" {
			fn.Fail("name", "is missing")
		}
		if _, twice := names[name]; twice {
			fn.Fail("name", "is given to two tools: %q", wire.Clip(name))
		}
		names[name] = strict
		tools = append(tools, raw)
	}
	return tools, names
}

// toolChoice is auto, none, required, or the name of a function.
type toolChoice struct{ kind, name string }

// readToolChoice reads tool_choice; nested says that the name is within "function", as in chat completions.
func readToolChoice(f *wire.Fields, nested bool) (t toolChoice) {
	raw := f.Raw("tool_choice")
	if raw == nil {
		return toolChoice{kind: "auto"}
	}
	if json.Unmarshal(raw, &t.kind) == nil {
		switch t.kind {
		case "auto", "none", "required":
		default:
			f.Fail("tool_choice", "must be auto, none, required or a function, not %q", wire.Clip(t.kind))
		}
		return t
	}
	o := f.Object("tool_choice")
	if o == nil {
		return t
	}
	o.String("type", &t.kind)
	if t.kind != "function" {
		o.Fail("type", "must be function, not %q", wire.Clip(t.kind))
		return t
	}
	t.kind = "named"
	if nested {
		if o = o.Object("function"); o == nil {
			f.Fail("tool_choice", "needs a function")
			return t
		}
	}
	if !o.String("name", &t.name) {
		o.Fail("name", "is missing")
	}
	return t
}

// apply makes the prompt and the form do what the choice says.
func (t toolChoice) apply(f *wire.Fields, o *prompt.Options, form *job.Form, names map[string]bool) {
	form.Strict = names
	_, known := names[t.name]
	switch {
	case t.kind == "none":
		o.Tools = nil
	case t.kind != "required" && t.kind != "named":
	case len(names) == 0:
		f.Fail("tool_choice", "is %s, and there are no tools", t.kind)
	case t.kind == "named" && !known:
		f.Fail("tool_choice", "names the function %q, which is not among the tools", wire.Clip(t.name))
	default:
		form.Require, form.Name = true, t.name
	}
}

// logprob is a token's log-probability under the model.
type logprob struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"` // of the token, which need not be whole characters
}

type tokenLogprob struct {
	logprob
	Top []logprob `json:"top_logprobs"`
}

func newLogprobs(tok *tokenizer.Tokenizer, tokens []engine.Token) []tokenLogprob {
	out := make([]tokenLogprob, len(tokens))
	for i, t := range tokens {
		out[i] = tokenLogprob{one(tok, sample.Choice{ID: int(t.ID), Logprob: t.Logprob}), []logprob{}}
		for _, c := range t.Top {
			out[i].Top = append(out[i].Top, one(tok, c))
		}
	}
	return out
}

func one(tok *tokenizer.Tokenizer, c sample.Choice) logprob {
	s := tok.Token(c.ID)
	l := logprob{Token: tok.Decode([]int32{int32(c.ID)}), Bytes: make([]int, len(s)), Logprob: finite(c.Logprob)}
	for i := range len(s) {
		l.Bytes[i] = int(s[i])
	}
	return l
}

// finite is a number that JSON can hold, for tokens that the model rules out.
func finite(x float64) float64 { return max(x, -math.MaxFloat32) }
