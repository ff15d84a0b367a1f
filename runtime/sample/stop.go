package sample

import (
	"fmt"
	"slices"
)

// MaxStops is the largest number of stop strings of one request.
const MaxStops = 16

// StopMatcher cuts a stream of text at the first stop string. How the text is split into parts makes no difference: the
// stream ends where the first byte completes a stop string, and the longest one that ends there is left out.
type StopMatcher struct {
	stops   []string
	fail    [][]int // per stop, by matched length: the next shorter prefix that is also a suffix
	matched []int   // per stop: length of its longest prefix that the text ends with
	held    []byte  // text not yet emitted
	stop    int     // index of the stop string found, or -1
}

// NewStopMatcher prepares for up to MaxStops stop strings, none of them empty. No stop strings at all is fine.
func NewStopMatcher(stops []string) (*StopMatcher, error) {
	if len(stops) > MaxStops {
		return nil, fmt.Errorf("stop has %d strings, want at most %d", len(stops), MaxStops)
	}
	m := &StopMatcher{stops: slices.Clone(stops), matched: make([]int, len(stops)), stop: -1}
	for i, s := range stops {
		if s == "" {
			return nil, fmt.Errorf("stop string %d is empty", i)
		}
		fail := make([]int, len(s)+1)
		for n, k := 1, 0; n < len(s); n++ {
			for k > 0 && s[n] != s[k] {
				k = fail[k]
			}
			if s[n] == s[k] {
				k++
			}
			fail[n+1] = k
		}
		m.fail = append(m.fail, fail)
	}
	return m, nil
}

// Push takes the next part of the text and returns what may be shown: all but the longest end that could begin a stop
// string. When stopped is true, the stream is over and later calls return nothing.
func (m *StopMatcher) Push(text string) (show string, stopped bool) {
	if m.stop >= 0 {
		return "", true
	}
	for i := range len(text) {
		m.held = append(m.held, text[i])
		if m.advance(text[i]); m.stop >= 0 {
			return m.release(len(m.stops[m.stop])), true
		}
	}
	hold := 0
	for _, n := range m.matched {
		hold = max(hold, n)
	}
	return m.release(hold), false
}

func (m *StopMatcher) advance(b byte) {
	for i, s := range m.stops {
		k := m.matched[i]
		for k > 0 && s[k] != b {
			k = m.fail[i][k]
		}
		if s[k] == b {
			k++
		}
		m.matched[i] = k
		if k == len(s) && (m.stop < 0 || k > len(m.stops[m.stop])) {
			m.stop = i
		}
	}
}

// release returns the held text but for its last keep bytes.
func (m *StopMatcher) release(keep int) string {
	n := len(m.held) - keep
	show := string(m.held[:n])
	m.held = m.held[:copy(m.held, m.held[n:])]
	return show
}

// Flush ends a stream that no stop string ended and returns the text held back. After a stop it returns "".
func (m *StopMatcher) Flush() string {
	if m.stop >= 0 {
		return ""
	}
	clear(m.matched)
	return m.release(0)
}

// Matched returns the stop string that ended the stream, and whether there was one.
func (m *StopMatcher) Matched() (stop string, ok bool) {
	if m.stop < 0 {
		return "", false
	}
	return m.stops[m.stop], true
}
