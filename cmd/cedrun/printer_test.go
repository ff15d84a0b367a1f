package main

import (
	"bytes"
	"testing"

	"cedrun/runtime/prompt"
)

func TestPrinter(t *testing.T) {
	thought := prompt.Event{Kind: prompt.Reasoning, Text: "Hm."}
	answer := prompt.Event{Kind: prompt.Content, Text: "Yes."}
	call := []prompt.Event{
		{Kind: prompt.ToolCallStart, Name: "look"}, {Kind: prompt.ToolCallArguments, Text: `{"at":`},
		{Kind: prompt.ToolCallArguments, Text: `"sky"}`}, {Kind: prompt.ToolCallEnd},
	}
	for _, c := range []struct {
		name             string
		terminal, colour bool
		raw              bool
		events           []prompt.Event
		out, err         string
	}{
		{"pipe", false, false, false, []prompt.Event{thought, answer}, "Yes.", "Hm.\n"},
		{"pipe, tool call", false, false, false, append([]prompt.Event{answer}, call...), "Yes.\ntool call look {\"at\":\"sky\"}\n", ""},
		{"pipe, raw: no echo", false, false, true, []prompt.Event{answer}, "Yes.", ""},
		{"terminal", true, true, false, []prompt.Event{thought, thought, answer, answer}, "\x1b[2mHm.Hm.\x1b[0m\nYes.Yes.\n", ""},
		{"terminal without colour", true, false, false, []prompt.Event{thought, answer}, "Hm.\nYes.\n", ""},
		{"terminal, reasoning only", true, true, false, []prompt.Event{thought}, "\x1b[2mHm.\x1b[0m\n", ""},
		{"terminal, raw", true, true, true, []prompt.Event{answer}, "\x1b[2mSay \x1b[0mYes.\n", ""},
		{"terminal, nothing", true, true, false, nil, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.colour {
				t.Setenv("NO_COLOR", "")
			} else {
				t.Setenv("NO_COLOR", "1")
			}
			var out, errs bytes.Buffer
			con := newConsole(nil, &out, &errs)
			con.outTerminal = c.terminal
			p := newPrinter(con, &input{raw: c.raw, echo: "Say "})
			if err := p.show(c.events); err != nil {
				t.Fatal(err)
			}
			p.end()
			if out.String() != c.out || errs.String() != c.err {
				t.Errorf("stdout %q, stderr %q; want %q, %q", out.String(), errs.String(), c.out, c.err)
			}
		})
	}
}
