package metrics

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ContentType is that of what Write writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Set holds metrics in the order in which they were made. It is safe for concurrent use.
type Set struct {
	mu       sync.Mutex
	families []*family
}

type family struct {
	name, help, kind string
	labels           []string
	bounds           []float64 // of a histogram, ascending
	gauge            func() float64
	gauges           map[string]func() float64 // by labels
	series           map[string]*series
	of               *family // whose values these are, for an alias
	as               alias
}

type series struct {
	labels string // name="value",...
	values []string
	value  float64
	counts []uint64 // per bound, and one beyond the last
}

func (s *Set) add(f *family) *family {
	f.series = map[string]*series{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.families = append(s.families, f)
	if len(f.labels) == 0 && f.gauge == nil && f.gauges == nil && f.of == nil {
		f.at() // shown from the start
	}
	return f
}

func (f *family) at(values ...string) *series {
	key := strings.Join(values, "\xff")
	x := f.series[key]
	if x == nil {
		if len(values) != len(f.labels) {
			panic(fmt.Sprintf("metric %s: %d label values for %d labels", f.name, len(values), len(f.labels)))
		}
		x = &series{labels: render(f.labels, values), values: values, counts: make([]uint64, len(f.bounds)+1)}
		f.series[key] = x
	}
	return x
}

func render(names, values []string) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = names[i] + `="` + escape(v) + `"`
	}
	return strings.Join(parts, ",")
}

// Counter only grows.
type Counter struct {
	s *Set
	f *family
}

// Counter makes a counter.
func (s *Set) Counter(name, help string, labels ...string) Counter {
	return Counter{s, s.add(&family{name: name, help: help, kind: "counter", labels: labels})}
}

// Add counts n at the given label values.
func (c Counter) Add(n float64, values ...string) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.f.at(values...).value += n
}

// Gauge makes a gauge whose value is asked for when it is written.
func (s *Set) Gauge(name, help string, value func() float64) {
	s.add(&family{name: name, help: help, kind: "gauge", gauge: value})
}

// Gauges makes a gauge with a series for each value of a label, asked for when it is written.
func (s *Set) Gauges(name, help, label string, values map[string]func() float64) {
	s.asked("gauge", name, help, label, values)
}

// Totals makes a counter that somebody else counts, with a series for each value of a label.
func (s *Set) Totals(name, help, label string, values map[string]func() float64) {
	s.asked("counter", name, help, label, values)
}

func (s *Set) asked(kind, name, help, label string, values map[string]func() float64) {
	f := &family{name: name, help: help, kind: kind, gauges: map[string]func() float64{}}
	for v, value := range values {
		f.gauges[label+`="`+escape(v)+`"`] = value
	}
	s.add(f)
}

// Total makes a counter that somebody else counts, asked for when it is written.
func (s *Set) Total(name, help string, value func() float64) {
	s.add(&family{name: name, help: help, kind: "counter", gauge: value})
}

// Info makes a gauge of 1 whose labels, name and value in turn, are what matters.
func (s *Set) Info(name, help string, pairs ...string) {
	var labels, values []string
	for i := 0; i+1 < len(pairs); i += 2 {
		labels, values = append(labels, pairs[i]), append(values, pairs[i+1])
	}
	f := s.add(&family{name: name, help: help, kind: "gauge", labels: labels})
	s.mu.Lock()
	defer s.mu.Unlock()
	f.at(values...).value = 1
}

// Histogram counts observations up to each of its bounds.
type Histogram struct {
	s *Set
	f *family
}

// Histogram makes a histogram; bounds ascend.
func (s *Set) Histogram(name, help string, bounds []float64, labels ...string) Histogram {
	return Histogram{s, s.add(&family{name: name, help: help, kind: "histogram", labels: labels, bounds: bounds})}
}

// Observe counts v at the given label values.
func (h Histogram) Observe(v float64, values ...string) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	x := h.f.at(values...)
	x.value += v
	i, _ := slices.BinarySearch(h.f.bounds, v)
	x.counts[i]++
}

// Write writes all metrics.
func (s *Set) Write(w io.Writer) error {
	var b strings.Builder
	s.mu.Lock()
	families := slices.Clone(s.families)
	s.mu.Unlock()
	for _, f := range families {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.name, strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(f.help), f.name, f.kind)
		from, fixed := f, ""
		if f.of != nil {
			from, fixed = f.of, f.as.fixed
		}
		if from.gauge != nil { // may take locks of its own
			line(&b, f.name, fixed, from.gauge())
			continue
		}
		for _, labels := range slices.Sorted(maps.Keys(from.gauges)) {
			line(&b, f.name, join(fixed, labels), from.gauges[labels]())
		}
		s.mu.Lock()
		f.write(&b)
		s.mu.Unlock()
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (f *family) write(b *strings.Builder) {
	all := f.all()
	slices.SortFunc(all, func(x, y *series) int { return cmp.Compare(x.labels, y.labels) })
	for _, x := range all {
		if f.kind != "histogram" {
			line(b, f.name, x.labels, x.value)
			continue
		}
		sum := uint64(0)
		for i, n := range x.counts {
			sum += n
			bound := math.Inf(1)
			if i < len(f.bounds) {
				bound = f.bounds[i]
			}
			line(b, f.name+"_bucket", join(x.labels, `le="`+number(bound)+`"`), float64(sum))
		}
		line(b, f.name+"_sum", x.labels, x.value)
		line(b, f.name+"_count", x.labels, float64(sum))
	}
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "," + b
}

func line(b *strings.Builder, name, labels string, v float64) {
	b.WriteString(name)
	if labels != "" {
		b.WriteString("{" + labels + "}")
	}
	b.WriteString(" " + number(v) + "\n")
}

func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	case v == math.Trunc(v) && math.Abs(v) < 1<<53:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func escape(v string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(v)
}
