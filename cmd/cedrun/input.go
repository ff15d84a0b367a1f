package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/engine"
	"cedrun/runtime/prompt"
	"cedrun/runtime/tokenizer"
)

func inputFlags() []cli.Flag {
	return flags(chatInputFlags(), []cli.Flag{
		boolFlag(groupInput, "raw", "no chat template: BOS, then exactly the tokens of the text, in which nothing is a control token; what the model writes is not parsed either"),
		boolFlag(groupInput, "no-bos", "with --raw: do not begin with BOS"),
	})
}

// chatInputFlags are those of a prompt in the chat template.
func chatInputFlags() []cli.Flag {
	return flags([]cli.Flag{
		stringFlag(groupInput, "prompt", "", "the `TEXT` to answer or to continue", "p"),
		stringFlag(groupInput, "prompt-file", "", "read the prompt from `FILE`; - is stdin"),
		stringFlag(groupInput, "messages", "", "read a conversation from `FILE.json`: an array of messages, or an object with messages, tools, response_format, thinking, effort; - is stdin"),
	}, thinkingFlags())
}

func thinkingFlags() []cli.Flag {
	return []cli.Flag{
		boolFlag(groupInput, "thinking", "let the model reason before it answers"),
		stringFlag(groupInput, "effort", "", "with thinking: low, high, max or `1..100` (default: high)"),
	}
}

// ask is what the user wants answered or continued, before there is a tokenizer.
type ask struct {
	raw, bos bool
	text     string
	messages []prompt.Message
	options  prompt.Options
}

// input is an encoded prompt.
type input struct {
	ids   []int32
	raw   bool
	start prompt.Start
	echo  string // raw: the text that is continued
}

// readAsk gathers the input flags and stdin; raw says whether there is a raw mode.
func (con *console) readAsk(c *cli.Context, raw bool) (*ask, error) {
	var given []string
	for _, f := range []string{"prompt", "prompt-file", "messages"} {
		if c.IsSet(f) {
			given = append(given, "--"+f)
		}
	}
	if len(given) > 1 {
		return nil, fmt.Errorf("%s: give one of them", strings.Join(given, " and "))
	}
	a := &ask{bos: !c.Bool("no-bos")}
	a.options.Thinking = c.Bool("thinking")
	var err error
	if a.options.Effort, err = effort(c); err != nil {
		return nil, err
	}
	chat := c.IsSet("messages") || c.Bool("thinking") || c.IsSet("effort")
	a.raw = raw && (c.Bool("raw") || !c.IsSet("raw") && c.String("model") == "" && !chat)
	switch {
	case a.raw && chat:
		return nil, errors.New("--raw has no chat template: leave out --messages, --thinking and --effort, or --raw")
	case !a.raw && !a.bos:
		return nil, errors.New("--no-bos needs --raw: the chat template begins with BOS")
	case c.IsSet("messages"):
		err = a.readMessages(con, c)
	default:
		err = a.readText(con, c)
	}
	if err != nil {
		return nil, err
	}
	if a.options.Effort != 0 && !a.options.Thinking {
		return nil, errors.New("--effort needs --thinking: without reasoning there is no effort to set")
	}
	return a, nil
}

func (a *ask) readText(con *console, c *cli.Context) (err error) {
	switch {
	case c.IsSet("prompt"):
		a.text = c.String("prompt")
	case c.IsSet("prompt-file"):
		a.text, err = con.readFile("--prompt-file", c.String("prompt-file"))
		a.text = strings.TrimSuffix(a.text, "\n")
	default:
		if !con.inTerminal {
			a.text, err = con.readFile("prompt", "-")
			a.text = strings.TrimSuffix(a.text, "\n")
		}
		if err == nil && a.text == "" && a.raw && a.bos {
			con.log.Info().Msg("no prompt: the model writes from the beginning")
			return nil
		}
	}
	if err == nil && a.text == "" {
		return errors.New("the prompt is empty: give --prompt TEXT, --prompt-file FILE, --messages FILE or text on stdin")
	}
	a.messages = []prompt.Message{{Role: "user", Content: prompt.Text(a.text)}}
	return err
}

func (a *ask) readMessages(con *console, c *cli.Context) error {
	name := c.String("messages")
	data, err := con.readFile("--messages", name)
	if err != nil {
		return err
	}
	conv, err := prompt.ParseMessages([]byte(data))
	if err != nil {
		return fmt.Errorf("--messages %s: %w", name, err)
	}
	a.messages = conv.Messages
	a.options.Tools, a.options.ResponseFormat = conv.Tools, conv.ResponseFormat
	if conv.Thinking != nil && !c.IsSet("thinking") {
		a.options.Thinking = *conv.Thinking
	}
	if a.options.Effort == 0 && a.options.Thinking {
		a.options.Effort = conv.Effort
	}
	return nil
}

// readFile reads a text file; - is stdin.
func (con *console) readFile(flag, name string) (string, error) {
	var data []byte
	var err error
	if name == "-" {
		data, err = io.ReadAll(con.in)
	} else {
		data, err = os.ReadFile(name)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	return string(data), nil
}

// encode renders and tokenizes the prompt.
func (a *ask) encode(con *console, f *engine.Files) (*input, error) {
	if a.raw {
		in := &input{raw: true, echo: a.text, start: prompt.Start{Continues: true}}
		if a.bos {
			in.ids = append(in.ids, int32(f.Config.BOS))
		}
		in.ids = f.Tokenizer.AppendEncode(in.ids, a.text, tokenizer.Options{})
		return in, nil
	}
	p, err := prompt.Render(a.messages, a.options)
	if err != nil {
		return nil, err
	}
	for _, w := range p.Warnings {
		con.log.Warn().Msg(w)
	}
	if len(p.Images) > 0 {
		return nil, fmt.Errorf("the conversation holds %d images: this build reads text only", len(p.Images))
	}
	if p.Finished() {
		return nil, errors.New("the conversation ends with a complete answer: there is nothing to write; mark the last message with \"prefix\": true to have it continued")
	}
	ids, err := p.Encode(f.Tokenizer)
	return &input{ids: ids, start: p.Start()}, err
}
