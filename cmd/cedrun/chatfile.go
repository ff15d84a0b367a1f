package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"cedrun/runtime/prompt"
)

// pipe reads lines where nobody edits them.
type pipe struct {
	in  io.Reader
	buf *bufio.Reader
}

func (p *pipe) Prompt(string) (string, error) {
	if p.buf == nil {
		p.buf = bufio.NewReader(p.in)
	}
	line, err := p.buf.ReadString('\n')
	if line != "" && err == io.EOF {
		err = nil // the next call ends the input
	}
	return strings.TrimRight(line, "\r\n"), err
}

func (p *pipe) AppendHistory(string) {}

func (p *pipe) Close() error { return nil }

// save writes the conversation with the options that shaped it.
func (h *chat) save(name string) error {
	if len(h.messages) == 0 {
		return fmt.Errorf("/save %s: there are no messages yet", name)
	}
	c := &prompt.Conversation{
		Messages: h.messages, Tools: h.options.Tools, ResponseFormat: h.options.ResponseFormat, Thinking: &h.options.Thinking, Effort: h.options.Effort,
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(c)
	if err == nil {
		err = os.WriteFile(name, b.Bytes(), 0o666)
	}
	if err != nil {
		return fmt.Errorf("/save %s: %w", name, err)
	}
	h.say("%d messages saved to %s", len(h.messages), name)
	return nil
}

// load replaces the conversation.
func (h *chat) load(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	c, err := prompt.ParseMessages(data)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if last := c.Messages[len(c.Messages)-1]; last.Prefix {
		return fmt.Errorf("%s: the last message is the beginning of an answer; cedrun generate --messages continues it", name)
	}
	h.messages, h.past, h.stats = c.Messages, nil, nil
	h.options.Tools, h.options.ResponseFormat = c.Tools, c.ResponseFormat
	if c.Thinking != nil {
		h.options.Thinking = *c.Thinking
	}
	if c.Effort != 0 {
		h.options.Effort = c.Effort
	}
	return nil
}

// turnStats measures an answer.
type turnStats struct {
	*stats
	reused  int // prompt tokens that were in the KV cache
	context int // tokens of the conversation now
}

func (h *chat) showStats(w io.Writer) error {
	if h.stats == nil {
		return fmt.Errorf("/stats: no answer yet")
	}
	h.stats.print(w)
	_, err := fmt.Fprintf(w, "reused   %6d tokens of the prompt's %d\ncontext  %6d tokens of %d\n", h.stats.reused, h.stats.PromptTokens, h.stats.context, h.inst.Setup.Context)
	return err
}
