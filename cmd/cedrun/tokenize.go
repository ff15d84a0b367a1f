package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/tokenizer"
)

func tokenizeCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "tokenize",
		Usage: "turn text into token ids, or ids into text",
		Description: "The text comes from --prompt, --prompt-file or stdin (one final newline of a file is dropped). Nothing is added to\n" +
			"it, no BOS either, and what looks like a control token is text unless --added-tokens is given. Only tokenizer.json\n" +
			"is read.\n\n" +
			"Examples:\n" +
			"  cedrun tokenize -p 'In the beginning'\n" +
			"  cedrun tokenize -m DIR --json < draft.txt\n" +
			"  cedrun tokenize -m DIR --added-tokens -p '<think>'\n" +
			"  cedrun tokenize -m DIR --decode 0,17,42\n" +
			"  cedrun tokenize -p 'In the beginning' | cedrun tokenize --decode -",
		Flags: flags(tokenizerFlags(), []cli.Flag{
			stringFlag(groupInput, "prompt", "", "the `TEXT`", "p"),
			stringFlag(groupInput, "prompt-file", "", "read the text from `FILE`; - is stdin"),
			stringFlag(groupInput, "decode", "", "write the text of these `IDS`, separated by commas or white space; - reads them from stdin"),
			boolFlag(groupInput, "added-tokens", "take the spellings of control tokens in the text for these tokens"),
		}, outputFlags("print one JSON object: text, ids, tokens (as the vocabulary spells them)")),
		Action: con.action(0, con.tokenize),
	}
}

// tokenizerFlags are the flags of commands that need no weights.
func tokenizerFlags() []cli.Flag {
	return []cli.Flag{
		withDefault(stringFlag(groupModel, "model", "", "the `DIR` that holds tokenizer.json", "m"), "the embedded demo model"),
	}
}

// tokens is the JSON of tokenize.
type tokens struct {
	Text   string   `json:"text"`
	IDs    []int32  `json:"ids"`
	Tokens []string `json:"tokens"`
}

func (con *console) tokenize(c *cli.Context) error {
	text, ids, err := con.readTokens(c)
	if err != nil {
		return err
	}
	tok, err := openTokenizer(c)
	if err != nil {
		return err
	}
	decode := ids != nil
	if decode {
		for i, id := range ids {
			if tok.Spelling(int(id)) == "" {
				return fmt.Errorf("id %d, number %d of them: the vocabulary has no such token; it has %d", id, i+1, tok.VocabSize())
			}
		}
		text = tok.Decode(ids)
	} else {
		ids = tok.Encode(text, tokenizer.Options{AddedTokens: c.Bool("added-tokens")})
	}
	switch {
	case c.Bool("json"):
		out := tokens{Text: text, IDs: append([]int32{}, ids...), Tokens: make([]string, len(ids))}
		for i, id := range ids {
			out.Tokens[i] = tok.Spelling(int(id))
		}
		return con.printJSON(out)
	case decode:
		return con.printText(text)
	}
	return con.printIDs(ids)
}

// readTokens reads the text, or, with --decode, the ids.
func (con *console) readTokens(c *cli.Context) (text string, ids []int32, err error) {
	var given []string
	for _, f := range []string{"prompt", "prompt-file", "decode"} {
		if c.IsSet(f) {
			given = append(given, "--"+f)
		}
	}
	if len(given) > 1 {
		return "", nil, fmt.Errorf("%s: give one of them", strings.Join(given, " and "))
	}
	switch {
	case c.IsSet("decode") && c.Bool("added-tokens"):
		return "", nil, errors.New("--added-tokens is about text: ids are decoded with all tokens spelled out")
	case c.String("decode") == "-":
		if text, err = con.readFile("--decode", "-"); err == nil {
			ids, err = parseIDs("--decode", text)
		}
		return "", ids, err
	case c.IsSet("decode"):
		ids, err = parseIDs("--decode", c.String("decode"))
		return "", ids, err
	case c.IsSet("prompt"):
		return c.String("prompt"), nil, nil
	case c.IsSet("prompt-file"):
		text, err = con.readFile("--prompt-file", c.String("prompt-file"))
	case con.inTerminal:
		return "", nil, errors.New("give --prompt TEXT, --prompt-file FILE, --decode IDS or text on stdin")
	default:
		text, err = con.readFile("stdin", "-")
	}
	return strings.TrimSuffix(text, "\n"), nil, err
}

func openTokenizer(c *cli.Context) (*tokenizer.Tokenizer, error) {
	src, err := source(c)
	if err != nil {
		return nil, err
	}
	tok, err := src.Tokenizer()
	if err == nil && tok == nil {
		err = fmt.Errorf("%s has no tokenizer.json", src.Name())
	}
	return tok, err
}

// printText writes text as it is; a terminal gets a newline after it.
func (con *console) printText(text string) error {
	if con.outTerminal && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if _, err := io.WriteString(con.out, text); err != nil {
		return fmt.Errorf("write text: %w", err)
	}
	return nil
}

// printIDs writes ids in one line, as --ids and --decode read them.
func (con *console) printIDs(ids []int32) error {
	b := make([]byte, 0, 8*len(ids))
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	if _, err := con.out.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write ids: %w", err)
	}
	return nil
}
