package grammar

import (
	"fmt"
	"math"
	"slices"
)

// MaxDepth bounds how deep calls of recursive rules, and with them values of any form, are nested.
const MaxDepth = 48

// maxInsts bounds a program.
const maxInsts = 50_000

// never is the height of an instruction from which no end is reached.
const never = math.MaxInt32

type op uint8

const (
	opByte   op = iota // reads b, goes to next
	opWord             // reads what dfa accepts, goes to next
	opSymbol           // reads a control token
	opSplit            // goes to all of alt
	opCall             // runs the rule at alt[0], then goes to next
	opReturn
	opEnd // the end of the output
)

type inst struct {
	op      op
	b       byte
	symbol  int32
	next    int32
	min     int32 // characters of the word; max -1: any number
	max     int32
	height  int32 // calls that must be nested at least from here to the end of the rule
	alt     []int32
	dfa     *dfa
	forward bool // alt is not known yet
}

// program is built backwards: what comes after an instruction exists before it.
type program struct {
	insts []inst
	left  budget // for automata
	err   error
}

func (p *program) add(i inst) int32 {
	if len(p.insts) >= maxInsts {
		p.fail(fmt.Errorf("is too large: the grammar takes more than %d instructions", maxInsts))
		return 0
	}
	p.insts = append(p.insts, i)
	return int32(len(p.insts) - 1)
}

func (p *program) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// literal reads s, then goes to next.
func (p *program) literal(s string, next int32) int32 {
	for i := len(s) - 1; i >= 0; i-- {
		next = p.add(inst{op: opByte, b: s[i], next: next})
	}
	return next
}

// split goes to one of several places.
func (p *program) split(to ...int32) int32 {
	if len(to) == 1 {
		return to[0]
	}
	return p.add(inst{op: opSplit, alt: slices.Clone(to)})
}

// later is a place that is set once it is known.
func (p *program) later() int32 { return p.add(inst{op: opSplit, forward: true}) }

func (p *program) set(at, to int32) {
	if p.err == nil {
		p.insts[at].alt, p.insts[at].forward = []int32{to}, false
	}
}

// nothing is a place from which no end is reached.
func (p *program) nothing() int32 { return p.split() }

func (p *program) symbol(id, next int32) int32 {
	return p.add(inst{op: opSymbol, symbol: id, next: next})
}

// call runs a rule, then goes to next.
func (p *program) call(rule, next int32) int32 {
	return p.add(inst{op: opCall, alt: []int32{rule}, next: next})
}

// word reads what d accepts, with min to max counted characters (max -1: any number). A nil d accepts nothing.
func (p *program) word(d *dfa, min, max, next int32) int32 {
	if d == nil || max >= 0 && min > max {
		return p.nothing()
	}
	return p.add(inst{op: opWord, dfa: d, min: min, max: max, next: next})
}

// measure computes the heights: the least fixed point. It reports whether the end can be reached from start.
func (p *program) measure(start int32) bool {
	users := make([][]int32, len(p.insts))
	for i := range p.insts {
		x := &p.insts[i]
		x.height = never
		for _, to := range x.alt {
			users[to] = append(users[to], int32(i))
		}
		if x.op != opSplit && x.op != opReturn && x.op != opEnd {
			users[x.next] = append(users[x.next], int32(i))
		}
	}
	todo := make([]int32, 0, len(p.insts))
	for i := range p.insts {
		todo = append(todo, int32(len(p.insts)-1-i))
	}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		x := &p.insts[i]
		h := int32(never)
		switch x.op {
		case opReturn, opEnd:
			h = 0
		case opSplit:
			for _, to := range x.alt {
				h = min(h, p.insts[to].height)
			}
		case opCall:
			if rule := p.insts[x.alt[0]].height; rule != never {
				h = max(rule+1, p.insts[x.next].height)
			}
		default:
			h = p.insts[x.next].height
		}
		if h < x.height {
			x.height = h
			todo = append(todo, users[i]...)
		}
	}
	return p.insts[start].height <= MaxDepth
}
