package openai

import (
	"cedrun/runtime/serve/wire"
	"cedrun/runtime/tokenizer"
)

// Tokenize answers POST /tokenize: the tokens of a prompt, which is text, or of messages as a chat completion with the
// same fields would encode them.
func (a *API) Tokenize(c *wire.Call) error {
	f, err := wire.Object(c.Body)
	if err != nil {
		return err
	}
	m := a.Runner.Model
	var ids []int32
	if f.Has("messages") {
		q, err := a.decodeChat(c.Body)
		if err != nil {
			return err
		}
		ids = q.Prompts[0]
	} else {
		var name, text string
		f.String("model", &name)
		bos, added := true, false
		f.Bool("add_special_tokens", &bos)
		f.Bool("parse_special_tokens", &added)
		if !f.String("prompt", &text) {
			f.Fail("prompt", "is missing: give prompt or messages")
		}
		if err := m.Check(name); err != nil {
			f.FailWith(err)
		}
		if err := f.Err(a.Strict); err != nil {
			return err
		}
		if bos {
			ids = append(ids, m.BOS)
		}
		ids = m.Tokenizer.AppendEncode(ids, text, tokenizer.Options{AddedTokens: added})
	}
	spelled := make([]string, len(ids))
	for i, id := range ids {
		spelled[i] = m.Tokenizer.Spelling(int(id))
	}
	return c.JSON(struct {
		Count  int      `json:"count"`
		Max    int      `json:"max_model_len"`
		Tokens []int32  `json:"tokens"`
		Names  []string `json:"token_strs"`
	}{len(ids), m.Context, append([]int32{}, ids...), spelled})
}

// Detokenize answers POST /detokenize: the text of tokens, control tokens spelled out.
func (a *API) Detokenize(c *wire.Call) error {
	f, err := wire.Object(c.Body)
	if err != nil {
		return err
	}
	var name string
	f.String("model", &name)
	ids, ok := wire.Ints(f.Raw("tokens"))
	if !ok {
		f.Fail("tokens", "must be a list of token ids")
	}
	m := a.Runner.Model
	for i, id := range ids {
		if m.Tokenizer.Spelling(int(id)) == "" {
			f.Fail("tokens", "has %d at place %d, which the model does not know", id, i)
			break
		}
	}
	if err := m.Check(name); err != nil {
		f.FailWith(err)
	}
	if err := f.Err(a.Strict); err != nil {
		return err
	}
	return c.JSON(struct {
		Prompt string `json:"prompt"`
	}{m.Tokenizer.Decode(ids)})
}
