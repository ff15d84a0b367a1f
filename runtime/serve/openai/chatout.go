package openai

import (
	"encoding/json"
	"fmt"

	"cedrun/runtime/engine"
	"cedrun/runtime/prompt"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/wire"
)

type chatResponse struct {
	head
	Choices []chatChoice `json:"choices"`
	Usage   *usage       `json:"usage"`
	Debug   *job.Debug   `json:"cedrun,omitempty"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  *message      `json:"message"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   string        `json:"finish_reason"`
	Warning  string        `json:"warning,omitempty"` // a tool call that cannot be read
}

// message is what the assistant wrote. Content is null beside calls without text.
type message struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	Reasoning *string    `json:"reasoning_content,omitempty"`
	Calls     []toolCall `json:"tool_calls,omitempty"`
}

type toolCall struct {
	Index    *int         `json:"index,omitempty"` // of a stream
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type chatLogprobs struct {
	Content   []tokenLogprob  `json:"content"`
	Refusal   json.RawMessage `json:"refusal"`
	Reasoning []tokenLogprob  `json:"reasoning_content,omitempty"`
}

func newChatLogprobs(a *API, content, reasoning []engine.Token) *chatLogprobs {
	tok := a.Runner.Model.Tokenizer
	return &chatLogprobs{Content: newLogprobs(tok, content), Reasoning: newLogprobs(tok, reasoning)}
}

func callID(id string, choice, n int) string {
	if choice > 0 {
		return fmt.Sprintf("call_%s_%d_%d", id, choice, n)
	}
	return fmt.Sprintf("call_%s_%d", id, n)
}

func newMessage(id string, choice int, o job.Output, hideReasoning bool) *message {
	m := &message{Role: "assistant"}
	if o.Content != "" || len(o.Calls) == 0 {
		m.Content = &o.Content
	}
	if o.Reasoning != "" && !hideReasoning {
		m.Reasoning = &o.Reasoning
	}
	for n, c := range o.Calls {
		space, name := prompt.SplitToolName(c.Name)
		m.Calls = append(m.Calls, toolCall{ID: callID(id, choice, n), Type: "function", Function: functionCall{space, name, c.Arguments}})
	}
	return m
}

type chatChunk struct {
	head
	Choices []chatDelta `json:"choices"`
	Usage   **usage     `json:"usage,omitempty"`  // with include_usage: null but in the last chunk
	Debug   *job.Debug  `json:"cedrun,omitempty"` // on the last chunk
}

type chatDelta struct {
	Index    int           `json:"index"`
	Delta    delta         `json:"delta"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
	Warning  string        `json:"warning,omitempty"`
}

type delta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning *string    `json:"reasoning_content,omitempty"`
	Calls     []toolCall `json:"tool_calls,omitempty"`
}

// streamChat sends chunks: the role, then pieces, then per text a chunk with the reason of its end. Usage comes in a chunk
// of its own if the client asked for it, else with the last reason.
func (a *API) streamChat(c *wire.Call, j *job.Job, q chatRequest) error {
	h := a.head(c, "chatcmpl-", "chat.completion.chunk")
	s := c.Stream()
	send := func(d chatDelta) error {
		chunk := chatChunk{head: h, Choices: []chatDelta{d}}
		if q.usage {
			chunk.Usage = new(*usage)
		}
		return s.Event("", chunk)
	}
	n := max(q.Choices, 1)
	begun, left := make([]bool, n), n
	begin := func(k int) error {
		if begun[k] {
			return nil
		}
		begun[k] = true
		return send(chatDelta{Index: k, Delta: delta{Role: "assistant", Content: new(string)}})
	}
	err := j.Each(c.KeepAlive, func() error { return s.Comment(j.Progress()) }, func(e job.Event) error {
		if e.Kind == job.Admitted || e.Kind == job.Ended && e.End.Err == nil {
			if err := begin(e.Choice); err != nil {
				return err
			}
		}
		switch e.Kind {
		case job.Piece:
			d := chatDelta{Index: e.Choice}
			switch p := e.Piece; p.Kind {
			case prompt.Reasoning:
				if q.hideReasoning {
					return nil
				}
				d.Delta.Reasoning = &p.Text
				if q.Sampling.Logprobs {
					d.Logprobs = newChatLogprobs(a, nil, e.Tokens)
				}
			case prompt.Content:
				d.Delta.Content = &p.Text
				if q.Sampling.Logprobs {
					d.Logprobs = newChatLogprobs(a, e.Tokens, nil)
				}
			case prompt.ToolCallStart:
				space, name := prompt.SplitToolName(p.Name)
				d.Delta.Calls = []toolCall{{Index: &p.Index, ID: callID(c.ID, e.Choice, p.Index), Type: "function", Function: functionCall{Namespace: space, Name: name}}}
			case prompt.ToolCallArguments:
				d.Delta.Calls = []toolCall{{Index: &p.Index, Function: functionCall{Arguments: p.Text}}}
			default:
				return nil
			}
			return send(d)
		case job.Ended:
			if e.End.Err != nil {
				return e.End.Err
			}
			left--
			finish := finishReason(&e.End.Finish)
			c.Note.Finish = finish
			chunk := chatChunk{head: h, Choices: []chatDelta{{Index: e.Choice, Finish: &finish, Warning: warning(&e.End.Finish)}}}
			total := newUsage(c, j.Usage())
			if q.usage {
				chunk.Usage = new(*usage)
			} else if left == 0 {
				chunk.Usage, chunk.Debug = &total, j.Debug(c.Asks("cache"))
			}
			return s.Event("", chunk)
		}
		return nil
	})
	if err == nil && q.usage {
		total := newUsage(c, j.Usage())
		err = s.Event("", chatChunk{head: h, Choices: []chatDelta{}, Usage: &total, Debug: j.Debug(c.Asks("cache"))})
	}
	return finishStream(s, err)
}

// finishStream ends a stream: [DONE] comes after texts that are complete, an error event after others.
func finishStream(s *wire.Stream, err error) error {
	if err == nil {
		return s.Data("", "[DONE]")
	}
	_ = s.Event("", failure(wire.AsError(err))) // fails where the client has gone
	return err
}
