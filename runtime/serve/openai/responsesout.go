package openai

import (
	"fmt"
	"time"

	"cedrun/runtime/prompt"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/wire"
)

type response struct {
	ID         string      `json:"id"`
	Object     string      `json:"object"`
	Created    int64       `json:"created_at"`
	Status     string      `json:"status"` // in_progress, completed, incomplete, failed
	Error      *itemError  `json:"error"`
	Incomplete *incomplete `json:"incomplete_details"`
	Model      string      `json:"model"`
	Output     []*item     `json:"output"`
	Usage      *itemUsage  `json:"usage,omitempty"` // once it is known
	Debug      *job.Debug  `json:"cedrun,omitempty"`
	shown
}

type itemError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type itemUsage struct {
	Input      int               `json:"input_tokens"`
	InputPart  promptDetails     `json:"input_tokens_details"`
	Output     int               `json:"output_tokens"`
	OutputPart completionDetails `json:"output_tokens_details"`
	Total      int               `json:"total_tokens"`
}

// item is a part of the output: reasoning, a message or a function call.
type item struct {
	ID      string  `json:"id"`
	Type    string  `json:"type"`
	Status  string  `json:"status"`
	Role    string  `json:"role,omitempty"`
	Phase   string  `json:"phase,omitempty"`
	Summary *[]part `json:"summary,omitempty"`
	Content *[]part `json:"content,omitempty"`

	CallID    string  `json:"call_id,omitempty"`
	Namespace string  `json:"namespace,omitempty"`
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
}

type part struct {
	Type        string  `json:"type"`
	Text        string  `json:"text"`
	Annotations *[]part `json:"annotations,omitempty"`
	Logprobs    *[]part `json:"logprobs,omitempty"`
}

func textPart(kind, text string) part {
	p := part{Type: kind, Text: text}
	if kind == "output_text" {
		p.Annotations, p.Logprobs = &[]part{}, &[]part{}
	}
	return p
}

// event is one event of a stream.
type event struct {
	Type     string `json:"type"`
	Sequence int    `json:"sequence_number"`

	Response *response `json:"response,omitempty"`
	Output   *int      `json:"output_index,omitempty"`
	ItemID   string    `json:"item_id,omitempty"`
	Item     *item     `json:"item,omitempty"`
	Content  *int      `json:"content_index,omitempty"`
	Part     *part     `json:"part,omitempty"`
	Delta    *string   `json:"delta,omitempty"`
	Text     *string   `json:"text,omitempty"`

	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
	Logprobs  *[]part `json:"logprobs,omitempty"`

	Code    *string `json:"code,omitempty"`
	Message string  `json:"message,omitempty"`
}

// Responses answers POST /v1/responses.
func (a *API) Responses(c *wire.Call) error {
	q, err := a.decodeResponse(c.Body)
	if err != nil {
		return err
	}
	q.Owner, q.Caller = c.Caller, owner(c, q.Caller)
	j, err := a.Runner.Start(c.R.Context(), q.Spec)
	if err != nil {
		return err
	}
	w := &responseWriter{call: c, r: response{
		ID: "resp_" + c.ID, Object: "response", Created: time.Now().Unix(), Status: "in_progress", Model: a.Runner.Model.ID(), Output: []*item{}, shown: q.shown,
	}}
	if q.stream {
		w.stream = c.Stream()
		w.send(event{Type: "response.created", Response: w.snapshot()})
		w.send(event{Type: "response.in_progress", Response: w.snapshot()})
	}
	var idle func() error
	if q.stream {
		idle = func() error { return w.stream.Comment(j.Progress()) }
	}
	err = j.Each(c.KeepAlive, idle, func(e job.Event) error {
		switch e.Kind {
		case job.Piece:
			w.piece(e.Piece)
		case job.Ended:
			if e.End.Err != nil {
				return e.End.Err
			}
			w.r.Debug = j.Debug(c.Asks("cache"))
			w.finish(e.End, j.Usage())
		}
		return w.err
	})
	switch {
	case q.stream && err != nil:
		e := wire.AsError(err)
		w.r.Status, w.r.Error = "failed", &itemError{"server_error", e.Message}
		w.err = nil
		w.send(event{Type: "response.failed", Response: w.snapshot()})
		return err
	case err != nil:
		return err
	case q.stream:
		return nil
	}
	return c.JSON(&w.r)
}

// responseWriter builds the items of a response and, if there is a stream, tells it of each change.
type responseWriter struct {
	call     *wire.Call
	stream   *wire.Stream
	err      error
	sequence int
	r        response
	open     *item
	calls    int
}

func (w *responseWriter) send(e event) {
	if w.stream == nil || w.err != nil {
		return
	}
	e.Sequence = w.sequence
	w.sequence++
	w.err = w.stream.Event(e.Type, e)
}

func (w *responseWriter) snapshot() *response {
	r := w.r
	return &r
}

// at fills in which item an event is about.
func (w *responseWriter) at(e event) event {
	n := len(w.r.Output) - 1
	e.Output, e.ItemID = &n, w.open.ID
	if w.open.Type != "function_call" {
		e.Content = new(int)
	}
	return e
}

// begin opens an item; what was open is complete.
func (w *responseWriter) begin(x *item, prefix string) {
	w.close("completed")
	x.ID = fmt.Sprintf("%s_%s_%d", prefix, w.call.ID, len(w.r.Output))
	x.Status = "in_progress"
	w.open = x
	w.r.Output = append(w.r.Output, x)
	n := len(w.r.Output) - 1
	shown := *x
	if x.Content != nil {
		shown.Content = &[]part{}
	}
	w.send(event{Type: "response.output_item.added", Output: &n, Item: &shown})
	if x.Content != nil {
		empty := (*x.Content)[0]
		w.send(w.at(event{Type: "response.content_part.added", Part: &empty}))
	}
}

func (w *responseWriter) piece(p prompt.Event) {
	switch p.Kind {
	case prompt.Reasoning:
		if w.open == nil || w.open.Type != "reasoning" {
			w.begin(&item{Type: "reasoning", Summary: &[]part{}, Content: &[]part{textPart("reasoning_text", "")}}, "rs")
		}
		w.text("response.reasoning_text.delta", p.Text)
	case prompt.Content:
		if w.open == nil || w.open.Type != "message" {
			w.begin(&item{Type: "message", Role: "assistant", Phase: "final_answer", Content: &[]part{textPart("output_text", "")}}, "msg")
		}
		w.text("response.output_text.delta", p.Text)
	case prompt.ToolCallStart:
		if w.open != nil && w.open.Type == "message" {
			w.open.Phase = "commentary"
		}
		space, name := prompt.SplitToolName(p.Name)
		w.begin(&item{Type: "function_call", CallID: callID(w.call.ID, 0, w.calls), Namespace: space, Name: name, Arguments: new(string)}, "fc")
		w.calls++
	case prompt.ToolCallArguments:
		*w.open.Arguments += p.Text
		w.send(w.at(event{Type: "response.function_call_arguments.delta", Delta: &p.Text}))
	case prompt.ToolCallEnd:
		w.close("completed")
	}
}

func (w *responseWriter) text(kind, delta string) {
	p := &(*w.open.Content)[0]
	p.Text += delta
	e := w.at(event{Type: kind, Delta: &delta})
	if w.open.Type == "message" {
		e.Logprobs = &[]part{}
	}
	w.send(e)
}

// close completes the open item, or leaves it incomplete.
func (w *responseWriter) close(status string) {
	x := w.open
	if x == nil {
		return
	}
	x.Status = status
	switch x.Type {
	case "function_call":
		arguments := *x.Arguments
		w.send(w.at(event{Type: "response.function_call_arguments.done", Name: x.Name, Arguments: &arguments}))
	default:
		kind := "response.output_text.done"
		p := (*x.Content)[0]
		e := event{Text: &p.Text}
		if x.Type == "reasoning" {
			kind = "response.reasoning_text.done"
		} else {
			e.Logprobs = &[]part{}
		}
		e.Type = kind
		w.send(w.at(e))
		w.send(w.at(event{Type: "response.content_part.done", Part: &p}))
	}
	n := len(w.r.Output) - 1
	w.send(event{Type: "response.output_item.done", Output: &n, Item: x})
	w.open = nil
}

// finish completes the response.
func (w *responseWriter) finish(end *job.End, u job.Usage) {
	status := "completed"
	if end.Reason == prompt.ReasonLength {
		status = "incomplete"
		w.r.Incomplete = &incomplete{"max_output_tokens"}
	}
	w.r.Status = status
	if end.Finish.Err != nil {
		w.close("incomplete") // a call that cannot be read
	}
	w.close(status)
	t := newUsage(w.call, u)
	w.call.Note.Finish = status
	w.r.Usage = &itemUsage{t.Prompt, t.PromptPart, t.Completion, t.Written, t.Total}
	w.send(event{Type: "response." + status, Response: w.snapshot()})
}
