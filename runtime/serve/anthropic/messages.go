package anthropic

import (
	"encoding/json"
	"fmt"

	"cedrun/runtime/prompt"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/wire"
)

// nothing is a member that the schema requires and that is null here.
type nothing struct{}

// MarshalJSON writes null.
func (nothing) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

type message struct {
	ID      string  `json:"id"`
	Type    string  `json:"type"`
	Role    string  `json:"role"`
	Model   string  `json:"model"`
	Content []block `json:"content"`
	ending
	Usage wholeUsage `json:"usage"`
	Debug *job.Debug `json:"cedrun,omitempty"`
}

// ending is how a message ended, of a stream only known at its end.
type ending struct {
	Reason    *string `json:"stop_reason"`
	Stop      *string `json:"stop_sequence"`
	Details   nothing `json:"stop_details"`
	Container nothing `json:"container"`
}

// block is a piece of a message; its type says which fields it has.
type block struct {
	Type      string           `json:"type"`
	Text      *string          `json:"text,omitempty"`
	Thinking  *string          `json:"thinking,omitempty"`
	Signature *string          `json:"signature,omitempty"`
	Citations *nothing         `json:"citations,omitempty"` // of a text, null
	ID        string           `json:"id,omitempty"`
	Name      string           `json:"name,omitempty"`
	Input     *json.RawMessage `json:"input,omitempty"`
	Caller    *caller          `json:"caller,omitempty"`
}

// caller says that the model itself makes a call.
type caller struct {
	Type string `json:"type"`
}

func textBlock(s string) block { return block{Type: "text", Text: &s, Citations: &nothing{}} }

func callBlock(id, name string, input json.RawMessage) block {
	return block{Type: "tool_use", ID: id, Name: name, Input: &input, Caller: &caller{"direct"}}
}

// usage counts tokens; input and cache reads make up the prompt.
type usage struct {
	Input   int           `json:"input_tokens"`
	Created int           `json:"cache_creation_input_tokens"`
	Read    int           `json:"cache_read_input_tokens"`
	Output  int           `json:"output_tokens"`
	Details outputDetails `json:"output_tokens_details"`
	Server  nothing       `json:"server_tool_use"`
}

type outputDetails struct {
	Thinking int `json:"thinking_tokens"`
}

// wholeUsage is that of a message, which has more members than that of a stream's end.
type wholeUsage struct {
	usage
	Creation nothing `json:"cache_creation"`
	Geo      nothing `json:"inference_geo"`
	Tier     string  `json:"service_tier"`
}

type event struct {
	Type    string     `json:"type"`
	Message *message   `json:"message,omitempty"`
	Index   *int       `json:"index,omitempty"`
	Block   *block     `json:"content_block,omitempty"`
	Delta   any        `json:"delta,omitempty"`
	Usage   *usage     `json:"usage,omitempty"`
	Debug   *job.Debug `json:"cedrun,omitempty"`
}

// CountTokens answers POST /v1/messages/count_tokens.
func (a *API) CountTokens(c *wire.Call) error {
	q, err := a.decode(c.Body, true)
	if err != nil {
		return err
	}
	return c.JSON(struct {
		Input int `json:"input_tokens"`
	}{len(q.Prompts[0])})
}

// Messages answers POST /v1/messages.
func (a *API) Messages(c *wire.Call) error {
	q, err := a.decode(c.Body, false)
	if err != nil {
		return err
	}
	q.Owner, q.Caller = c.Caller, c.Caller+"\x00"+q.Caller
	j, err := a.Runner.Start(c.R.Context(), q.Spec)
	if err != nil {
		return err
	}
	m := message{ID: "msg_" + c.ID, Type: "message", Role: "assistant", Model: a.Runner.Model.ID(), Content: []block{}}
	if q.stream {
		return stream(c, j, m)
	}
	outs, err := j.Collect()
	if err != nil {
		return err
	}
	o := outs[0]
	if o.Reasoning != "" {
		m.Content = append(m.Content, block{Type: "thinking", Thinking: &o.Reasoning, Signature: &m.ID})
	}
	if o.Content != "" {
		m.Content = append(m.Content, textBlock(o.Content))
	}
	for n, call := range o.Calls {
		if call.Complete { // half a command must not be executed
			m.Content = append(m.Content, callBlock(callID(c.ID, n), call.Name, json.RawMessage(call.Arguments)))
		}
	}
	m.Reason, m.Stop = stopped(&o.Finish)
	m.Usage, m.Debug = wholeUsage{usage: newUsage(c, j.Usage()), Tier: "standard"}, j.Debug(c.Asks("cache"))
	c.Note.Finish = *m.Reason
	return c.JSON(m)
}

func callID(id string, n int) string { return fmt.Sprintf("toolu_%s_%d", id, n) }

func newUsage(c *wire.Call, u job.Usage) usage {
	c.Note.Prompt, c.Note.Cached, c.Note.Written = u.Prompt, u.Cached, u.Written
	return usage{Input: u.Prompt - u.Cached, Read: u.Cached, Output: u.Written, Details: outputDetails{u.Reasoning}}
}

// stopped is how the dialect names the end of a text.
func stopped(f *prompt.Finish) (reason, stop *string) {
	r := "end_turn"
	switch {
	case f.Reason == prompt.ReasonLength:
		r = "max_tokens"
	case f.Reason == prompt.ReasonToolCalls:
		r = "tool_use"
	case f.StopString != "":
		r, stop = "stop_sequence", &f.StopString
	}
	return &r, stop
}

// stream sends the events of a message, one block at a time.
func stream(c *wire.Call, j *job.Job, m message) error {
	w := &streamWriter{s: c.Stream(), id: c.ID, open: -1}
	begin := func(u job.Usage) error {
		if w.begun {
			return nil
		}
		w.begun = true
		m.Usage = wholeUsage{usage: newUsage(c, u), Tier: "standard"}
		return w.send(event{Type: "message_start", Message: &m})
	}
	err := j.Each(c.KeepAlive, func() error {
		if w.begun {
			return w.send(event{Type: "ping"})
		}
		return w.s.Comment(j.Progress())
	}, func(e job.Event) error {
		switch e.Kind {
		case job.Admitted: // now it is known what the cache gives
			return begin(job.Usage{Prompt: j.PromptTokens(), Cached: e.Reuse.Hit})
		case job.Piece:
			return w.piece(e.Piece)
		case job.Ended:
			if e.End.Err != nil {
				return e.End.Err
			}
			if err := begin(e.End.Usage); err != nil {
				return err
			}
			if err := w.close(); err != nil {
				return err
			}
			var end ending
			end.Reason, end.Stop = stopped(&e.End.Finish)
			c.Note.Finish = *end.Reason
			u := newUsage(c, j.Usage())
			if err := w.send(event{Type: "message_delta", Delta: end, Usage: &u, Debug: j.Debug(c.Asks("cache"))}); err != nil {
				return err
			}
			return w.send(event{Type: "message_stop"})
		}
		return nil
	})
	if err != nil {
		_ = w.s.Event("error", failure(wire.AsError(err), c.ID)) // fails where the client has gone
	}
	return err
}

type streamWriter struct {
	s      *wire.Stream
	id     string
	begun  bool
	open   int // index of the block that is open; -1 = none
	kind   string
	blocks int
	pinged bool
}

func (w *streamWriter) send(e event) error { return w.s.Event(e.Type, e) }

// begin opens a block unless one of its kind is open.
func (w *streamWriter) begin(b block) error {
	if w.open >= 0 && w.kind == b.Type && b.Type != "tool_use" {
		return nil
	}
	if err := w.close(); err != nil {
		return err
	}
	w.open, w.kind = w.blocks, b.Type
	w.blocks++
	if err := w.send(event{Type: "content_block_start", Index: &w.open, Block: &b}); err != nil || w.pinged {
		return err
	}
	w.pinged = true
	return w.send(event{Type: "ping"})
}

func (w *streamWriter) delta(kind, field, text string) error {
	return w.send(event{Type: "content_block_delta", Index: &w.open, Delta: map[string]string{"type": kind, field: text}})
}

func (w *streamWriter) piece(p prompt.Event) error {
	empty := ""
	switch p.Kind {
	case prompt.Reasoning:
		if err := w.begin(block{Type: "thinking", Thinking: &empty, Signature: &empty}); err != nil {
			return err
		}
		return w.delta("thinking_delta", "thinking", p.Text)
	case prompt.Content:
		if err := w.begin(textBlock("")); err != nil {
			return err
		}
		return w.delta("text_delta", "text", p.Text)
	case prompt.ToolCallStart:
		return w.begin(callBlock(callID(w.id, p.Index), p.Name, json.RawMessage("{}")))
	case prompt.ToolCallArguments:
		return w.delta("input_json_delta", "partial_json", p.Text)
	case prompt.ToolCallEnd:
		return w.close()
	}
	return nil
}

func (w *streamWriter) close() error {
	if w.open < 0 {
		return nil
	}
	if w.kind == "thinking" {
		if err := w.delta("signature_delta", "signature", "msg_"+w.id); err != nil {
			return err
		}
	}
	err := w.send(event{Type: "content_block_stop", Index: &w.open})
	w.open = -1
	return err
}
