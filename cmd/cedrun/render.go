package main

import (
	"github.com/urfave/cli/v2"

	"cedrun/runtime/prompt"
)

func renderCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "render",
		Usage: "show the prompt that the chat template makes of a conversation",
		Description: "The conversation comes from --messages, or is the one user message of --prompt, --prompt-file or stdin. The text is\n" +
			"what the model is given, control tokens spelled out; --ids shows the token ids, in which control tokens of the\n" +
			"template differ from text that only looks like them. The text needs no model, the ids need tokenizer.json.\n\n" +
			"Examples:\n" +
			"  cedrun render -p 'Why is the sky blue?' --thinking --effort low\n" +
			"  cedrun render --messages chat.json\n" +
			"  cedrun render -m DIR --messages chat.json --ids\n" +
			"  cedrun render -m DIR --json < question.txt",
		Flags: flags(tokenizerFlags(), chatInputFlags(),
			[]cli.Flag{&cli.BoolFlag{Category: groupOutput, Name: "ids", Usage: "print the token ids in place of the text", DisableDefaultText: true}},
			outputFlags("print one JSON object: text, ids, images")),
		Action: con.action(0, con.render),
	}
}

// rendered is the JSON of render.
type rendered struct {
	Text   string  `json:"text"`
	IDs    []int32 `json:"ids"`
	Images int     `json:"images"` // each of them one id here
}

func (con *console) render(c *cli.Context) error {
	a, err := con.readAsk(c, false)
	if err != nil {
		return err
	}
	p, err := prompt.Render(a.messages, a.options)
	if err != nil {
		return err
	}
	for _, w := range p.Warnings {
		con.log.Warn().Msg(w)
	}
	if !c.Bool("ids") && !c.Bool("json") {
		return con.printText(p.String())
	}
	tok, err := openTokenizer(c)
	if err != nil {
		return err
	}
	ids, err := p.Encode(tok)
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		return con.printJSON(rendered{p.String(), ids, len(p.Images)})
	}
	return con.printIDs(ids)
}
