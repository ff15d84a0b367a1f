package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"cedrun/runtime/prompt"
)

const (
	dim   = "\x1b[2m"
	plain = "\x1b[0m"
)

// printer writes events as they come: content to stdout, reasoning dim on a terminal and to stderr otherwise, so that a
// pipe carries the answer alone.
type printer struct {
	con     *console
	colour  bool
	echo    string // the raw prompt, shown before the text that reads on from it, once progress is out of the way
	dimmed  bool
	thought bool // the last event was reasoning
	newline bool // the last byte on stdout was one
}

func newPrinter(con *console, in *input) *printer {
	p := &printer{con: con, colour: con.outTerminal && os.Getenv("NO_COLOR") == "", newline: true}
	if con.outTerminal && in.raw {
		p.echo = in.echo
	}
	return p
}

func (p *printer) show(events []prompt.Event) error {
	if len(events) > 0 {
		if err := p.write(p.echo, true); err != nil {
			return fmt.Errorf("write text: %w", err)
		}
		p.echo = ""
	}
	for _, e := range events {
		if e.Kind != prompt.Reasoning {
			p.endThought()
		}
		var err error
		switch e.Kind {
		case prompt.Reasoning:
			p.thought = true
			if p.con.outTerminal {
				err = p.write(e.Text, true)
			} else {
				_, err = io.WriteString(p.con.err, e.Text)
			}
		case prompt.Content:
			err = p.write(e.Text, false)
		case prompt.ToolCallStart:
			p.fresh()
			err = p.write("tool call "+e.Name+" ", false)
		case prompt.ToolCallArguments:
			err = p.write(e.Text, false)
		case prompt.ToolCallEnd:
			err = p.write("\n", false)
		}
		if err != nil {
			return fmt.Errorf("write text: %w", err)
		}
	}
	return nil
}

func (p *printer) write(s string, dimmed bool) error {
	if s == "" {
		return nil
	}
	p.newline = strings.HasSuffix(s, "\n")
	if p.colour && dimmed != p.dimmed {
		s = map[bool]string{true: dim, false: plain}[dimmed] + s
	}
	p.dimmed = dimmed
	_, err := io.WriteString(p.con.out, s)
	return err
}

// endThought ends the line of the reasoning.
func (p *printer) endThought() {
	switch {
	case !p.thought:
		return
	case p.con.outTerminal:
		p.fresh()
	default:
		_, _ = io.WriteString(p.con.err, "\n")
	}
	p.thought = false
}

// fresh begins a new line.
func (p *printer) fresh() {
	if !p.newline {
		_ = p.write("\n", false)
	}
}

// end leaves a terminal as it was found.
func (p *printer) end() {
	p.endThought()
	if !p.con.outTerminal {
		return
	}
	p.fresh()
	if p.colour && p.dimmed {
		fmt.Fprint(p.con.out, plain)
	}
}
