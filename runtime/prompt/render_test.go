package prompt

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cedrun/runtime/tokenizer"
)

type encodeCase struct {
	Name     string          `json:"name"`
	Messages json.RawMessage `json:"messages"`
	Kwargs   struct {
		ThinkingMode string          `json:"thinking_mode"`
		DropThinking *bool           `json:"drop_thinking"`
		Effort       json.RawMessage `json:"reasoning_effort"`
	} `json:"kwargs"`
	Prompt     string  `json:"prompt"`
	TokenIDs   []int32 `json:"token_ids"`
	Recognised []int32 `json:"token_ids_if_added_tokens_were_recognised_in_user_text"`
	Error      string  `json:"error"`
}

type strictCase struct {
	Name         string         `json:"name"`
	Text         string         `json:"text"`
	ThinkingMode string         `json:"thinking_mode"`
	Result       *strictMessage `json:"result"`
	Error        string         `json:"error"`
}

type strictMessage struct {
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content"`
	ToolCalls []struct {
		Function namedArguments `json:"function"`
	} `json:"tool_calls"`
}

type namedArguments struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type encodingAnswers struct {
	Encode      []encodeCase `json:"encode"`
	ParseStrict []strictCase `json:"parse_strict"`
}

func readAnswers(tb testing.TB, name string, to any) {
	tb.Helper()
	data, err := os.ReadFile("../../testdata/prompt/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(to); err != nil {
		tb.Fatal(err)
	}
}

func encodings(tb testing.TB) encodingAnswers {
	var a encodingAnswers
	readAnswers(tb, "encoding_kat.json", &a)
	if len(a.Encode) == 0 || len(a.ParseStrict) == 0 {
		tb.Fatal("no known answers")
	}
	return a
}

var loadTokenizer = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
	return tokenizer.Load("../../testdata/tokenizer/tokenizer.json")
})

func releaseTokenizer(tb testing.TB) *tokenizer.Tokenizer {
	tb.Helper()
	tok, err := loadTokenizer()
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

// render is what a program does with a messages file and the arguments of the case.
func (c encodeCase) render() (*Prompt, error) {
	conversation, err := ParseMessages(c.Messages)
	if err != nil {
		return nil, err
	}
	o := Options{Thinking: c.Kwargs.ThinkingMode == "thinking", Keep: c.Kwargs.DropThinking != nil && !*c.Kwargs.DropThinking}
	if o.Effort, err = EffortFromJSON(c.Kwargs.Effort); err != nil {
		return nil, err
	}
	return Render(conversation.Messages, o)
}

func TestKnownPrompts(t *testing.T) {
	tok := releaseTokenizer(t)
	for _, c := range encodings(t).Encode {
		t.Run(c.Name, func(t *testing.T) {
			p, err := c.render()
			if c.Error != "" {
				if err == nil {
					t.Fatalf("accepted; the official script raises %s", c.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.Prompt, p.String()); diff != "" {
				t.Errorf("prompt (-want +got):\n%s", diff)
			}
			ids, err := p.Encode(tok)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(c.TokenIDs, ids) {
				t.Errorf("ids:\nwant %d\n got %d", c.TokenIDs, ids)
			}
			recognised := tok.Encode(p.String(), tokenizer.Options{AddedTokens: true})
			if c.Recognised == nil && !slices.Equal(recognised, ids) {
				t.Error("the ids of a benign prompt differ from those of its whole string")
			}
			if c.Recognised != nil && !slices.Equal(c.Recognised, recognised) {
				t.Error("the case is not the injection that it says to be")
			}
		})
	}
}

func TestSegmentsAlternate(t *testing.T) {
	for _, c := range encodings(t).Encode {
		p, err := c.render()
		if err != nil {
			continue
		}
		for i, s := range p.Segments {
			if s.Text == "" || i > 0 && !s.Control && !p.Segments[i-1].Control {
				t.Errorf("%s: segment %d is empty or follows text", c.Name, i)
			}
		}
	}
}

func TestStartComesFromThePrompt(t *testing.T) {
	for _, c := range []struct {
		name, messages string
		o              Options
		want           Start
		ends           string
	}{
		{"chat", `[{"role":"user","content":"U"}]`, Options{}, Start{}, "<｜Assistant｜></think>"},
		{"thinking", `[{"role":"user","content":"U"}]`, Options{Thinking: true}, Start{Reasoning: true}, "<｜Assistant｜><think>"},
		{"content prefix", `[{"role":"user","content":"U"},{"role":"assistant","content":"A","prefix":true}]`,
			Options{}, Start{Continues: true}, "</think>A"},
		{"content prefix after reasoning", `[{"role":"user","content":"U"},{"role":"assistant","reasoning_content":"R","content":"A","prefix":true}]`,
			Options{Thinking: true}, Start{Continues: true}, "<think>R</think>A"},
		{"reasoning prefix", `[{"role":"user","content":"U"},{"role":"assistant","reasoning_content":"R","content":"","prefix":true}]`,
			Options{Thinking: true}, Start{Reasoning: true, Continues: true}, "<think>R"},
		{"empty prefix", `[{"role":"user","content":"U"},{"role":"assistant","content":"","prefix":true}]`,
			Options{Thinking: true}, Start{}, "<think></think>"},
		{"required tool", `[{"role":"user","content":"U"}]`, Options{RequireTool: true},
			Start{Prefill: "\n\n<｜DSML｜ calls>\n"}, "</think>\n\n<｜DSML｜ calls>\n"},
		{"named tool", `[{"role":"user","content":"U"}]`, Options{RequireTool: true, ToolName: "f"},
			Start{Prefill: "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"}, "<｜DSML｜ invoke name=\"f\">\n"},
		{"reminder", `[{"role":"user","content":"U"},{"role":"latest_reminder","content":"L"}]`, Options{Thinking: true},
			Start{Reasoning: true}, "<｜Assistant｜><think><｜latest_reminder｜>L"},
		{"task", `[{"role":"user","content":"U","task":"title"}]`, Options{Thinking: true}, Start{}, "<｜title｜>"},
		{"keep opens a new turn", `[{"role":"user","content":"U"},{"role":"assistant","content":"A"}]`,
			Options{Thinking: true, Keep: true}, Start{Reasoning: true}, "A<｜end▁of▁sentence｜><｜Assistant｜><think>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conversation, err := ParseMessages([]byte(c.messages))
			if err != nil {
				t.Fatal(err)
			}
			p, err := Render(conversation.Messages, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if p.Start() != c.want || p.Finished() {
				t.Errorf("start %+v, finished %v; want %+v", p.Start(), p.Finished(), c.want)
			}
			if !strings.HasSuffix(p.String(), c.ends) {
				t.Errorf("prompt ends otherwise than with %q: %q", c.ends, p)
			}
		})
	}
	p, err := Render([]Message{{Role: "user"}, {Role: "assistant", Content: Text("done")}}, Options{})
	if err != nil || !p.Finished() {
		t.Errorf("finished conversation: %v, error %v", p.Finished(), err)
	}
}

func TestToolsOfTheConversationNeedNoSystemMessage(t *testing.T) {
	for _, c := range encodings(t).Encode {
		if !strings.HasPrefix(c.Name, "decision_S3") {
			continue
		}
		conversation, err := ParseMessages(c.Messages)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Thinking: c.Kwargs.ThinkingMode == "thinking", Tools: conversation.Messages[0].Tools}
		p, err := Render(conversation.Messages[1:], o)
		if err != nil || p.String() != c.Prompt {
			t.Errorf("%s: tools as an option: error %v, prompt %q", c.Name, err, p)
		}
		if p, err = Render([]Message{{Role: "system"}, conversation.Messages[1]}, o); err != nil || p.String() != c.Prompt {
			t.Errorf("%s: tools for an empty system message: error %v", c.Name, err)
		}
		if _, err = Render(conversation.Messages, o); err == nil {
			t.Errorf("%s: tools given twice are accepted", c.Name)
		}
	}
}

func TestToolsThatTheModelDoesNotSeeAreReported(t *testing.T) {
	for _, c := range encodings(t).Encode {
		p, err := c.render()
		if err != nil {
			continue
		}
		if ignored := strings.HasPrefix(c.Name, "tools_on_user_ignored"); ignored != (len(p.Warnings) == 1) {
			t.Errorf("%s: warnings %q", c.Name, p.Warnings)
		}
	}
}

func TestContextIsNotRenderedAgain(t *testing.T) {
	for _, c := range encodings(t).Encode {
		whole, err := c.render()
		if err != nil {
			continue
		}
		conversation, _ := ParseMessages(c.Messages)
		for n := 1; n < len(conversation.Messages); n++ {
			before, after := conversation.Messages[:n], conversation.Messages[n:]
			if after[0].Role == "tool" || after[0].Role == "user" && before[n-1].Role != "assistant" {
				continue // would be merged with the message before
			}
			o := Options{Thinking: c.Kwargs.ThinkingMode == "thinking", Context: before,
				Keep: c.Kwargs.DropThinking != nil, Effort: whole.effort(t)}
			rest, err := Render(after, o)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			if !strings.HasSuffix(whole.String(), rest.String()) || strings.Contains(rest.String(), BOS) {
				t.Errorf("%s split at %d: %q is not the end of %q", c.Name, n, rest, whole)
			}
		}
	}
}

func (p *Prompt) effort(tb testing.TB) int {
	_, after, found := strings.Cut(p.String(), "Reasoning Effort: ")
	if !found {
		return 0
	}
	digits, _, _ := strings.Cut(after, " ")
	n, err := ParseEffort(digits)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func TestRenderDoesNotChangeMessages(t *testing.T) {
	for _, c := range encodings(t).Encode {
		conversation, err := ParseMessages(c.Messages)
		if err != nil {
			continue
		}
		again, _ := ParseMessages(c.Messages)
		o := Options{Thinking: true, ResponseFormat: json.RawMessage(`{"type":"json_object"}`)}
		first, err := Render(conversation.Messages, o)
		if err != nil {
			continue
		}
		second, err := Render(conversation.Messages, o)
		if err != nil || first.String() != second.String() {
			t.Errorf("%s: rendered twice: error %v", c.Name, err)
		}
		if diff := cmp.Diff(again.Messages, conversation.Messages); diff != "" {
			t.Errorf("%s: %s", c.Name, diff)
		}
	}
}

func TestUnusableConversations(t *testing.T) {
	user := Message{Role: "user", Content: Text("U")}
	for _, c := range []struct {
		name     string
		messages []Message
		o        Options
		says     string
	}{
		{"none", nil, Options{}, "no messages"},
		{"role", []Message{{Role: "bot"}}, Options{}, `message 0: role "bot" is not one of`},
		{"task", []Message{{Role: "user", Task: "dance"}}, Options{}, `task "dance"`},
		{"prefix in the middle", []Message{user, {Role: "assistant", Prefix: true}, user}, Options{}, "message 1: only the last message"},
		{"prefix by the user", []Message{{Role: "user", Prefix: true}}, Options{}, "by the assistant"},
		{"placeholder", []Message{user, {Role: "assistant", Content: Text("x" + ImagePad)}, user}, Options{}, "image placeholder"},
		{"image of the assistant", []Message{user, {Role: "assistant", Content: []Block{{Type: "image"}}}}, Options{}, "cannot contain a block of type image"},
		{"effort", []Message{user}, Options{Effort: 101}, "1 to 100"},
		{"negative effort", []Message{user}, Options{Effort: -1}, "1 to 100"},
		{"required tool", []Message{user}, Options{Thinking: true, RequireTool: true}, "disable thinking"},
		{"tool without a function", []Message{user}, Options{Tools: []json.RawMessage{[]byte(`{"name":"f"}`)}}, `tools[0]: a tool needs a "function" object`},
		{"tool without a name", []Message{user}, Options{Tools: []json.RawMessage{[]byte(`{"function":{}}`)}}, "no name"},
		{"deep schema", []Message{user}, Options{ResponseFormat: []byte(strings.Repeat("[", 600) + strings.Repeat("]", 600))}, "deeper than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Render(c.messages, c.o)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q does not say %q", err, c.says)
			}
		})
	}
}

func TestPlaceholderIsPlainTextInToolResultsAndSystemMessages(t *testing.T) {
	p, err := Render([]Message{
		{Role: "system", Content: Text("S " + ImagePad)},
		{Role: "user", Content: Text("U")},
		{Role: "assistant", ToolCalls: []ToolCall{{ID: "1", Name: "f", Arguments: []byte("{}")}}},
		{Role: "tool", ToolCallID: "1", Content: Text(ImagePad)},
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Segments {
		if s.Control && s.Text == ImagePad {
			t.Error("a spelled placeholder became an image")
		}
	}
}

func TestImagesAreListedInRenderOrder(t *testing.T) {
	image := func(name string) []Block { return []Block{{Type: "image", Image: []byte(`"` + name + `"`)}} }
	p, err := Render([]Message{
		{Role: "user", Content: image("first")},
		{Role: "assistant", ToolCalls: []ToolCall{{ID: "a", Name: "f"}, {ID: "b", Name: "f"}}},
		{Role: "tool", ToolCallID: "b", Content: image("of b")},
		{Role: "tool", ToolCallID: "a", Content: image("of a")},
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []json.RawMessage{[]byte(`"first"`), []byte(`"of a"`), []byte(`"of b"`)}
	if diff := cmp.Diff(want, p.Images); diff != "" {
		t.Error(diff)
	}
}

func TestTaskOfAMergedMessageIsKept(t *testing.T) {
	p, err := Render([]Message{{Role: "user", Content: Text("a")}, {Role: "user", Content: Text("b"), Task: "title"}}, Options{})
	if err != nil || !strings.HasSuffix(p.String(), "<｜User｜>a\n\nb<｜title｜>") {
		t.Errorf("%q, error %v", p, err)
	}
}

func TestFIM(t *testing.T) {
	p := FIM("a <｜fim▁hole｜>", "b")
	want := []Segment{{BOS, true}, {FIMBegin, true}, {"a <｜fim▁hole｜>", false}, {FIMHole, true}, {"b", false}, {FIMEnd, true}}
	if diff := cmp.Diff(want, p.Segments); diff != "" {
		t.Error(diff)
	}
}

type lackingTokenizer struct {
	*tokenizer.Tokenizer
	lacks string
}

func (l lackingTokenizer) ID(spelling string) (int, bool) {
	if spelling == l.lacks {
		return 0, false
	}
	return l.Tokenizer.ID(spelling)
}

func TestMissingControlTokenIsNamed(t *testing.T) {
	p, err := Render([]Message{{Role: "user"}}, Options{Thinking: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = p.Encode(lackingTokenizer{releaseTokenizer(t), SystemRole}); err == nil || !strings.Contains(err.Error(), SystemRole) {
		t.Errorf("error %v", err)
	}
}

func TestNamespaces(t *testing.T) {
	for _, c := range []struct{ name, tool, want, says string }{
		{"none", `{"function":{"name":"f","strict":true}}`, `{"name": "f", "strict": true}`, ""},
		{"beside", `{"namespace":"n","function":{"name":"f"}}`, `{"name": "n::f"}`, ""},
		{"inside", `{"function":{"namespace":"n","name":"f"}}`, `{"name": "n::f"}`, ""},
		{"described", `{"namespace":{"name":"n","description":"N."},"function":{"name":"f","description":"F.","parameters":{}}}`,
			`{"name": "n::f", "description": "N.\nF.", "parameters": {}}`, ""},
		{"described, function not", `{"namespace":{"name":"n","description":"N."},"function":{"name":"f"}}`, `{"name": "n::f", "description": "N."}`, ""},
		{"in the name", `{"function":{"name":"n::f"}}`, `{"name": "n::f"}`, ""},
		{"twice the same", `{"namespace":"n","function":{"name":"n::f","namespace":"n"}}`, `{"name": "n::f"}`, ""},
		{"conflict", `{"namespace":"m","function":{"name":"n::f"}}`, "", `tool "n::f" is in namespace "m"`},
		{"two", `{"namespace":"m","function":{"name":"f","namespace":"n"}}`, "", `two namespaces`},
		{"number", `{"namespace":1,"function":{"name":"f"}}`, "", `must be a name`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := toolSchemas([]json.RawMessage{[]byte(c.tool)})
			if c.says == "" && (err != nil || got != c.want) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s, error %v", got, err)
			}
		})
	}
	for full, want := range map[string][2]string{"n::f": {"n", "f"}, "f": {"", "f"}, "a::b::c": {"", "a::b::c"}, "::f": {"", "::f"}} {
		if space, name := SplitToolName(full); space != want[0] || name != want[1] {
			t.Errorf("%q splits into %q and %q", full, space, name)
		}
	}
}
