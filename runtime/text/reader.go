package text

import (
	"cedrun/runtime/prompt"
	"cedrun/runtime/sample"
	"cedrun/runtime/tokenizer"
)

// Reader reads one output. One goroutine uses it.
type Reader struct {
	dec    *tokenizer.Decoder
	parser *prompt.Parser      // of a conversation
	stops  *sample.StopMatcher // of plain text
	done   bool
}

// Plain reads output that is text from beginning to end: all of it is content. At most sample.MaxStops stop strings.
func Plain(tok *tokenizer.Tokenizer, stops []string) (*Reader, error) {
	m, err := sample.NewStopMatcher(stops)
	if err != nil {
		return nil, err
	}
	return &Reader{dec: tok.NewDecoder(), stops: m}, nil
}

// Conversation reads the output that follows a rendered prompt: reasoning, content and tool calls (serving.md 6.6). The
// stop strings apply to content.
func Conversation(tok *tokenizer.Tokenizer, start prompt.Start, stops []string) (*Reader, error) {
	p, err := prompt.NewParser(start, stops)
	if err != nil {
		return nil, err
	}
	return &Reader{dec: tok.NewDecoder(), parser: p}, nil
}

// Next takes the next token and returns what is known by now. After the end it returns nothing.
func (r *Reader) Next(id int32) []prompt.Event {
	return r.feed(r.dec.Next(int(id)))
}

func (r *Reader) feed(s string) []prompt.Event {
	switch {
	case r.done || s == "":
		return nil
	case r.parser != nil:
		events := r.parser.Feed(s)
		r.done = r.parser.Done()
		return events
	}
	show, stopped := r.stops.Push(s)
	events := content(show)
	if stopped {
		r.done = true
		stop, _ := r.stops.Matched()
		events = append(events, finished(prompt.Finish{Reason: prompt.ReasonStop, StopString: stop}))
	}
	return events
}

// Done reports that a stop string or the output itself ended the text: no more tokens are wanted.
func (r *Reader) Done() bool { return r.done }

// Close ends the output for the given reason: what was held back is released, then comes the Finished event. After the
// end it returns nothing.
func (r *Reader) Close(reason prompt.Reason) []prompt.Event {
	events := r.feed(r.dec.Flush())
	if r.done {
		return events
	}
	r.done = true
	if r.parser != nil {
		return append(events, r.parser.Close(reason)...)
	}
	return append(append(events, content(r.stops.Flush())...), finished(prompt.Finish{Reason: reason}))
}

func content(s string) []prompt.Event {
	if s == "" {
		return nil
	}
	return []prompt.Event{{Kind: prompt.Content, Text: s}}
}

func finished(f prompt.Finish) prompt.Event { return prompt.Event{Kind: prompt.Finished, Finish: &f} }
