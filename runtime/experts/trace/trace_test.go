package trace

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// scores runs every policy.
func scores(t testing.TB, tr *Trace, slots, moves int) map[string]Score {
	t.Helper()
	all := map[string]Score{}
	for _, p := range Policies() {
		s, err := p.Run(tr, slots, moves)
		if err != nil {
			t.Fatal(err)
		}
		if s.Hits+s.Misses != tr.Accesses() {
			t.Errorf("%s: %s counts %d accesses of %d", tr.Name, p.Name, s.Hits+s.Misses, tr.Accesses())
		}
		all[p.Name] = s
	}
	return all
}

// On skewed traces the policy finds more than LRU, even LRU that copies whatever missed, with a tenth of its copies, and
// closes at least half of the gap between doing nothing and the optimum.
func TestSkewedTracesBeatLRU(t *testing.T) {
	for _, tr := range Standard() {
		if tr.Name == "uniform" {
			continue
		}
		for _, part := range []int{8, 4, 2} {
			slots := tr.Layers * tr.Experts / part
			s := scores(t, tr, slots, 4)
			own, least, free, best := s["cedrun"], s["first fill"], s["LRU, unbounded"], s["optimum"]
			if own.Hits <= s["LRU, bounded"].Hits || own.Hits <= free.Hits {
				t.Errorf("%s, %d slots: %d hits, LRU %d with as many copies and %d with all", tr.Name, slots, own.Hits, s["LRU, bounded"].Hits, free.Hits)
			}
			if 10*own.Moves > free.Moves {
				t.Errorf("%s, %d slots: %d copies, LRU makes %d", tr.Name, slots, own.Moves, free.Moves)
			}
			if 2*(own.Hits-least.Hits) < best.Hits-least.Hits {
				t.Errorf("%s, %d slots: %d hits of %d that are possible; the first fill alone has %d", tr.Name, slots, own.Hits, best.Hits, least.Hits)
			}
		}
	}
}

// Where nothing can be learned, little is copied in vain.
func TestUniformTracesAreLeftAlone(t *testing.T) {
	all := Standard()
	tr := all[len(all)-1]
	for _, part := range []int{8, 4, 2} {
		s := scores(t, tr, tr.Layers*tr.Experts/part, 4)
		if n := s["cedrun"].Moves; n > len(tr.Steps) {
			t.Errorf("%d copies in %d steps that use all experts alike", n, len(tr.Steps))
		}
	}
}

// The demo model reading a text that it has not seen.
func TestRecordedTrace(t *testing.T) {
	f, err := os.Open("../../../testdata/experts/demo.trace")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := Read("demo", f)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []int{4, 2} {
		s := scores(t, tr, tr.Layers*tr.Experts/part, 4)
		if s["cedrun"].Hits <= s["first fill"].Hits || s["cedrun"].Hits <= s["LRU, unbounded"].Hits || s["cedrun"].Hits > s["optimum"].Hits {
			t.Errorf("1/%d of the experts: %+v", part, s)
		}
	}
}

// No policy has more hits than the optimum, and with room for all nothing misses.
func TestNothingBeatsTheOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := &Trace{Layers: rapid.IntRange(1, 3).Draw(t, "layers"), Experts: rapid.IntRange(1, 8).Draw(t, "experts")}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			step := make([][]int32, tr.Layers)
			for l := range step {
				step[l] = rapid.SliceOfN(rapid.Int32Range(0, int32(tr.Experts-1)), 0, 4).Draw(t, "ids")
			}
			tr.Add(step)
		}
		all := tr.Layers * tr.Experts
		slots, moves := rapid.IntRange(1, all).Draw(t, "slots"), rapid.IntRange(1, 4).Draw(t, "moves")
		best := Optimum(tr, slots)
		for _, p := range Policies() {
			s, err := p.Run(tr, slots, moves)
			if err != nil {
				t.Fatal(err)
			}
			if s.Hits > best.Hits {
				t.Fatalf("%s has %d hits, the optimum %d", p.Name, s.Hits, best.Hits)
			}
			if slots == all && s.Misses > 0 {
				t.Fatalf("%s misses %d with room for all", p.Name, s.Misses)
			}
		}
	})
}

func TestTheOptimumKeepsWhatIsNeededNext(t *testing.T) {
	tr := &Trace{Layers: 1, Experts: 4}
	for _, id := range []int32{2, 3, 2, 3, 0, 2} {
		tr.Add([][]int32{{id}})
	}
	// Two slots, with 0 and 1 in them: 2 and 3 take the place of 1 and, as 0 comes later than both, of 0.
	if got, want := Optimum(tr, 2), (Score{Hits: 3, Misses: 3, Moves: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWrittenTracesAreReadBack(t *testing.T) {
	want := Generate(Shape{Name: "t", Layers: 2, Experts: 9, TopK: 3, Steps: 5, Rows: 2, Skew: 1})
	want.Add([][]int32{nil, {4, 4, 1}})
	var b bytes.Buffer
	if err := want.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read("t", &b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBadTracesAreOneSentence(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "empty",
		"x":                                    "not a trace of experts",
		"cedrun-experts-1 0 4":                 `"0" is no number`,
		"cedrun-experts-1 1 99999999":          `"99999999" is no number`,
		"cedrun-experts-1 2 4\n1,2":            "t:2: 1 layers where 2 are meant",
		"cedrun-experts-1 2 4\n1,2 3\n1 2,4":   `t:3: "4" is none of 4 experts`,
		"cedrun-experts-1 2 4\n1,2 3\n1 2,,-1": `t:3: "" is none`,
	} {
		if _, err := Read("t", strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("cedrun-experts-1 2 4\n1,2 3\n- 2\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tr, err := Read("t", bytes.NewReader(b))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := tr.Write(&again); err != nil {
			t.Fatal(err)
		}
		got, err := Read("t", &again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tr, got); diff != "" {
			t.Fatal(diff)
		}
	})
}
