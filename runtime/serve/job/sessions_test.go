package job

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTheLongestBeginningIsContinued(t *testing.T) {
	s := &sessions{most: 3}
	give := func(owner string, tokens ...int32) *conversation {
		c := s.take(owner, append(slices.Clone(tokens), -1, -2))
		if len(c.tokens) > 0 {
			t.Fatalf("%v is taken as new", tokens)
		}
		s.give(c, tokens)
		return c
	}
	short, long, other := give("a", 1, 2), give("a", 5, 6, 7), give("b", 1, 2, 3)
	for _, c := range []struct {
		owner  string
		prompt []int32
		want   *conversation
	}{
		{"a", []int32{1, 2, 3, 4}, short}, {"b", []int32{1, 2, 3, 4}, other}, {"a", []int32{5, 6, 7, 8}, long},
		{"a", []int32{1, 2}, nil}, // all of it processed: nothing is left to compute logits from
		{"a", []int32{1, 3}, nil}, {"c", []int32{1, 2, 3}, nil},
	} {
		got := s.take(c.owner, c.prompt)
		if c.want == nil {
			if got == short || got == long || got == other || len(got.tokens) > 0 {
				t.Errorf("%s %v continues %v", c.owner, c.prompt, got.tokens)
			}
			continue
		}
		if got != c.want {
			t.Errorf("%s %v continues %v", c.owner, c.prompt, got.tokens)
		}
		s.give(got, got.tokens)
	}
	s.give(&conversation{owner: "a"}, []int32{9}) // longest idle is short now
	if got := s.take("a", []int32{1, 2, 3}); len(got.tokens) > 0 {
		t.Errorf("more conversations than slots: %v", got.tokens)
	}
}

// A conversation is never with two requests, never another owner's, and always a beginning of the prompt.
func TestConversationsAreApart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &sessions{most: rapid.IntRange(1, 4).Draw(rt, "most")}
		out := map[*conversation]bool{}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			owner := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "owner")
			prompt := rapid.SliceOfN(rapid.Int32Range(0, 1), 1, 6).Draw(rt, "prompt")
			c := s.take(owner, prompt)
			if out[c] || c.owner != owner || len(c.tokens) >= len(prompt) || !slices.Equal(c.tokens, prompt[:len(c.tokens)]) {
				rt.Fatalf("%s %v got %s %v", owner, prompt, c.owner, c.tokens)
			}
			out[c] = true
			if rapid.Bool().Draw(rt, "back") {
				delete(out, c)
				s.give(c, prompt[:rapid.IntRange(0, len(prompt)).Draw(rt, "processed")])
			}
			if len(s.idle) > s.most {
				rt.Fatalf("%d idle, at most %d", len(s.idle), s.most)
			}
		}
	})
}
