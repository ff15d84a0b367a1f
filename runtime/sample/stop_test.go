package sample

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func matcher(t testing.TB, stops ...string) *StopMatcher {
	t.Helper()
	m, err := NewStopMatcher(stops)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestStopMatcher(t *testing.T) {
	for _, c := range []struct {
		name  string
		stops []string
		parts []string
		shown []string // what each part lets through, then what Flush returns
		stop  string
	}{
		{"no stops", nil, []string{"a", "b"}, []string{"a", "b", ""}, ""},
		{"not in the text", []string{"END"}, []string{"abc"}, []string{"abc", ""}, ""},
		{"in one part", []string{"END"}, []string{"abcENDxyz"}, []string{"abc", ""}, "END"},
		{"across parts", []string{">>>>>>> UPDATED"}, []string{"x>>>>>>>", " UPD", "ATED\n"}, []string{"x", "", "", ""}, ">>>>>>> UPDATED"},
		{"held back, then harmless", []string{"END"}, []string{"abE", "N", "x"}, []string{"ab", "", "ENx", ""}, ""},
		{"held back at the end", []string{"END"}, []string{"abEN"}, []string{"ab", "EN"}, ""},
		{"overlapping itself", []string{"aab"}, []string{"aa", "aa", "b"}, []string{"", "aa", "", ""}, "aab"},
		{"the first to end wins", []string{"abcd", "bc"}, []string{"xab", "cd"}, []string{"x", "a", ""}, "bc"},
		{"the longest of those", []string{"c", "abc"}, []string{"xabc"}, []string{"x", ""}, "abc"},
		{"whole characters are held", []string{"é!"}, []string{"aé", "b"}, []string{"a", "éb", ""}, ""},
		{"nothing after a stop", []string{"\n"}, []string{"a\nb", "c"}, []string{"a", "", ""}, "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := matcher(t, c.stops...)
			var got []string
			for _, part := range c.parts {
				show, _ := m.Push(part)
				got = append(got, show)
			}
			got = append(got, m.Flush())
			if stop, ok := m.Matched(); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.shown) || stop != c.stop || ok != (c.stop != "") {
				t.Errorf("shown %q, stop %q; want %q, %q", got, stop, c.shown, c.stop)
			}
		})
	}
}

func TestStopLimits(t *testing.T) {
	if _, err := NewStopMatcher(make([]string, 17)); err == nil || !strings.Contains(err.Error(), "17 strings, want at most 16") {
		t.Errorf("error %v", err)
	}
	if _, err := NewStopMatcher([]string{"a", ""}); err == nil || !strings.Contains(err.Error(), "stop string 1 is empty") {
		t.Errorf("error %v", err)
	}
}

// cutAtStop is the rule of StopMatcher over a whole text.
func cutAtStop(text string, stops []string) (shown string, stopped bool) {
	for end := range len(text) + 1 {
		longest := 0
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) {
				longest = max(longest, len(s))
			}
		}
		if longest > 0 {
			return text[:end-longest], true
		}
	}
	return text, false
}

func checkStops(t interface {
	Helper()
	Fatalf(string, ...any)
}, text string, stops []string, cuts func(left int) int) {
	t.Helper()
	m, err := NewStopMatcher(stops)
	if err != nil {
		t.Fatalf("%v", err)
	}
	want, wantStop := cutAtStop(text, stops)
	var shown strings.Builder
	stopped := false
	for rest := text; rest != ""; {
		n := cuts(len(rest))
		show, now := m.Push(rest[:n])
		rest = rest[n:]
		shown.WriteString(show)
		stopped = stopped || now
		if !strings.HasPrefix(want, shown.String()) {
			t.Fatalf("shown %q of %q with stops %q", shown.String(), text, stops)
		}
		if now {
			break
		}
		// No more is held back than could begin a stop string.
		held := text[shown.Len() : len(text)-len(rest)]
		if held != "" {
			begins := false
			for _, s := range stops {
				begins = begins || strings.HasPrefix(s, held)
			}
			if !begins {
				t.Fatalf("%q is held back with stops %q", held, stops)
			}
		}
	}
	shown.WriteString(m.Flush())
	if shown.String() != want || stopped != wantStop {
		t.Fatalf("shown %q, stopped %v; want %q, %v (text %q, stops %q)", shown.String(), stopped, want, wantStop, text, stops)
	}
}

func TestStopsDoNotDependOnTheSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("abé")), 1, 6, -1)
		stops := rapid.SliceOfN(word, 0, 4).Draw(t, "stops")
		text := rapid.StringOfN(rapid.RuneFrom([]rune("abé")), 0, 40, -1).Draw(t, "text")
		checkStops(t, text, stops, func(left int) int { return rapid.IntRange(1, left).Draw(t, "part") })
	})
}

func TestWhatIsShownIsValidUTF8(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.RuneFrom([]rune("a中文😀é")), 0, 30).Draw(t, "text")
		m, err := NewStopMatcher([]string{"中文a", "😀😀", "é"})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range text {
			if show, _ := m.Push(string(r)); !utf8.ValidString(show) {
				t.Fatalf("shown %q", show)
			}
		}
	})
}

func FuzzStops(f *testing.F) {
	f.Add("xaab", "aab", "ab", byte(2))
	f.Add(">>>>>>> UPDATED", ">>>>>>> UPDATED", "\n", byte(7))
	f.Fuzz(func(t *testing.T, text, a, b string, step byte) {
		if a == "" || b == "" || len(text) > 1<<10 {
			return
		}
		checkStops(t, text, []string{a, b}, func(left int) int { return min(left, 1+int(step)) })
	})
}
