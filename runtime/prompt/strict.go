package prompt

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Errors of ParseStrict.
var (
	ErrOutputFormat = errors.New("output is not in the trained format") // thinking, end or tags are wrong
	ErrCallFormat   = errors.New("tool call is not in the trained format")
)

var (
	strictName      = regexp.MustCompile(`(?s)^\s*name="(.*?)">\n\n?$`)
	strictParameter = regexp.MustCompile(`(?s)^ name="(.*?)" string="(true|false)">(.*?)<\n?$`)
)

// ParseStrict reads a complete output as the official parser does: nothing is trimmed, and any deviation
// from the trained format is an error. Use [Parser] for what a model really writes.
func ParseStrict(output string, thinking bool) (*Result, error) {
	const blockOpen = "\n\n" + dsmlOpen + " calls"
	s := scanner{rest: output}
	var r Result
	if thinking {
		text, marker := s.until(ThinkEnd, blockOpen)
		if marker != ThinkEnd {
			return nil, fmt.Errorf("%w: no </think>", ErrOutputFormat)
		}
		r.Reasoning = text
	}
	text, marker := s.until(EOS, blockOpen)
	r.Content = text
	r.Finish.Reason = ReasonStop
	switch marker {
	case "":
		return nil, fmt.Errorf("%w: no %s", ErrOutputFormat, EOS)
	case blockOpen:
		calls, err := s.calls()
		if err != nil {
			return nil, err
		}
		r.Calls = calls
		r.Finish.Reason = ReasonToolCalls
		if text, _ := s.until(EOS); text != "" {
			return nil, fmt.Errorf("%w: text after the tool calls", ErrOutputFormat)
		}
	}
	if s.rest != "" {
		return nil, fmt.Errorf("%w: text after the end", ErrOutputFormat)
	}
	for _, spelling := range []string{BOS, EOS, ThinkStart, ThinkEnd, DSML} {
		if strings.Contains(r.Content, spelling) || strings.Contains(r.Reasoning, spelling) {
			return nil, fmt.Errorf("%w: %s in the text", ErrOutputFormat, spelling)
		}
	}
	return &r, nil
}

// scanner cuts text at markers.
type scanner struct{ rest string }

// until returns the text before the first of the markers, and that marker, or everything and "".
func (s *scanner) until(markers ...string) (before, marker string) {
	at := len(s.rest)
	for _, m := range markers {
		if i := strings.Index(s.rest, m); i >= 0 && i < at {
			at, marker = i, m
		}
	}
	before, s.rest = s.rest[:at], s.rest[at+len(marker):]
	return before, marker
}

func (s *scanner) calls() ([]ParsedCall, error) {
	const invoke, parameter, parameterEnd = dsmlOpen + " invoke", dsmlOpen + " parameter", "/" + DSML + " parameter"
	const invokeEnd, callsEnd = dsmlClose + " invoke", dsmlClose + " calls>"
	var calls []ParsedCall
	for {
		between, marker := s.until(invoke, callsEnd)
		if between != ">\n" || marker == "" {
			return nil, fmt.Errorf("%w: expected a call or the end of the block", ErrCallFormat)
		}
		if marker == callsEnd {
			return calls, nil
		}
		header, marker := s.until(parameter, invokeEnd)
		name := strictName.FindStringSubmatch(header)
		if name == nil {
			return nil, fmt.Errorf("%w: bad name %q", ErrCallFormat, clip(header))
		}
		var arguments []string
		seen := map[string]bool{}
		for marker == parameter {
			var body string
			body, marker = s.until(parameterEnd)
			p := strictParameter.FindStringSubmatch(body)
			if p == nil || marker == "" {
				return nil, fmt.Errorf("%w: bad parameter %q", ErrCallFormat, clip(body))
			}
			key, v := p[1], p[3]
			if seen[key] {
				return nil, fmt.Errorf("%w: parameter %q is given twice", ErrCallFormat, key)
			}
			seen[key] = true
			if p[2] == "true" {
				v = quote(v)
			}
			arguments = append(arguments, quote(key)+": "+v)
			if body, marker = s.until(parameter, invokeEnd); body != ">\n" {
				return nil, fmt.Errorf("%w: text after parameter %q", ErrCallFormat, key)
			}
		}
		if marker == "" {
			return nil, fmt.Errorf("%w: call of %q is not closed", ErrCallFormat, name[1])
		}
		calls = append(calls, ParsedCall{Name: name[1], Arguments: "{" + strings.Join(arguments, ", ") + "}", Complete: true})
	}
}
