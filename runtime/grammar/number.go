package grammar

import (
	"fmt"
	"strings"
)

// Digits that a number may have.
const (
	maxWhole    = 19
	maxFraction = 17
	maxExponent = 2
	maxMultiple = 256
)

// limit is one end of a range of magnitudes: digits without leading or trailing zeros.
type limit struct {
	whole, fraction string
	open            bool // the end itself is not in the range
	set             bool
}

// numberRange describes numbers.
type numberRange struct {
	integer  bool
	digits   int // after the point, at most
	multiple int // integers: a multiple of it; 0 = any
	min, max decimal
}

// decimal is an exact bound.
type decimal struct {
	limit
	negative bool
}

func (d decimal) zero() bool { return d.whole == "" && d.fraction == "" }

// parseDecimal reads a JSON number of moderate size.
func parseDecimal(s string) (decimal, error) {
	d := decimal{limit: limit{set: true}}
	given := s
	if strings.HasPrefix(s, "-") {
		d.negative, s = true, s[1:]
	}
	exponent := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if _, err := fmt.Sscanf(s[i+1:], "%d", &exponent); err != nil || exponent < -maxWhole || exponent > maxWhole {
			return d, fmt.Errorf("is %s: its exponent is out of range", given)
		}
		s = s[:i]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	for ; exponent > 0; exponent-- {
		if fraction == "" {
			fraction = "0"
		}
		whole, fraction = whole+fraction[:1], fraction[1:]
	}
	for ; exponent < 0; exponent++ {
		if whole == "" {
			whole = "0"
		}
		whole, fraction = whole[:len(whole)-1], whole[len(whole)-1:]+fraction
	}
	d.whole, d.fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	if d.zero() {
		d.negative = false
	}
	if len(d.whole) > maxWhole || len(d.fraction) > maxFraction {
		return d, fmt.Errorf("is %s: bounds have at most %d digits before the point and %d after it", given, maxWhole, maxFraction)
	}
	return d, nil
}

// compare orders two decimals.
func (d decimal) compare(o decimal) int {
	if d.negative != o.negative {
		if d.negative {
			return -1
		}
		return 1
	}
	c := compareDigits(d.limit, o.limit)
	if d.negative {
		return -c
	}
	return c
}

func compareDigits(a, b limit) int {
	if len(a.whole) != len(b.whole) {
		return len(a.whole) - len(b.whole)
	}
	if c := strings.Compare(a.whole, b.whole); c != 0 {
		return c
	}
	return strings.Compare(a.fraction, b.fraction) // no trailing zeros
}

// numberPhase is where in a number the automaton is.
type numberPhase uint8

const (
	atSign numberPhase = iota
	atWhole
	inWhole
	afterZero
	atFraction
	inFraction
	atExponent
	afterExponentSign
	inExponent
)

type numberState struct {
	phase    numberPhase
	negative bool
	n        uint8 // digits of the part
	lo, hi   int8  // how the digits compare with those of the bounds
	rest     int16 // modulo multiple
}

// dfa is the automaton of the range; nil if nothing is in it.
func (r *numberRange) dfa(left *budget) (*dfa, error) {
	free := !r.min.set && !r.max.set && r.multiple == 0 && !r.integer && r.digits >= maxFraction
	return explore(left, numberState{}, func(s numberState, b byte) (numberState, bool) { return r.step(s, b, free) }, func(s numberState) flags {
		if r.in(s) {
			return accepts
		}
		return 0
	})
}

// bounds are those of the magnitude of numbers of one sign. ok is false when there are none.
func (r *numberRange) bounds(negative bool) (lo, hi limit, ok bool) {
	from, to := r.min, r.max
	if negative {
		from, to = r.max, r.min
	}
	if from.set && from.negative == negative && !from.zero() || from.set && from.zero() && from.open {
		lo = from.limit
	}
	if to.set {
		if negative && to.zero() || to.negative != negative && !to.zero() {
			return lo, hi, false
		}
		hi = to.limit
	}
	return lo, hi, true
}

func (r *numberRange) step(s numberState, b byte, free bool) (numberState, bool) {
	digit := b >= '0' && b <= '9'
	switch s.phase {
	case atSign, atWhole:
		if s.phase == atSign && b == '-' {
			_, _, ok := r.bounds(true)
			return numberState{phase: atWhole, negative: true}, ok
		}
		lo, hi, ok := r.bounds(s.negative)
		if !digit || !ok {
			return s, false
		}
		if b == '0' {
			s.phase = afterZero
			s.lo, s.hi = against("", lo.whole), against("", hi.whole)
			return s, true
		}
		s.phase = inWhole
		s.whole(b, lo, hi)
		s.rest = r.modulo(s.rest, b)
		return s, true
	case inWhole, afterZero:
		lo, hi, _ := r.bounds(s.negative)
		switch {
		case b == '.' && r.digits > 0:
			if s.phase == inWhole {
				s.lo, s.hi = s.against(lo, s.lo), s.against(hi, s.hi)
			}
			s.phase, s.n = atFraction, 0
			return s, true
		case (b == 'e' || b == 'E') && free:
			return numberState{phase: atExponent}, true
		case !digit || s.phase == afterZero || s.n == maxWhole:
			return s, false
		}
		s.whole(b, lo, hi)
		s.rest = r.modulo(s.rest, b)
		return s, true
	case atFraction, inFraction:
		switch {
		case (b == 'e' || b == 'E') && free && s.phase == inFraction:
			return numberState{phase: atExponent}, true
		case !digit || int(s.n) >= r.digits:
			return s, false
		}
		lo, hi, _ := r.bounds(s.negative)
		s.lo, s.hi = next(s.lo, lo.fraction, s.n, b), next(s.hi, hi.fraction, s.n, b)
		s.phase = inFraction
		s.n++
		return s, true
	case atExponent:
		if b == '+' || b == '-' {
			return numberState{phase: afterExponentSign}, true
		}
		return numberState{phase: inExponent, n: 1}, digit
	case afterExponentSign:
		return numberState{phase: inExponent, n: 1}, digit
	}
	s.n++
	return s, digit && s.n <= maxExponent
}

// whole compares one more digit before the point.
func (s *numberState) whole(b byte, lo, hi limit) {
	s.lo, s.hi = next(s.lo, lo.whole, s.n, b), next(s.hi, hi.whole, s.n, b)
	s.n++
}

func (r *numberRange) modulo(rest int16, b byte) int16 {
	if r.multiple == 0 {
		return 0
	}
	return int16((int(rest)*10 + int(b-'0')) % r.multiple)
}

// next is the comparison of digits with those of a bound, zeros behind its end, after one more digit.
func next(so int8, bound string, n uint8, b byte) int8 {
	if so != 0 {
		return so
	}
	c := byte('0')
	if int(n) < len(bound) {
		c = bound[n]
	}
	switch {
	case b < c:
		return -1
	case b > c:
		return 1
	}
	return 0
}

// against compares whole parts of n digits, whose first ones compare as so.
func (s numberState) against(l limit, so int8) int8 {
	switch {
	case int(s.n) < len(l.whole):
		return -1
	case int(s.n) > len(l.whole):
		return 1
	}
	return so
}

func against(digits, bound string) int8 {
	if len(digits) < len(bound) {
		return -1
	}
	return 0
}

// in reports whether the number may end here.
func (r *numberRange) in(s numberState) bool {
	switch s.phase {
	case inExponent:
		return true
	case inWhole, afterZero, inFraction:
	default:
		return false
	}
	lo, hi, _ := r.bounds(s.negative)
	cl, ch := s.lo, s.hi
	if s.phase == inWhole {
		cl, ch = s.against(lo, cl), s.against(hi, ch)
	}
	digits := 0 // of the fraction, compared so far
	if s.phase == inFraction {
		digits = int(s.n)
	}
	if cl == 0 && len(lo.fraction) > digits {
		cl = -1
	}
	if ch == 0 && len(hi.fraction) > digits {
		ch = -1
	}
	if lo.set && (cl < 0 || cl == 0 && lo.open) || hi.set && (ch > 0 || ch == 0 && hi.open) {
		return false
	}
	return s.rest == 0
}
