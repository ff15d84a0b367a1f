package checkpoint

import (
	"errors"
	"fmt"
	"strings"
)

// maxNames is how many tensor names a report spells out per kind of fault.
const maxNames = 10

// nameList counts names and keeps the first few.
type nameList struct {
	count int
	first []string
}

func (l *nameList) add(name string) {
	l.count++
	if len(l.first) < maxNames {
		l.first = append(l.first, name)
	}
}

func (l *nameList) String() string {
	text := strings.Join(l.first, ", ")
	if l.count > len(l.first) {
		text += ", ..."
	}
	return text
}

// faults collects what is wrong with a checkpoint, so that one message shows all of it.
type faults struct {
	shards  []error
	kinds   []string // in order of first appearance
	tensors map[string]*nameList
}

func (f *faults) shard(name string, err error) {
	f.shards = append(f.shards, fmt.Errorf("%s %w", name, err))
}

func (f *faults) tensor(kind, name string) {
	if f.tensors == nil {
		f.tensors = map[string]*nameList{}
	}
	l := f.tensors[kind]
	if l == nil {
		l = &nameList{}
		f.tensors[kind] = l
		f.kinds = append(f.kinds, kind)
	}
	l.add(name)
}

func (f *faults) err() error {
	errs := f.shards
	for _, kind := range f.kinds {
		l := f.tensors[kind]
		errs = append(errs, fmt.Errorf("%d tensors %s: %s", l.count, kind, l))
	}
	return errors.Join(errs...)
}
