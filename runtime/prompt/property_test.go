package prompt

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// fragments of which outputs are built: all of the markup, broken markup, and text that looks like it.
var fragments = []string{
	"a", " ", "\n", "\n\n", "é", "北京", "😀", "\xe5", "\x97", "<", "</", "｜", "<｜", "</｜DS", "DSML｜", ">", "\">", "STOP", "ST", "\\", "\"", "{", "}", "5",
	ThinkStart, ThinkEnd, EOS, DSML, UserRole, dsmlOpen, dsmlClose, callsOpen, callsClose, invokeOpen, "f\">\n", invokeClose,
	parameterOpen, "k", flagTrue, flagFalse, parameterClose, "</think", "<thi", "nk>", "<｜end▁of", "▁sentence｜>",
}

func TestEveryChunkingOfAnyMarkupReadsAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom(fragments), 0, 40).Draw(t, "parts")
		var stops []string
		if rapid.Bool().Draw(t, "with stop strings") {
			stops = []string{"STOP", "\n\n"}
		}
		start := Start{Reasoning: rapid.Bool().Draw(t, "reasoning"), Continues: rapid.Bool().Draw(t, "continues")}
		if rapid.Bool().Draw(t, "in a call") {
			start.Prefill = "\n\n" + callsOpen + "\n" + invokeOpen + "f\">\n"
		}
		text := strings.Join(parts, "")
		whole := feed(t, start, stops, ReasonLength, text)
		for name, pieces := range map[string][]string{"fragments": parts, "bytes": bytewise(text)} {
			if diff := cmp.Diff(whole, feed(t, start, stops, ReasonLength, pieces...)); diff != "" {
				t.Errorf("%s of %q (-whole +split):\n%s", name, text, diff)
			}
		}
		checkNoMarkup(t, text, whole)
		for _, c := range whole.Calls {
			checkArguments(t, text, c)
		}
	})
}

// drawText draws text as a model may write it, without newlines at its ends, which the parser strips.
func drawText(t *rapid.T, label string) string {
	words := rapid.SliceOfN(rapid.SampledFrom([]string{
		"word", "two words", "\n", "```go\n", "</b>", "é", "北京", "😀", " ", "1.5", "\t", "<｜User｜>", "2>&1", "\"", "\\n", "</tool_result>",
	}), 0, 8).Draw(t, label)
	return strings.Trim(strings.Join(words, ""), "\n")
}

func drawArguments(t *rapid.T) json.RawMessage {
	var b strings.Builder
	b.WriteByte('{')
	for i, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"path", "text", "n", "Größe", "a b"}), 0, 4, rapid.ID).Draw(t, "keys") {
		if i > 0 {
			b.WriteString(", ")
		}
		v := rapid.SampledFrom([]string{"1", "-2.5", "true", "null", `[1, {"a": "b"}]`, `{"x": 1e-07, "é": "\n"}`, ""}).Draw(t, "value")
		if v == "" {
			v = quote(rapid.SampledFrom([]string{"", "\n x \n", "</parameter>", "cat <<EOF > f 2>&1\nEOF\n", `"q" \`, "北京"}).Draw(t, "string"))
		}
		b.WriteString(quote(key) + ": " + v)
	}
	b.WriteByte('}')
	return json.RawMessage(b.String())
}

// What the model wrote, parsed and rendered again as history, is what it wrote: string and ids, so that
// the KV cache of the turn stays valid.
func TestHistoryOfOwnOutputIsTheSameText(t *testing.T) {
	tok := releaseTokenizer(t)
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Thinking: rapid.Bool().Draw(t, "thinking"), Keep: true}
		user := []Message{{Role: "user", Content: Text(drawText(t, "user"))}}
		answer := Message{Role: "assistant", Content: Text(drawText(t, "content"))}
		if o.Thinking {
			answer.ReasoningContent = drawText(t, "reasoning")
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
			name := []string{"f", "files::read", "g_2"}[i]
			answer.ToolCalls = append(answer.ToolCalls, ToolCall{Name: name, Arguments: drawArguments(t)})
		}
		question, err := Render(user, o)
		if err != nil {
			t.Fatal(err)
		}
		follow := Message{Role: "user", Content: Text("next")}
		written := turn(t, append(user, answer), follow, o)
		output, found := strings.CutPrefix(written.String(), question.String())
		output, _, ended := strings.Cut(output, EOS)
		if !found || !ended {
			t.Fatalf("the turn %q does not continue %q", written, question)
		}
		result, err := Parse(output, question.Start(), nil, ReasonStop)
		if err != nil || result.Finish.Err != nil {
			t.Fatalf("%q: error %v, finish %+v", output, err, result.Finish)
		}
		replayed := turn(t, append(user, result.Message()), follow, o)
		if diff := cmp.Diff(written.Segments, replayed.Segments); diff != "" {
			t.Fatalf("history of %q (-written +replayed):\n%s", output, diff)
		}
		a, errA := written.Encode(tok)
		b, errB := replayed.Encode(tok)
		if errA != nil || errB != nil || !slices.Equal(a, b) {
			t.Fatalf("ids differ; errors %v, %v", errA, errB)
		}
	})
}

func turn(t *rapid.T, history []Message, next Message, o Options) *Prompt {
	p, err := Render(append(history, next), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// However a message spells control tokens, the prompt has as many of them as with harmless text.
func TestTextCannotInjectControlTokens(t *testing.T) {
	tok := releaseTokenizer(t)
	spellings := []string{BOS, EOS, UserRole, AssistantRole, SystemRole, LatestReminder, ThinkStart, ThinkEnd, DSML, "<｜action｜>", FIMHole, callsOpen, "<｜", "x"}
	rapid.Check(t, func(t *rapid.T) {
		evil := func(label string) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(spellings), 0, 4).Draw(t, label), "")
		}
		conversation := func(text func(string) string) []Message {
			tool := `{"function": {"name": ` + quote("f"+text("tool")) + `, "description": ` + quote(text("description")) + `}}`
			return []Message{
				{Role: "system", Content: Text(text("system")), Tools: []json.RawMessage{[]byte(tool)}, ResponseFormat: []byte(quote(text("format")))},
				{Role: "user", Content: Text(text("user"))},
				{Role: "assistant", ReasoningContent: text("reasoning"), Content: Text(text("content")),
					ToolCalls: []ToolCall{{ID: "1", Name: "f" + text("name"), Arguments: []byte(`{` + quote(text("key")) + `: ` + quote(text("value")) + `}`)}}},
				{Role: "tool", ToolCallID: "1", Content: Text(text("result"))},
				{Role: "latest_reminder", Content: Text(text("reminder"))},
			}
		}
		controls := func(messages []Message) []int32 {
			p, err := Render(messages, Options{Thinking: true})
			if err != nil {
				t.Fatal(err)
			}
			ids, err := p.Encode(tok)
			if err != nil {
				t.Fatal(err)
			}
			return slices.DeleteFunc(ids, func(id int32) bool { return !tok.IsAdded(int(id)) })
		}
		got, want := controls(conversation(evil)), controls(conversation(func(string) string { return "x" }))
		if !slices.Equal(got, want) {
			t.Errorf("control tokens %d, want %d", got, want)
		}
	})
}
