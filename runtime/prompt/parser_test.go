package prompt

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

type streamCase struct {
	Name   string   `json:"name"`
	Start  string   `json:"start"`
	Text   string   `json:"text"`
	Stop   []string `json:"stop"`
	Expect struct {
		Reasoning string           `json:"reasoning_content"`
		Content   string           `json:"content"`
		ToolCalls []namedArguments `json:"tool_calls"`
		Finish    Reason           `json:"finish_reason"`
	} `json:"expect"`
}

func streamCases(tb testing.TB) []streamCase {
	var a struct {
		Cases []streamCase `json:"cases"`
	}
	readAnswers(tb, "stream_rules_kat.json", &a)
	if len(a.Cases) == 0 {
		tb.Fatal("no known answers")
	}
	return a.Cases
}

// feed parses the pieces as they would arrive and checks what must hold for every event.
func feed(tb rapid.TB, start Start, stops []string, reason Reason, pieces ...string) *Result {
	tb.Helper()
	p, err := NewParser(start, stops)
	if err != nil {
		tb.Fatal(err)
	}
	var c Collector
	var events []Event
	for _, piece := range pieces {
		events = append(events, p.Feed(piece)...)
	}
	events = append(events, p.Close(reason)...)
	stage, finishes := Reasoning, 0
	for _, e := range events {
		if !utf8.ValidString(e.Text) || !utf8.ValidString(e.Name) {
			tb.Errorf("%q in pieces %q: event %+v is not valid UTF-8", strings.Join(pieces, ""), pieces, e)
		}
		if finishes > 0 || e.Kind < stage && stage <= Content {
			tb.Errorf("%q: event %+v comes too late", pieces, e)
		}
		stage = max(stage, e.Kind)
		if e.Kind == Finished {
			finishes++
		}
		c.Add(e)
	}
	if finishes != 1 || !p.Done() || p.Feed("more") != nil || p.Close(reason) != nil {
		tb.Errorf("%q: %d finishes", pieces, finishes)
	}
	return c.Result()
}

// everySplit parses the text in one piece, in every two pieces and byte by byte, and expects the same.
func everySplit(tb rapid.TB, start Start, stops []string, reason Reason, text string) *Result {
	tb.Helper()
	whole := feed(tb, start, stops, reason, text)
	same := func(pieces ...string) {
		if split := feed(tb, start, stops, reason, pieces...); !reflect.DeepEqual(whole, split) {
			tb.Fatalf("pieces %q (-whole +split):\n%s", pieces, cmp.Diff(whole, split))
		}
	}
	for i := 1; i < len(text); i++ {
		same(text[:i], text[i:])
	}
	same(strings.Split(text, "")...)
	same(bytewise(text)...)
	return whole
}

func bytewise(text string) []string {
	pieces := make([]string, len(text))
	for i := range pieces {
		pieces[i] = text[i : i+1]
	}
	return pieces
}

func TestStreamRulesAtEverySplit(t *testing.T) {
	for _, c := range streamCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			r := everySplit(t, Start{Reasoning: c.Start == "reasoning"}, c.Stop, ReasonLength, c.Text)
			if r.Reasoning != c.Expect.Reasoning || r.Content != c.Expect.Content || r.Finish.Reason != c.Expect.Finish ||
				!cmp.Equal(callsOf(r), c.Expect.ToolCalls) {
				t.Errorf("got %+v\nwant %+v", r, c.Expect)
			}
			if len(c.Stop) > 0 && (r.Finish.StopString != "") != (len(r.Content) < 5) {
				t.Errorf("stop string %q", r.Finish.StopString)
			}
			// Without the EOS text, as when the engine keeps it to itself.
			if bare, ended := strings.CutSuffix(c.Text, EOS); ended && len(c.Stop) == 0 {
				if diff := cmp.Diff(r, everySplit(t, Start{Reasoning: c.Start == "reasoning"}, nil, ReasonStop, bare)); diff != "" {
					t.Errorf("without EOS (-with +without):\n%s", diff)
				}
			}
		})
	}
}

func TestStrictParser(t *testing.T) {
	classes := map[string]error{"AssertionError": ErrOutputFormat, "ValueError": ErrCallFormat}
	for _, c := range encodings(t).ParseStrict {
		t.Run(c.Name, func(t *testing.T) {
			r, err := ParseStrict(c.Text, c.ThinkingMode == "thinking")
			if c.Error != "" {
				if !errors.Is(err, classes[c.Error]) {
					t.Errorf("error %v, want class %s", err, c.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := []namedArguments{}
			for _, call := range c.Result.ToolCalls {
				want = append(want, call.Function)
			}
			if r.Content != c.Result.Content || r.Reasoning != c.Result.Reasoning || !cmp.Equal(callsOf(r), want) {
				t.Errorf("got %+v\nwant %+v", r, c.Result)
			}
		})
	}
}

func callsOf(r *Result) []namedArguments {
	calls := []namedArguments{}
	for _, call := range r.Calls {
		calls = append(calls, namedArguments{call.Name, call.Arguments})
	}
	return calls
}

// Whatever the strict parser accepts, the streaming parser reads alike, but for newlines.
func TestStreamingAgreesWithStrict(t *testing.T) {
	for _, c := range encodings(t).ParseStrict {
		strict, err := ParseStrict(c.Text, c.ThinkingMode == "thinking")
		if err != nil {
			continue
		}
		r := everySplit(t, Start{Reasoning: c.ThinkingMode == "thinking"}, nil, ReasonLength, c.Text)
		strict.Reasoning, strict.Content = strings.Trim(strict.Reasoning, "\n"), strings.TrimLeft(strict.Content, "\n")
		if diff := cmp.Diff(strict, r); diff != "" {
			t.Errorf("%s (-strict +streaming):\n%s", c.Name, diff)
		}
	}
}

// call writes one call with one string parameter.
func call(value string) string {
	return callsOpen + "\n" + invokeOpen + "f\">\n" + parameterOpen + "k" + flagTrue + value + parameterClose + "\n" + invokeClose + "\n" + callsClose
}

func TestHostileArgumentsArriveUnchanged(t *testing.T) {
	for _, v := range []string{
		"", " ", "\n", "\n\n lines \n", "make 2>&1 | tee log", "cat <<'EOF' > f\n</parameter>\nEOF\n", "</parameter>", "</foo>", "</invoke>",
		"<b>a & b</b>", `"quotes" \ and \n 'more'`, `" string="true">`, "\">\n", "tab\t\r\x00\x1f\x7f", "北京 😀 é ﷽", "<｜", "</｜", "</｜DS", "｜DSML",
		"<<<<<<< HEAD", "</think>", "<think>", "<｜User｜>", "<dsml:parameter>", "</", "<", "`\u2028`", `{"a": 1}`, "null",
	} {
		r := everySplit(t, Start{}, nil, ReasonStop, "\n\n"+call(v))
		want, _ := json.Marshal(map[string]string{"k": v})
		var got map[string]string
		if len(r.Calls) != 1 || !r.Calls[0].Complete || json.Unmarshal([]byte(r.Calls[0].Arguments), &got) != nil || got["k"] != v {
			t.Errorf("%q: calls %+v, want arguments equal to %s", v, r.Calls, want)
		}
		if r.Finish.Reason != ReasonToolCalls || r.Finish.Err != nil || r.Content != "" {
			t.Errorf("%q: %+v", v, r)
		}
	}
}

func TestJSONArguments(t *testing.T) {
	for _, c := range []struct{ written, want string }{
		{"5", `{"k": 5}`}, {"-1.50e3", `{"k": -1.50e3}`}, {`{"a": ["</x>", "é"]}`, `{"k": {"a": ["</x>", "é"]}}`}, {" [1,\n 2]\n", "{\"k\":  [1,\n 2]\n}"},
		{"true", `{"k": true}`},
		// Not JSON: the model forgot the flag or wrote Python. The text reaches the tool as a string.
		{"True", `{"k": "True"}`}, {"", `{"k": ""}`}, {"NaN", `{"k": "NaN"}`}, {"{\"a\": \n", `{"k": "{\"a\": \n"}`}, {"5 6", `{"k": "5 6"}`},
	} {
		text := strings.Replace(call(c.written), flagTrue, flagFalse, 1)
		r := everySplit(t, Start{}, nil, ReasonStop, text)
		if len(r.Calls) != 1 || r.Calls[0].Arguments != c.want || !json.Valid([]byte(c.want)) && c.written != "{\"a\": \n" {
			t.Errorf("%q: got %+v, want %s", c.written, r.Calls, c.want)
		}
	}
}

func TestMalformedCallsAreReportedAndNotShown(t *testing.T) {
	whole := call("v")
	for _, c := range []struct {
		name, text string
		reason     Reason // when the model ends by itself
		complete   int
		says       string
	}{
		{"V4 spelling", "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">", ReasonMalformed, 0, "expected <｜DSML｜ calls>"},
		{"no block", invokeOpen + "f\">\n" + invokeClose, ReasonMalformed, 0, "expected <｜DSML｜ calls>"},
		{"no invoke", callsOpen + "\n" + parameterOpen + "k" + flagTrue + "v" + parameterClose, ReasonMalformed, 0, "expected <｜DSML｜ invoke"},
		{"closer without opener", invokeClose + "\n" + callsClose, ReasonMalformed, 0, "outside a tool call"},
		{"bare token", "｜DSML｜ here", ReasonMalformed, 0, "outside a tool call"},
		{"empty block", callsOpen + "\n" + callsClose, ReasonMalformed, 0, "no calls"},
		{"empty name", callsOpen + "\n" + invokeOpen + "\">\n" + invokeClose, ReasonMalformed, 0, "empty"},
		{"name not closed", callsOpen + "\n" + invokeOpen + "f\n" + invokeClose, ReasonMalformed, 0, "not closed"},
		{"text between", callsOpen + "\nhere: " + whole, ReasonMalformed, 0, "expected <｜DSML｜ invoke"},
		{"bad flag", strings.Replace(whole, flagTrue, `" string="yes">`, 1), ReasonMalformed, 0, "not closed"},
		{"V4 parameter closer", strings.Replace(whole, parameterClose, "</｜DSML｜parameter>", 1), ReasonMalformed, 0, "expected </｜DSML｜ parameter>"},
		{"parameter twice", strings.Replace(whole, invokeClose, parameterOpen+"k"+flagTrue+"w"+parameterClose+invokeClose, 1), ReasonMalformed, 0, "given twice"},
		{"repeated closers", strings.Replace(whole, callsClose, invokeClose+"\n"+callsClose, 1), ReasonToolCalls, 1, "expected <｜DSML｜ invoke"},
		{"ends in a value", whole[:strings.Index(whole, parameterClose)], ReasonMalformed, 0, "ended inside"},
		{"ends in a name", callsOpen + "\n" + invokeOpen + "f", ReasonMalformed, 0, ""},
		{"ends after a parameter", whole[:strings.Index(whole, invokeClose)], ReasonMalformed, 0, "ended inside"},
		{"second call is cut", strings.Replace(whole, callsClose, invokeOpen+"g\">\n"+parameterOpen, 1), ReasonMalformed, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, end := range []string{"", EOS} {
				r := everySplit(t, Start{}, nil, ReasonStop, "Well.\n\n"+c.text+end)
				if r.Content != "Well." || r.Finish.Reason != c.reason || complete(r) != c.complete {
					t.Errorf("%+v", r)
				}
				if e := r.Finish.Err; e == nil || !strings.Contains(e.Error(), c.says) || !strings.Contains(c.text+end, e.Raw) {
					t.Errorf("error %v does not say %q; raw %q", e, c.says, e.Raw)
				}
			}
		})
	}
}

func TestNameWithoutEnd(t *testing.T) {
	r := feed(t, Start{}, nil, ReasonStop, bytewise(callsOpen+"\n"+invokeOpen+strings.Repeat("f", maxName+1))...)
	if r.Finish.Reason != ReasonMalformed || r.Finish.Err == nil || !strings.Contains(r.Finish.Err.Problem, "not closed") {
		t.Errorf("%+v", r.Finish)
	}
}

func TestCallsBlockThatIsNotClosed(t *testing.T) {
	r := everySplit(t, Start{}, nil, ReasonStop, strings.TrimSuffix(call("v"), callsClose))
	if r.Finish.Reason != ReasonToolCalls || r.Finish.Err != nil || complete(r) != 1 {
		t.Errorf("%+v", r)
	}
}

func complete(r *Result) int {
	n := 0
	for _, call := range r.Calls {
		if call.Complete {
			n++
		}
	}
	return n
}

func TestOutputCutByLength(t *testing.T) {
	text := "thinking\n</think>\n\nLet me <look>.\n\n" + call("a \"b\"\nc") + EOS
	for i := range len(text) {
		r := feed(t, Start{Reasoning: true}, nil, ReasonLength, text[:i])
		checkNoMarkup(t, text[:i], r)
		for _, call := range r.Calls {
			checkArguments(t, text[:i], call)
		}
		if want := i < strings.Index(text, ThinkEnd)+len(ThinkEnd); r.Finish.UnclosedThinking != want {
			t.Errorf("cut at %d: unclosed thinking is %v", i, r.Finish.UnclosedThinking)
		}
		if after := i >= strings.Index(text, callsClose)+len(callsClose); (r.Finish.Reason == ReasonToolCalls) != after {
			t.Errorf("cut at %d: reason %q", i, r.Finish.Reason)
		}
	}
}

func TestThinkingThatNeverEnds(t *testing.T) {
	r := everySplit(t, Start{Reasoning: true}, nil, ReasonStop, "all of it\n"+EOS)
	want := &Result{Reasoning: "all of it\n", Finish: Finish{Reason: ReasonStop, UnclosedThinking: true}}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
}

func TestStarts(t *testing.T) {
	for _, c := range []struct {
		name  string
		start Start
		text  string
		want  Result
	}{
		{"continued content keeps its newline", Start{Continues: true}, "\nnext", Result{Content: "\nnext"}},
		{"continued reasoning keeps its newline", Start{Reasoning: true, Continues: true}, "\nr</think>\nc", Result{Reasoning: "\nr", Content: "c"}},
		{"required tool", Start{Prefill: "\n\n" + callsOpen + "\n"}, invokeOpen + "f\">\n" + invokeClose + "\n" + callsClose,
			Result{Calls: []ParsedCall{{"f", "{}", true}}, Finish: Finish{Reason: ReasonToolCalls}}},
		{"named tool", Start{Prefill: "\n\n" + callsOpen + "\n" + invokeOpen + "f\">\n"}, parameterOpen + "a" + flagFalse + "1" + parameterClose + "\n" + invokeClose + "\n" + callsClose,
			Result{Calls: []ParsedCall{{"f", `{"a": 1}`, true}}, Finish: Finish{Reason: ReasonToolCalls}}},
	} {
		r := everySplit(t, c.start, nil, ReasonStop, c.text)
		if c.want.Finish.Reason == "" {
			c.want.Finish.Reason = ReasonStop
		}
		if diff := cmp.Diff(&c.want, r, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}

func TestStartAfterRawText(t *testing.T) {
	for text, want := range map[string]Start{
		"":                                  {Continues: true},
		"Once upon a <think> time":          {Continues: true},
		AssistantRole:                       {},
		AssistantRole + ThinkStart:          {Reasoning: true},
		AssistantRole + ThinkStart + "so":   {Reasoning: true, Continues: true},
		AssistantRole + ThinkEnd:            {},
		AssistantRole + ThinkEnd + "It":     {Continues: true},
		AssistantRole + "It":                {Continues: true},
		AssistantRole + "<think>r</think>":  {},
		AssistantRole + "<think>r</think>c": {Continues: true},
		AssistantRole + ThinkStart + "r" + EOS + UserRole + "U" + AssistantRole + ThinkEnd: {},
	} {
		if got := StartAfter(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func TestStopStrings(t *testing.T) {
	for _, c := range []struct {
		name  string
		stops []string
		text  string
		want  string
		stop  string
	}{
		{"whole marker is cut", []string{">>>>>>> UPDATED"}, "a>>>>>>> UPD>>>>>>> UPDATED b", "a>>>>>>> UPD", ">>>>>>> UPDATED"},
		{"first to end wins", []string{"abcd", "bc"}, "xabcd", "xa", "bc"},
		{"longest of those that end together", []string{"c", "abc"}, "xabc", "x", "abc"},
		{"held prefix is released", []string{"aab"}, "aaaac", "aaaac", ""},
		{"overlapping prefix", []string{"aab"}, "aaaab", "aa", "aab"},
		{"newlines", []string{"\n\n"}, "\n\na\n\nb", "a", "\n\n"},
		{"multi-byte", []string{"終"}, "始終", "始", "終"},
		{"not in calls", []string{"v"}, "x" + call("v"), "x", ""},
		{"not in markup", []string{"<", "｜"}, "x" + call("v"), "x", ""},
		{"angle bracket", []string{"<"}, "x<y", "x", "<"},
	} {
		r := everySplit(t, Start{}, c.stops, ReasonStop, c.text)
		if r.Content != c.want || r.Finish.StopString != c.stop {
			t.Errorf("%s: content %q, stop string %q", c.name, r.Content, r.Finish.StopString)
		}
	}
	for name, stops := range map[string][]string{"empty": {""}, "too many": make([]string, 17), "not UTF-8": {"\xff"}} {
		if _, err := NewParser(Start{}, stops); err == nil {
			t.Errorf("%s stop strings are accepted", name)
		}
	}
}

func TestTextIsReleasedAsEarlyAsPossible(t *testing.T) {
	p, err := NewParser(Start{}, []string{"STOP"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ piece, shown string }{
		{"He", "He"}, {"llo\n", "llo"}, {"a", "\na"}, {" <", " "}, {"b", "<b"}, {" S", " "}, {"TO", ""}, {"x", "STOx"},
		{"\xe5\x8c", ""}, {"\x97", "北"}, {"，", "，"}, {"</thin", ""}, {"g>", "</thing>"}, {"</think>", ""}, {".", "."},
	} {
		got := ""
		for _, e := range p.Feed(c.piece) {
			got += e.Text
		}
		if got != c.shown {
			t.Errorf("%q shows %q, want %q", c.piece, got, c.shown)
		}
	}
}

func TestStrayThinkingTagsCannotBuildMarkup(t *testing.T) {
	for _, text := range []string{"</th</think>ink>a", "<｜DS</think>ML｜ calls>", "<｜end▁of</think>▁sentence｜>a", "</th</th</think>ink>ink>a", "<th<think>ink>"} {
		r := everySplit(t, Start{}, nil, ReasonStop, text)
		checkNoMarkup(t, text, r)
	}
	for _, text := range []string{strings.Repeat("<", 5000), strings.Repeat("<", 5000) + "x", strings.Repeat("</th", 500)} {
		if r := feed(t, Start{}, nil, ReasonStop, bytewise(text)...); r.Content != text {
			t.Errorf("%.20q does not arrive", text)
		}
	}
	nested := strings.Repeat("</th", 500) + strings.Repeat("ink>", 500)
	if r := feed(t, Start{}, nil, ReasonStop, bytewise(nested)...); r.Content != "" {
		t.Errorf("%.20q leaves %.20q", nested, r.Content)
	}
}

func checkNoMarkup(tb rapid.TB, text string, r *Result) {
	tb.Helper()
	for _, spelling := range []string{DSML, EOS, ThinkStart, ThinkEnd} {
		if strings.Contains(r.Reasoning, spelling) || strings.Contains(r.Content, spelling) {
			tb.Errorf("%q: %s in the text: %+v", text, spelling, r)
		}
	}
	for _, c := range r.Calls {
		if strings.Contains(c.Name, DSML) || strings.Contains(c.Arguments, dsmlClose) || strings.Contains(c.Arguments, EOS) {
			tb.Errorf("%q: markup in the call %+v", text, c)
		}
	}
}

// checkArguments holds complete arguments to be a JSON object and others to be the beginning of one.
func checkArguments(tb rapid.TB, text string, c ParsedCall) {
	tb.Helper()
	var object map[string]json.RawMessage
	if c.Complete {
		if json.Unmarshal([]byte(c.Arguments), &object) != nil {
			tb.Errorf("%q: arguments %q are not a JSON object", text, c.Arguments)
		}
		return
	}
	for _, end := range []string{"{}", "}", `"}`} {
		if json.Valid([]byte(c.Arguments + end)) {
			return
		}
	}
	tb.Errorf("%q: arguments %q cannot be completed", text, c.Arguments)
}

func FuzzParser(f *testing.F) {
	for _, c := range streamCases(f) {
		f.Add(c.Text, c.Start == "reasoning", strings.Join(c.Stop, ","), uint16(7))
	}
	for _, c := range encodings(f).ParseStrict {
		f.Add(c.Text, c.ThinkingMode == "thinking", "", uint16(3))
	}
	f.Add("</th</think>ink><｜DS</think>ML｜ calls>", false, "x", uint16(1))
	f.Fuzz(func(t *testing.T, text string, reasoning bool, stops string, cut uint16) {
		list := strings.Split(stops, ",")
		if stops == "" || checkStops(list) != nil {
			list = nil
		}
		start := Start{Reasoning: reasoning}
		whole := feed(t, start, list, ReasonLength, text)
		if diff := cmp.Diff(whole, feed(t, start, list, ReasonLength, bytewise(text)...)); diff != "" {
			t.Errorf("byte by byte (-whole +split):\n%s", diff)
		}
		if len(text) > 0 {
			at := int(cut) % len(text)
			if diff := cmp.Diff(whole, feed(t, start, list, ReasonLength, text[:at], text[at:])); diff != "" {
				t.Errorf("split at %d (-whole +split):\n%s", at, diff)
			}
		}
		checkNoMarkup(t, text, whole)
		for _, c := range whole.Calls {
			checkArguments(t, text, c)
		}
	})
}
