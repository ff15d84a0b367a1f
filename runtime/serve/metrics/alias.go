package metrics

import (
	"fmt"
	"maps"
	"slices"
)

// alias says how the series of another family are shown.
type alias struct {
	fixed  string            // labels before those of the series
	label  string            // instead of the family's only one; "" = labels stay
	values map[string]string // instead of that label's; series that then agree are added
}

// Alias shows the metric of under another name as well. Labels, name and value in turn, come before those that it has.
func (s *Set) Alias(name, of string, labels ...string) {
	s.alias(name, of, alias{fixed: pairs(labels)})
}

// Merge is Alias for a counter with one label, which gets another name, and other values where values has them.
func (s *Set) Merge(name, of, label string, values map[string]string, labels ...string) {
	s.alias(name, of, alias{fixed: pairs(labels), label: label, values: values})
}

func pairs(labels []string) string {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return render(names, values)
}

func (s *Set) alias(name, of string, as alias) {
	s.mu.Lock()
	i := slices.IndexFunc(s.families, func(f *family) bool { return f.name == of })
	if i < 0 {
		s.mu.Unlock()
		panic(fmt.Sprintf("metric %s: there is no %s", name, of))
	}
	f := s.families[i]
	s.mu.Unlock()
	s.add(&family{name: name, help: f.help, kind: f.kind, bounds: f.bounds, of: f, as: as})
}

// all are the series that a family shows.
func (f *family) all() []*series {
	if f.of == nil {
		return slices.Collect(maps.Values(f.series))
	}
	shown := map[string]*series{}
	for _, x := range f.of.series {
		labels := x.labels
		if f.as.label != "" {
			value := x.values[0]
			if v, ok := f.as.values[value]; ok {
				value = v
			}
			labels = render([]string{f.as.label}, []string{value})
		}
		labels = join(f.as.fixed, labels)
		sum := shown[labels]
		if sum == nil {
			sum = &series{labels: labels, counts: make([]uint64, len(x.counts))}
			shown[labels] = sum
		}
		sum.value += x.value
		for i, n := range x.counts {
			sum.counts[i] += n
		}
	}
	return slices.Collect(maps.Values(shown))
}
