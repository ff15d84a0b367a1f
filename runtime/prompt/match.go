package prompt

import (
	"strings"
	"unicode/utf8"
)

func endsWith(b []byte, s string) bool {
	return len(b) >= len(s) && string(b[len(b)-len(s):]) == s
}

// suffix returns the longest of the markers with which b ends, or "".
func suffix(b []byte, markers []string) string {
	longest := ""
	for _, m := range markers {
		if len(m) > len(longest) && endsWith(b, m) {
			longest = m
		}
	}
	return longest
}

// partial returns the length of the longest suffix of b that is a proper prefix of a marker.
func partial(b []byte, markers []string) int {
	longest := 0
	for _, m := range markers {
		for n := min(len(m)-1, len(b)); n > longest; n-- {
			if endsWith(b, m[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// incomplete returns the length of an unfinished UTF-8 sequence at the end of b.
func incomplete(b []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(b)); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// validUTF8 replaces each byte that is not part of a UTF-8 sequence.
func validUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		s.WriteRune(r)
		b = b[n:]
	}
	return s.String()
}
