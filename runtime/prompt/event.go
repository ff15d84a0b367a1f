package prompt

import (
	"fmt"
	"slices"
	"strings"
)

// Start is the state in which the model begins to write.
type Start struct {
	Reasoning bool   // inside <think>
	Continues bool   // the prompt already holds the beginning of the reasoning or content
	Prefill   string // markup of a tool call that the prompt already wrote
}

// StartAfter is the state after a prompt that was given as text, in which the spellings of control tokens
// counted as such. A text without an assistant header is continued as content.
func StartAfter(text string) Start {
	i := strings.LastIndex(text, AssistantRole)
	if i < 0 {
		return Start{Continues: true}
	}
	turn := text[i+len(AssistantRole):]
	opened, closed := strings.LastIndex(turn, ThinkStart), strings.LastIndex(turn, ThinkEnd)
	if opened > closed {
		return Start{Reasoning: true, Continues: opened+len(ThinkStart) < len(turn)}
	}
	if closed < 0 {
		return Start{Continues: turn != ""}
	}
	return Start{Continues: closed+len(ThinkEnd) < len(turn)}
}

// EventKind says what an Event carries.
type EventKind uint8

// The kinds of events. Reasoning comes first, then content, then calls one after another, then one Finish.
const (
	Reasoning         EventKind = iota // Text: more of the reasoning
	Content                            // Text: more of the content
	ToolCallStart                      // Index, Name: a call begins
	ToolCallArguments                  // Index, Text: more of the JSON of its arguments
	ToolCallEnd                        // Index: the call is complete
	Finished                           // Finish: the output has ended
)

// Event is a piece of the model's output. Text is always valid UTF-8.
type Event struct {
	Kind   EventKind
	Index  int    // of the call, from 0
	Name   string // of the tool
	Text   string
	Finish *Finish
}

// Reason says why an output ended.
type Reason string

// The reasons. A caller may pass others of its own to [Parser.Close].
const (
	ReasonStop      Reason = "stop"
	ReasonLength    Reason = "length"
	ReasonToolCalls Reason = "tool_calls"
	ReasonMalformed Reason = "malformed_tool_call" // a call was begun, or meant, and cannot be used
)

// Finish describes the end of an output.
type Finish struct {
	Reason           Reason
	StopString       string              // the stop string that ended it, if any
	UnclosedThinking bool                // it ended without </think>: all of it is reasoning
	Err              *MalformedCallError // what is wrong with the tool calls, if anything
}

// MalformedCallError describes tool-call markup that cannot be read.
type MalformedCallError struct {
	Problem string
	Raw     string // the markup from its beginning, for logs; not for the user
}

func (e *MalformedCallError) Error() string { return "malformed tool call: " + e.Problem }

// Result is a complete output.
type Result struct {
	Reasoning string
	Content   string
	Calls     []ParsedCall
	Finish    Finish
}

// ParsedCall is a tool call as the model wrote it. Arguments is a JSON object if Complete, else the
// beginning of one.
type ParsedCall struct {
	Name      string
	Arguments string
	Complete  bool
}

// Collector gathers the events of one output.
type Collector struct {
	reasoning, content strings.Builder
	arguments          []*strings.Builder
	calls              []ParsedCall
	finish             Finish
}

// Add takes the next events of a parser.
func (c *Collector) Add(events ...Event) {
	for _, e := range events {
		switch e.Kind {
		case Reasoning:
			c.reasoning.WriteString(e.Text)
		case Content:
			c.content.WriteString(e.Text)
		case ToolCallStart:
			c.calls = append(c.calls, ParsedCall{Name: e.Name})
			c.arguments = append(c.arguments, &strings.Builder{})
		case ToolCallArguments:
			c.arguments[e.Index].WriteString(e.Text)
		case ToolCallEnd:
			c.calls[e.Index].Complete = true
		case Finished:
			c.finish = *e.Finish
		}
	}
}

// Result is what has been gathered so far.
func (c *Collector) Result() *Result {
	r := &Result{Reasoning: c.reasoning.String(), Content: c.content.String(), Calls: slices.Clone(c.calls), Finish: c.finish}
	for i := range r.Calls {
		r.Calls[i].Arguments = c.arguments[i].String()
	}
	return r
}

// Message is the output as a message of a history, with its complete calls.
func (r *Result) Message() Message {
	m := Message{Role: "assistant", ReasoningContent: r.Reasoning, Content: Text(r.Content)}
	for i, c := range r.Calls {
		if c.Complete {
			m.ToolCalls = append(m.ToolCalls, ToolCall{ID: fmt.Sprintf("call_%d", i), Name: c.Name, Arguments: []byte(c.Arguments)})
		}
	}
	return m
}

// Parse reads a complete output; reason is why generation ended, if not by an EOS in the text.
func Parse(output string, start Start, stops []string, reason Reason) (*Result, error) {
	p, err := NewParser(start, stops)
	if err != nil {
		return nil, err
	}
	var c Collector
	c.Add(p.Feed(output)...)
	c.Add(p.Close(reason)...)
	return c.Result(), nil
}

func checkStops(stops []string) error {
	if len(stops) > 16 {
		return fmt.Errorf("%d stop strings given; at most 16 are possible", len(stops))
	}
	for i, s := range stops {
		if s == "" {
			return fmt.Errorf("stop string %d is empty", i)
		}
		if strings.ToValidUTF8(s, "") != s {
			return fmt.Errorf("stop string %d is not valid UTF-8", i)
		}
	}
	return nil
}
