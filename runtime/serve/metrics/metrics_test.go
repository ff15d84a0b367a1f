package metrics

import (
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	var s Set
	c := s.Counter("a_total", "Things, \\ and\nlines.", "kind", "code")
	c.Add(2, "x", `q"\`+"\n")
	c.Add(0.5, "b", "200")
	c.Add(1, "b", "200")
	s.Counter("b_total", "Nothing yet.")
	s.Gauge("c", "Now.", func() float64 { return 0.25 })
	h := s.Histogram("d_seconds", "Times.", []float64{0.1, 1}, "route")
	for _, v := range []float64{0.05, 0.1, 0.5, 7} {
		h.Observe(v, "r")
	}
	s.Histogram("e_seconds", "None.", []float64{1})
	s.Info("f_info", "It.", "version", "v1", "go", "go1")
	s.Alias("o:c", "c", "model", `"m"`)
	s.Alias("o:d", "d_seconds", "model", "m")
	ends := s.Counter("g_total", "Ends.", "finish")
	for _, finish := range []string{"stop", "call", "cut"} {
		ends.Add(1, finish)
	}
	s.Merge("o:g_total", "g_total", "reason", map[string]string{"call": "stop"}, "model", "m")
	var b strings.Builder
	if err := s.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `# HELP a_total Things, \\ and\nlines.
# TYPE a_total counter
a_total{kind="b",code="200"} 1.5
a_total{kind="x",code="q\"\\\n"} 2
# HELP b_total Nothing yet.
# TYPE b_total counter
b_total 0
# HELP c Now.
# TYPE c gauge
c 0.25
# HELP d_seconds Times.
# TYPE d_seconds histogram
d_seconds_bucket{route="r",le="0.1"} 2
d_seconds_bucket{route="r",le="1"} 3
d_seconds_bucket{route="r",le="+Inf"} 4
d_seconds_sum{route="r"} 7.65
d_seconds_count{route="r"} 4
# HELP e_seconds None.
# TYPE e_seconds histogram
e_seconds_bucket{le="1"} 0
e_seconds_bucket{le="+Inf"} 0
e_seconds_sum 0
e_seconds_count 0
# HELP f_info It.
# TYPE f_info gauge
f_info{version="v1",go="go1"} 1
# HELP o:c Now.
# TYPE o:c gauge
o:c{model="\"m\""} 0.25
# HELP o:d Times.
# TYPE o:d histogram
o:d_bucket{model="m",route="r",le="0.1"} 2
o:d_bucket{model="m",route="r",le="1"} 3
o:d_bucket{model="m",route="r",le="+Inf"} 4
o:d_sum{model="m",route="r"} 7.65
o:d_count{model="m",route="r"} 4
# HELP g_total Ends.
# TYPE g_total counter
g_total{finish="call"} 1
g_total{finish="cut"} 1
g_total{finish="stop"} 1
# HELP o:g_total Ends.
# TYPE o:g_total counter
o:g_total{model="m",reason="cut"} 1
o:g_total{model="m",reason="stop"} 2
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
