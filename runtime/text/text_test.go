package text

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"cedrun/runtime/prompt"
	"cedrun/runtime/tokenizer"
)

var load = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
	return tokenizer.Load("../../testdata/tokenizer/tokenizer.json")
})

func tok(t interface{ Fatal(...any) }) *tokenizer.Tokenizer {
	k, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// read feeds ids as an engine would and returns the pieces of content, the whole result and how many ids were taken.
func read(t *testing.T, r *Reader, ids []int32, reason prompt.Reason) (pieces []string, got *prompt.Result, taken int) {
	t.Helper()
	var c prompt.Collector
	take := func(events []prompt.Event) {
		c.Add(events...)
		for _, e := range events {
			if !utf8.ValidString(e.Text) {
				t.Errorf("piece %q is not valid UTF-8", e.Text)
			}
			if e.Kind == prompt.Content {
				pieces = append(pieces, e.Text)
			}
		}
	}
	for _, id := range ids {
		if r.Done() {
			break
		}
		take(r.Next(id))
		taken++
	}
	take(r.Close(reason))
	if more := r.Close(reason); more != nil || r.Next(ids[0]) != nil {
		t.Error("a closed reader still returns events")
	}
	return pieces, c.Result(), taken
}

func TestPlainTextIsCutAtTheFirstStopString(t *testing.T) {
	k := tok(t)
	for _, c := range []struct {
		name, text string
		stops      []string
		want, stop string
		reason     prompt.Reason
	}{
		{"none given", "The end. And more.", nil, "The end. And more.", "", prompt.ReasonLength},
		{"in the middle of a token", "The endless sea", []string{"dle"}, "The en", "dle", prompt.ReasonStop},
		{"across tokens", "one two three", []string{"wo thr"}, "one t", "wo thr", prompt.ReasonStop},
		{"begun but not finished", "one two thr", []string{"three"}, "one two thr", "", prompt.ReasonLength},
		{"first of several", "a b c d", []string{"d", "b"}, "a ", "b", prompt.ReasonStop},
		{"at the very beginning", "stop here", []string{"stop"}, "", "stop", prompt.ReasonStop},
		{"beyond ASCII", "日本語のテキスト。", []string{"テ"}, "日本語の", "テ", prompt.ReasonStop},
		{"markup is text", "a </think> b", nil, "a </think> b", "", prompt.ReasonLength},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Plain(k, c.stops)
			if err != nil {
				t.Fatal(err)
			}
			_, got, _ := read(t, r, k.Encode(c.text, tokenizer.Options{}), prompt.ReasonLength)
			if got.Content != c.want || got.Finish.StopString != c.stop || got.Finish.Reason != c.reason {
				t.Errorf("content %q stop %q reason %s, want %q %q %s", got.Content, got.Finish.StopString, got.Finish.Reason, c.want, c.stop, c.reason)
			}
		})
	}
}

func TestTokensAfterAStopStringAreNotWanted(t *testing.T) {
	k := tok(t)
	r, err := Plain(k, []string{"two"})
	if err != nil {
		t.Fatal(err)
	}
	ids := k.Encode("one two three four five", tokenizer.Options{})
	if _, _, taken := read(t, r, ids, prompt.ReasonLength); taken != 2 {
		t.Errorf("%d of %d tokens taken, want 2", taken, len(ids))
	}
}

func TestHalfACharacterIsHeldBackAndAnIncompleteOneReplaced(t *testing.T) {
	k := tok(t)
	ids := k.Encode("𓀀", tokenizer.Options{}) // several tokens of bytes
	if len(ids) < 2 {
		t.Fatalf("want a character of several tokens, got %v", ids)
	}
	r, _ := Plain(k, nil)
	if pieces, _, _ := read(t, r, ids, prompt.ReasonLength); !slices.Equal(pieces, []string{"𓀀"}) {
		t.Errorf("pieces %q, want the character in one", pieces)
	}
	r, _ = Plain(k, nil)
	if _, got, _ := read(t, r, ids[:len(ids)-1], prompt.ReasonLength); got.Content != "\uFFFD" {
		t.Errorf("content %q, want U+FFFD", got.Content)
	}
}

func TestConversationSeparatesReasoningContentAndCalls(t *testing.T) {
	k := tok(t)
	for _, c := range []struct {
		name, output             string
		start                    prompt.Start
		stops                    []string
		reasoning, content, stop string
		unclosed                 bool
	}{
		{name: "chat", output: "Hello.", content: "Hello."},
		{name: "thinking", output: "Two and two.</think>Four.", start: prompt.Start{Reasoning: true}, reasoning: "Two and two.", content: "Four."},
		{name: "thinking without an end", output: "Two and", start: prompt.Start{Reasoning: true}, reasoning: "Two and", unclosed: true},
		{name: "stops apply to content", output: "END</think>a END b", start: prompt.Start{Reasoning: true}, stops: []string{"END"}, reasoning: "END", content: "a ", stop: "END"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Conversation(k, c.start, c.stops)
			if err != nil {
				t.Fatal(err)
			}
			_, got, _ := read(t, r, k.Encode(c.output, tokenizer.Options{AddedTokens: true}), prompt.ReasonLength)
			if got.Reasoning != c.reasoning || got.Content != c.content || got.Finish.StopString != c.stop || got.Finish.UnclosedThinking != c.unclosed {
				t.Errorf("got %q %q %+v", got.Reasoning, got.Content, got.Finish)
			}
		})
	}
}

func TestTooManyOrEmptyStopStringsAreRefused(t *testing.T) {
	k := tok(t)
	for _, stops := range [][]string{{""}, slices.Repeat([]string{"x"}, 17)} {
		if _, err := Plain(k, stops); err == nil {
			t.Errorf("Plain took %q", stops)
		}
		if _, err := Conversation(k, prompt.Start{}, stops); err == nil {
			t.Errorf("Conversation took %q", stops)
		}
	}
}

// Whatever the tokens, plain pieces concatenate to the decoded text up to the first stop string.
func TestPiecesConcatenateToTheText(t *testing.T) {
	k := tok(t)
	rapid.Check(t, func(rt *rapid.T) {
		ids := rapid.SliceOfN(rapid.Int32Range(0, int32(k.VocabSize()-1)), 1, 40).Draw(rt, "ids")
		whole := k.Decode(ids)
		var stops []string
		if runes := []rune(whole); len(runes) > 0 && rapid.Bool().Draw(rt, "stop") {
			i := rapid.IntRange(0, len(runes)-1).Draw(rt, "at")
			stops = []string{string(runes[i:min(len(runes), i+rapid.IntRange(1, 5).Draw(rt, "length"))])}
		}
		r, err := Plain(k, stops)
		if err != nil {
			rt.Fatal(err)
		}
		var b strings.Builder
		add := func(events []prompt.Event) {
			for _, e := range events {
				b.WriteString(e.Text)
			}
		}
		for _, id := range ids {
			add(r.Next(id))
		}
		add(r.Close(prompt.ReasonLength))
		want := whole
		if len(stops) > 0 {
			want, _, _ = strings.Cut(whole, stops[0])
		}
		if b.String() != want {
			rt.Fatalf("stops %q: got %q, want %q", stops, b.String(), want)
		}
	})
}

func TestLoop(t *testing.T) {
	varied := make([]int32, 200)
	for i := range varied {
		varied[i] = int32(i * i)
	}
	for _, c := range []struct {
		name string
		ids  []int32
		want int
	}{
		{"nothing", nil, 0},
		{"varied", varied, 0},
		{"short", slices.Repeat([]int32{7}, 60), 0},
		{"one token", append(slices.Clone(varied), slices.Repeat([]int32{7}, 65)...), 1},
		{"three tokens", append(slices.Clone(varied), slices.Repeat([]int32{1, 2, 3}, 30)...), 3},
		{"left again", append(slices.Repeat([]int32{7}, 100), varied[:9]...), 0},
		{"too long a period", slices.Repeat(varied[:17], 9), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Loop(c.ids); got != c.want {
				t.Errorf("period %d, want %d", got, c.want)
			}
		})
	}
}
