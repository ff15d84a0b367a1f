package grammar

import "fmt"

// Limits of one automaton and of all automata of a program.
const (
	maxStates      = 6000
	maxTotalStates = 30000
)

// budget is how many states may still be made.
type budget int

var errStates = fmt.Errorf("takes more than %d states with all patterns before: simplify them", maxTotalStates)

// flags of a state of a dfa.
type flags uint8

const (
	accepts flags = 1 << iota // the automaton may end here
	unit                      // a counted character was just completed
	within                    // inside of a counted character
)

// dfa is a deterministic automaton over bytes. State 0 is the start. Every state can reach one that accepts.
type dfa struct {
	classes [256]uint8
	width   int
	next    []int32 // state*width + class -> state, or -1
	flags   []flags
	follow  *[256]bool // bytes that may come after the end; nil: any
}

func (d *dfa) step(state int32, b byte) int32 {
	return d.next[int(state)*d.width+int(d.classes[b])]
}

// explore builds the automaton whose states are values of S. Those from which no end can be reached are left out; nil
// without an error means that nothing matches. The states made, left out or not, are taken from the budget if there is one.
func explore[S comparable](left *budget, start S, step func(S, byte) (S, bool), of func(S) flags) (*dfa, error) {
	at := map[S]int32{start: 0}
	states := []S{start}
	var rows [][256]int32
	for i := 0; i < len(states); i++ {
		if left != nil {
			if *left--; *left < 0 {
				return nil, errStates
			}
		}
		var row [256]int32
		for b := range 256 {
			row[b] = -1
			s, ok := step(states[i], byte(b))
			if !ok {
				continue
			}
			id, known := at[s]
			if !known {
				if len(states) == maxStates {
					return nil, fmt.Errorf("needs an automaton of more than %d states: simplify it", maxStates)
				}
				id = int32(len(states))
				at[s], states = id, append(states, s)
			}
			row[b] = id
		}
		rows = append(rows, row)
	}
	fl := make([]flags, len(states))
	for i, s := range states {
		fl[i] = of(s)
	}
	return prune(rows, fl), nil
}

// prune drops the states that reach no accepting one and joins bytes that all states treat alike.
func prune(rows [][256]int32, fl []flags) *dfa {
	from := make([][]int32, len(rows))
	for i := range rows {
		last := int32(-1)
		for _, to := range rows[i] {
			if to >= 0 && to != last {
				from[to] = append(from[to], int32(i))
				last = to
			}
		}
	}
	live := make([]bool, len(rows))
	var todo []int32
	for i, f := range fl {
		if f&accepts != 0 {
			live[i] = true
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range from[s] {
			if !live[p] {
				live[p] = true
				todo = append(todo, p)
			}
		}
	}
	if !live[0] {
		return nil
	}
	name := make([]int32, len(rows))
	d := &dfa{}
	for i := range rows {
		name[i] = -1
		if live[i] {
			name[i] = int32(len(d.flags))
			d.flags = append(d.flags, fl[i])
		}
	}
	n := len(d.flags)
	columns := map[string]uint8{}
	var kept [][]int32
	key := make([]byte, 0, 4*n)
	for b := range 256 {
		key = key[:0]
		column := make([]int32, 0, n)
		for i := range rows {
			if !live[i] {
				continue
			}
			to := rows[i][b]
			if to >= 0 {
				to = name[to]
			}
			column = append(column, to)
			key = append(key, byte(to), byte(to>>8), byte(to>>16), byte(to>>24))
		}
		c, ok := columns[string(key)]
		if !ok {
			c = uint8(len(kept)) // at most 256 columns
			columns[string(key)] = c
			kept = append(kept, column)
		}
		d.classes[b] = c
	}
	d.width = len(kept)
	d.next = make([]int32, n*d.width)
	for c, column := range kept {
		for s, to := range column {
			d.next[s*d.width+c] = to
		}
	}
	return d
}

// words is the automaton of a list of byte strings.
func words(left *budget, list []string) (*dfa, error) {
	type edge struct {
		node int32
		b    byte
	}
	edges := map[edge]int32{}
	ends := map[int32]bool{}
	nodes := int32(1)
	for _, w := range list {
		node := int32(0)
		for i := range len(w) {
			to, ok := edges[edge{node, w[i]}]
			if !ok {
				to = nodes
				nodes++
				edges[edge{node, w[i]}] = to
			}
			node = to
		}
		ends[node] = true
	}
	return explore(left, 0, func(node int32, b byte) (int32, bool) {
		to, ok := edges[edge{node, b}]
		return to, ok
	}, func(node int32) flags {
		if ends[node] {
			return accepts
		}
		return 0
	})
}
