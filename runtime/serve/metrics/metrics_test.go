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
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
