package prompt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Parser reads the output of the model while it is generated (serving.md 6.6). Control tokens arrive as
// their spellings. Whatever the pieces are, even single bytes, the events concatenate to the same text.
// A Parser serves one output and one goroutine.
type Parser struct {
	stage  stage
	stops  []string
	window []byte // bytes that may turn out to be markup
	text   []byte // bytes of reasoning, content or a string argument, not yet emitted
	begun  bool   // the reasoning or the content has a first character
	raw    strings.Builder
	tags   []string // the tags that may come next; the last is EOS
	calls  int      // calls begun
	open   bool     // the last call is not complete
	names  map[string]bool
	key    string // what comes before the JSON value being read
	err    *MalformedCallError
	done   bool
	events []Event
}

type stage uint8

const (
	inReasoning stage = iota
	inContent
	inTag       // between the parts of a call
	inName      // in the name of the tool
	inHeader    // in the name and flag of a parameter
	inString    // in the value of a string="true" parameter
	inJSON      // in the value of a string="false" parameter
	afterCalls  // whatever comes is ignored
	afterBroken // likewise
)

var (
	textMarkers  = []string{ThinkStart, ThinkEnd, EOS, dsmlOpen, dsmlClose, DSML}
	valueMarkers = []string{dsmlClose, EOS}

	tagsFirst     = []string{callsOpen, EOS}
	tagsInBlock   = []string{invokeOpen, callsClose, EOS}
	tagsInCall    = []string{parameterOpen, invokeClose, EOS}
	tagsEndOfArgs = []string{parameterClose, EOS}
)

// maxName bounds the names of tools and parameters, in bytes.
const maxName = 1024

// NewParser returns a parser for output that begins in the given state. The stop strings, at most 16,
// apply to content only.
func NewParser(start Start, stops []string) (*Parser, error) {
	if err := checkStops(stops); err != nil {
		return nil, err
	}
	p := &Parser{stage: inContent, begun: start.Continues}
	if start.Reasoning {
		p.stage = inReasoning
	}
	if start.Prefill != "" {
		p.events = p.Feed(start.Prefill)
	}
	p.stops = stops
	return p, nil
}

// Done reports that the output has ended: by EOS, a stop string or Close.
func (p *Parser) Done() bool { return p.done }

// Feed reads the next piece of output and returns what is known by now. After the end it returns nothing.
func (p *Parser) Feed(s string) []Event {
	for i := 0; i < len(s) && !p.done; i++ {
		p.step(s[i])
	}
	if p.inText() {
		p.emitText(p.settled())
	}
	return p.take()
}

// inText reports that p.text is passed on as it comes.
func (p *Parser) inText() bool { return p.stage <= inContent || p.stage == inString }

// Close ends the output: text held back is released, then comes the Finished event. It returns nothing
// if the output has already ended.
func (p *Parser) Close(reason Reason) []Event {
	if p.done {
		return nil
	}
	if p.inText() {
		// A beginning of a control token can only be one that was cut; a lone "<" or "</" is text.
		if !bytes.Contains(p.window, []byte("｜D")) && !bytes.Contains(p.window, []byte("｜e")) {
			p.pass(p.window)
		}
	}
	if !p.done {
		p.end(reason, "")
	}
	return p.take()
}

func (p *Parser) take() []Event {
	events := p.events
	p.events = nil
	return events
}

func (p *Parser) step(b byte) {
	if p.stage >= inTag {
		p.raw.WriteByte(b)
	}
	switch p.stage {
	case inReasoning, inContent:
		p.stepText(b)
	case inTag:
		p.stepTag(b)
	case inName:
		p.stepName(b)
	case inHeader:
		p.stepHeader(b)
	case inString, inJSON:
		p.stepValue(b)
	default:
		p.window = append(p.window, b)
		if endsWith(p.window, EOS) {
			p.end(ReasonStop, "")
		} else if len(p.window) > 2*len(EOS) {
			p.window = append(p.window[:0], p.window[len(p.window)-len(EOS):]...)
		}
	}
}

func (p *Parser) stepText(b byte) {
	if len(p.window) == 0 && b != '<' && b != DSML[0] {
		p.pass([]byte{b})
		return
	}
	p.window = append(p.window, b)
	marker := suffix(p.window, textMarkers)
	if marker == "" {
		// The window is a chain of beginnings of markers: one may come about when a stray thinking tag
		// between its halves is skipped.
		if partial(p.window, textMarkers) == 0 {
			p.release(0)
		}
		return
	}
	before := p.window[:len(p.window)-len(marker)]
	if marker == ThinkStart || marker == ThinkEnd && p.stage == inContent {
		p.window = before // a stray tag is skipped
		return
	}
	p.pass(before)
	p.window = p.window[:0]
	if p.done {
		return
	}
	switch marker {
	case EOS:
		p.end(ReasonStop, "")
	case ThinkEnd:
		p.flush(true)
		p.stage, p.begun = inContent, false
	default:
		p.flush(true)
		p.raw.WriteString(marker)
		if marker != dsmlOpen {
			p.broken("%q outside a tool call", marker)
			return
		}
		p.stage, p.tags, p.window = inTag, tagsFirst, append(p.window, dsmlOpen...)
	}
}

// release passes on the window but for its last keep bytes.
func (p *Parser) release(keep int) {
	w := p.window
	p.pass(w[:len(w)-keep])
	p.window = append(w[:0], w[len(w)-keep:]...)
}

// pass takes bytes that are text for certain.
func (p *Parser) pass(text []byte) {
	for _, b := range text {
		if b == '\n' && !p.begun && len(p.text) == 0 && p.stage <= inContent {
			continue
		}
		p.text = append(p.text, b)
		if p.stage != inContent {
			continue
		}
		if stop := suffix(p.text, p.stops); stop != "" {
			p.text = p.text[:len(p.text)-len(stop)]
			p.end(ReasonStop, stop)
			return
		}
	}
}

// settled is how much of p.text can be emitted: what a stop string, a character or newlines before markup
// may still need stays.
func (p *Parser) settled() int {
	n := len(p.text)
	if p.stage == inContent {
		n -= partial(p.text, p.stops)
	}
	n -= incomplete(p.text[:n])
	if p.stage != inString {
		n = len(bytes.TrimRight(p.text[:n], "\n"))
	}
	return n
}

// flush emits all text, without the newlines at its end if markup follows.
func (p *Parser) flush(trim bool) {
	if trim {
		p.text = bytes.TrimRight(p.text, "\n")
	}
	p.emitText(len(p.text))
}

func (p *Parser) emitText(n int) {
	if n == 0 {
		return
	}
	s := validUTF8(p.text[:n])
	p.text = append(p.text[:0], p.text[n:]...)
	switch p.stage {
	case inReasoning:
		p.begun = true
		p.emit(Event{Kind: Reasoning, Text: s})
	case inContent:
		p.begun = true
		p.emit(Event{Kind: Content, Text: s})
	case inString:
		var b strings.Builder
		writeEscaped(&b, s)
		p.emitArguments(b.String())
	}
}

func (p *Parser) emitArguments(s string) {
	p.emit(Event{Kind: ToolCallArguments, Index: p.calls - 1, Text: s})
}

// emit appends an event, joined to the one before it if they are of one text.
func (p *Parser) emit(e Event) {
	if n := len(p.events); n > 0 && e.Kind <= ToolCallArguments && e.Kind != ToolCallStart {
		if last := &p.events[n-1]; last.Kind == e.Kind && last.Index == e.Index {
			last.Text += e.Text
			return
		}
	}
	p.events = append(p.events, e)
}

func (p *Parser) stepTag(b byte) {
	if len(p.window) == 0 && (b == '\n' || b == ' ' || b == '\t' || b == '\r') {
		return
	}
	p.window = append(p.window, b)
	got := string(p.window)
	possible := false
	for _, tag := range p.tags {
		if got == tag {
			p.window = p.window[:0]
			p.tag(tag)
			return
		}
		possible = possible || strings.HasPrefix(tag, got)
	}
	if !possible {
		p.broken("expected %s", strings.Join(p.tags[:len(p.tags)-1], " or "))
	}
}

func (p *Parser) tag(tag string) {
	switch tag {
	case callsOpen:
		p.tags = tagsInBlock
	case invokeOpen:
		p.stage = inName
	case parameterOpen:
		p.stage = inHeader
	case parameterClose:
		p.tags = tagsInCall
	case invokeClose:
		if len(p.names) == 0 {
			p.emitArguments("{")
		}
		p.emitArguments("}")
		p.emit(Event{Kind: ToolCallEnd, Index: p.calls - 1})
		p.open, p.tags = false, tagsInBlock
	case callsClose:
		p.stage = afterCalls
		if p.calls == 0 {
			p.broken("the block has no calls")
		}
	case EOS:
		p.end(ReasonStop, "")
	}
}

func (p *Parser) stepName(b byte) {
	p.window = append(p.window, b)
	if !endsWith(p.window, `">`) {
		p.checkName("the name of the tool")
		return
	}
	name := validUTF8(p.window[:len(p.window)-len(`">`)])
	p.window = p.window[:0]
	if name == "" {
		p.broken("the name of the tool is empty")
		return
	}
	p.emit(Event{Kind: ToolCallStart, Index: p.calls, Name: name})
	p.calls++
	p.open, p.names = true, map[string]bool{}
	p.stage, p.tags = inTag, tagsInCall
}

func (p *Parser) stepHeader(b byte) {
	p.window = append(p.window, b)
	flag := suffix(p.window, []string{flagTrue, flagFalse})
	if flag == "" {
		p.checkName("the name of a parameter")
		return
	}
	name := validUTF8(p.window[:len(p.window)-len(flag)])
	p.window = p.window[:0]
	if p.names[name] {
		p.broken("parameter %q is given twice", name)
		return
	}
	before := "{"
	if len(p.names) > 0 {
		before = ", "
	}
	p.names[name] = true
	before += quote(name) + ": "
	if flag == flagTrue {
		p.stage = inString
		p.emitArguments(before + `"`)
		return
	}
	p.stage = inJSON
	p.key = before
}

// checkName gives up on a name that cannot end well.
func (p *Parser) checkName(what string) {
	switch {
	case endsWith(p.window, "\n"), endsWith(p.window, DSML), endsWith(p.window, EOS), len(p.window) > maxName:
		p.broken("%s is not closed", what)
	}
}

func (p *Parser) stepValue(b byte) {
	p.window = append(p.window, b)
	marker := suffix(p.window, valueMarkers)
	keep := len(marker)
	if marker == "" {
		keep = partial(p.window, valueMarkers)
	}
	p.release(keep)
	switch marker {
	case EOS:
		p.end(ReasonStop, "")
	case dsmlClose: // stays in the window as the beginning of the tag
		p.closeValue()
		p.stage, p.tags = inTag, tagsEndOfArgs
	}
}

func (p *Parser) closeValue() {
	if p.stage == inString {
		p.flush(false)
		p.emitArguments(`"`)
		return
	}
	v := string(p.text)
	p.text = p.text[:0]
	if !json.Valid([]byte(v)) || !utf8.ValidString(v) {
		v = quote(validUTF8([]byte(v)))
	}
	p.emitArguments(p.key + v)
}

// broken ends the reading of calls; the rest of the output is swallowed.
func (p *Parser) broken(format string, args ...any) {
	p.err = &MalformedCallError{Problem: fmt.Sprintf(format, args...)}
	raw := p.raw.String()
	p.stage, p.text = afterBroken, p.text[:0]
	p.window = append(p.window[:0], raw[max(0, len(raw)-len(EOS)):]...)
	if endsWith(p.window, EOS) {
		p.end(ReasonStop, "")
	}
}

// end emits what is left and the Finished event. reason is why the text ended.
func (p *Parser) end(reason Reason, stop string) {
	f := &Finish{Reason: reason, StopString: stop, UnclosedThinking: p.stage == inReasoning}
	inCalls := p.stage >= inTag
	if p.stage != inJSON {
		p.flush(false)
	}
	if inCalls && p.err == nil && reason == ReasonStop && (p.open || p.calls == 0 || p.stage == inName) {
		p.err = &MalformedCallError{Problem: "the output ended inside a tool call"}
	}
	if p.err != nil {
		p.err.Raw = validUTF8([]byte(p.raw.String()))
		f.Err = p.err
	}
	if p.stage == afterCalls || reason == ReasonStop && inCalls {
		f.Reason = ReasonToolCalls
		if p.open || p.calls == 0 {
			f.Reason = ReasonMalformed
		}
	}
	p.done, p.window, p.text = true, nil, nil
	p.emit(Event{Kind: Finished, Finish: f})
}
