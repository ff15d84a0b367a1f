package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// scanner reads JSON left to right without building values: a release has 96,085 tensors in 13 MB of
// headers, of which only names, shapes and offsets are kept.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("%s at byte %d", fmt.Sprintf(format, args...), s.i)
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// next skips white space and returns the byte there, 0 at the end.
func (s *scanner) next() byte {
	s.space()
	if s.i == len(s.b) {
		return 0
	}
	return s.b[s.i]
}

func (s *scanner) expect(c byte) error {
	if got := s.next(); got != c {
		if s.i == len(s.b) {
			return s.fail("JSON ends where %q should follow", c)
		}
		return s.fail("%q instead of %q", got, c)
	}
	s.i++
	return nil
}

// end checks that only white space is left.
func (s *scanner) end() error {
	if s.next() != 0 || s.i < len(s.b) {
		return s.fail("data after the JSON object")
	}
	return nil
}

// str reads a string. The result may alias the input.
func (s *scanner) str() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start, escaped := s.i, false
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; {
		case c == '\\':
			escaped = true
			s.i++
		case c < ' ':
			return nil, s.fail("control character in a string")
		case c == '"':
			text := s.b[start:s.i]
			s.i++
			if escaped {
				var out string
				if err := json.Unmarshal(s.b[start-1:s.i], &out); err != nil {
					return nil, s.fail("bad escape in a string")
				}
				return []byte(out), nil
			}
			if !utf8.Valid(text) {
				return nil, s.fail("string is not UTF-8")
			}
			return text, nil
		}
	}
	return nil, s.fail("JSON ends inside a string")
}

// size reads a non-negative integer.
func (s *scanner) size() (int64, error) {
	s.space()
	start := s.i
	var v int64
	for ; s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9'; s.i++ {
		digit := int64(s.b[s.i] - '0')
		if v > (1<<63-1-digit)/10 {
			return 0, s.fail("number does not fit 63 bits")
		}
		v = 10*v + digit
	}
	if s.i == start || s.b[start] == '0' && s.i > start+1 {
		return 0, s.fail("expected a non-negative integer")
	}
	if s.i < len(s.b) {
		switch s.b[s.i] {
		case '.', 'e', 'E':
			return 0, s.fail("expected an integer, not a fraction")
		}
	}
	return v, nil
}

// object calls member with each key, positioned at its value, which member must consume.
func (s *scanner) object(member func(key []byte) error) error {
	return s.list('{', '}', func() error {
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return member(key)
	})
}

// array calls element at each element, which element must consume.
func (s *scanner) array(element func() error) error { return s.list('[', ']', element) }

func (s *scanner) list(open, shut byte, item func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.next() == shut {
		s.i++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch s.next() {
		case ',':
			s.i++
		case shut:
			s.i++
			return nil
		default:
			return s.fail("expected ',' or %q", shut)
		}
	}
}

var errDepth = errors.New("JSON is nested too deep")

// skip passes over any value.
func (s *scanner) skip(depth int) error {
	if depth == 0 {
		return errDepth
	}
	switch s.next() {
	case '{':
		return s.object(func([]byte) error { return s.skip(depth - 1) })
	case '[':
		return s.array(func() error { return s.skip(depth - 1) })
	case '"':
		_, err := s.str()
		return err
	}
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '+', c == '.', c == 'E':
			s.i++
			continue
		}
		break
	}
	if !json.Valid(s.b[start:s.i]) {
		return s.fail("expected a JSON value")
	}
	return nil
}
