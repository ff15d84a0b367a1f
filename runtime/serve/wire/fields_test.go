package wire

import (
	"math"
	"strings"
	"testing"
)

func TestFieldsNameTheFirstThingThatIsWrong(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{}`, ""},
		{`{"s":"x","i":16.0,"f":2,"b":true,"o":{"i":1},"l":["a"],"t":["a"],"u":1}`, ""},
		{`{"s":null,"i":null,"o":null,"l":null}`, ""},
		{`{"s":1}`, "s must be a string, not 1"},
		{`{"i":"x","f":"y"}`, `i must be an integer, not "x"`},
		{`{"i":1.5}`, "i must be an integer, not 1.5"},
		{`{"i":-1}`, "i must be from 0 to 100, not -1"},
		{`{"i":1e300}`, "i must be an integer"},
		{`{"f":9}`, "f must be from 0 to 5, not 9"},
		{`{"b":1}`, "b must be true or false, not 1"},
		{`{"o":[]}`, "o must be an object"},
		{`{"o":{"i":7}}`, "o.i must be from 0 to 5, not 7"},
		{`{"l":{}}`, "l must be a list"},
		{`{"t":[1]}`, "t must be a string or a list of strings"},
		{`{"t":["a","b","c"]}`, "t has 3 strings; at most 2"},
		{`{"t":[""]}`, "t has an empty string"},
		{`{"s":1` + strings.Repeat(" ", 10) + `}`, "s must be a string"},
		{"{\"s\":[1,\n\t2,\"\xff\"]}", "s must be a string, not [1, 2,\"\uFFFD\"]"},
		{``, "the request has no body: send a JSON object"},
		{`{"s":`, "the body is not JSON"},
		{`"x"`, "the body must be a JSON object"},
	} {
		f, err := Object([]byte(c.body))
		if err == nil {
			var s string
			var i, j int
			var x float64
			var b bool
			f.String("s", &s)
			f.Int("i", &i, 0, 100)
			f.Float("f", &x, 0, 5)
			f.Bool("b", &b)
			if o := f.Object("o"); o != nil {
				o.Int("i", &j, 0, 5)
			}
			f.List("l")
			f.Strings("t", 2)
			err = f.Err(false)
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (c.want == "" || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: %q, want %q", c.body, got, c.want)
		}
	}
}

func TestStrictFindsWhatNobodyAskedFor(t *testing.T) {
	f, err := Object([]byte(`{"a":1,"o":{"b":1,"c":null},"z":1}`))
	if err != nil {
		t.Fatal(err)
	}
	var n int
	f.Int("a", &n, 0, math.MaxInt)
	o := f.Object("o")
	o.Ignore("b")
	f.Ignore("z")
	if err := f.Err(false); err != nil {
		t.Error(err)
	}
	if err := f.Err(true); err == nil || AsError(err).Param != "o.c" {
		t.Errorf("strict: %v", err)
	}
	o.Has("c")
	if err := f.Err(true); err != nil {
		t.Error(err)
	}
}
