package openai

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"cedrun/runtime/engine"
	"cedrun/runtime/prompt"
	"cedrun/runtime/sample"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/wire"
	"cedrun/runtime/tokenizer"
)

// defaultCompletion is how many tokens a completion has that does not say, as in the API.
const defaultCompletion = 16

// completionRequest is a decoded completion request.
type completionRequest struct {
	job.Spec
	stream, usage bool
	texts         []string // with echo: what the prompts say
	logprobs      bool
}

type completionResponse struct {
	head
	Choices []completionChoice `json:"choices"`
	Usage   **usage            `json:"usage,omitempty"`
	Debug   *job.Debug         `json:"cedrun,omitempty"`
}

type completionChoice struct {
	Index    int                 `json:"index"`
	Text     string              `json:"text"`
	Logprobs *completionLogprobs `json:"logprobs"`
	Finish   *string             `json:"finish_reason"`
}

// completionLogprobs are lists of equal length, an entry per token.
type completionLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []*float64           `json:"token_logprobs"` // null for the first token of a prompt
	Top      []map[string]float64 `json:"top_logprobs"`   // likewise
	Offsets  []int                `json:"text_offset"`    // in characters of the choice's text
}

// Completions answers POST /v1/completions. With suffix it fills the gap between prompt and suffix.
func (a *API) Completions(c *wire.Call) error {
	q, err := a.decodeCompletion(c.Body)
	if err != nil {
		return err
	}
	q.Owner, q.Caller = c.Caller, owner(c, q.Caller)
	j, err := a.Runner.Start(c.R.Context(), q.Spec)
	if err != nil {
		return err
	}
	h := a.head(c, "cmpl-", "text_completion")
	if q.stream {
		return a.streamCompletion(c, j, q, h)
	}
	outs, err := j.Collect()
	if err != nil {
		return err
	}
	r := completionResponse{head: h}
	for i, o := range outs {
		finish := finishReason(&o.Finish)
		x := completionChoice{Index: i, Text: o.Content, Finish: &finish}
		w := newTextWriter(a, q, i)
		if q.logprobs {
			x.Logprobs = &completionLogprobs{Tokens: []string{}, Logprobs: []*float64{}, Top: []map[string]float64{}, Offsets: []int{}}
			w.prompt(x.Logprobs, o.Scored)
			w.tokens(x.Logprobs, o.ContentTokens)
		}
		if q.texts != nil {
			x.Text = q.texts[i/max(q.Choices, 1)] + x.Text
		}
		r.Choices = append(r.Choices, x)
		c.Note.Finish = finish
	}
	total := newUsage(c, j.Usage())
	r.Usage, r.Debug = &total, j.Debug(c.Asks("cache"))
	return c.JSON(r)
}

func (a *API) decodeCompletion(body []byte) (q completionRequest, err error) {
	f, err := wire.Object(body)
	if err != nil {
		return q, err
	}
	q.Spec = a.common(f)
	q.Plain = true
	var texts []string
	q.Prompts, texts = a.readPrompts(f)
	var echo bool
	if f.Bool("echo", &echo); echo {
		q.texts = texts
	}
	q.Stops = f.Strings("stop", sample.MaxStops)
	f.Int("n", &q.Choices, 1, maxChoices)
	best := max(q.Choices, 1)
	if f.Int("best_of", &best, 1, maxChoices); best != max(q.Choices, 1) {
		f.FailWith(wire.Unsupported("best_of", "best_of: only the value of n is possible here"))
	}
	q.MaxTokens = defaultCompletion
	least := 1
	if echo {
		least = 0 // to have a prompt scored
	}
	f.Int("max_tokens", &q.MaxTokens, least, 1<<40)
	q.logprobs = f.Int("logprobs", &q.Top, 0, engine.MaxTopLogprobs)
	q.Sampling.Logprobs = q.logprobs
	if q.Score = q.logprobs && echo; q.Score && !a.Runner.Model.Scoring {
		f.FailWith(wire.Unsupported("echo", "echo with logprobs: this server computes no log-probabilities of prompts"))
	}
	q.stream, q.usage = readStream(f)
	var form job.Form
	readFormat(f, "response_format", true, &form)
	if err := f.Err(a.Strict); err != nil {
		return q, err
	}
	q.Grammar, err = a.Runner.Model.Grammar(&form, &prompt.Options{}, prompt.Start{})
	return q, err
}

// readPrompts reads a text, a list of texts, a list of token ids or a list of such lists. A text gets a BOS and is text
// throughout: control tokens can only be given as ids.
func (a *API) readPrompts(f *wire.Fields) (prompts [][]int32, texts []string) {
	m := a.Runner.Model
	var s, suffix string
	gap := f.String("suffix", &suffix)
	bos := true
	f.Bool("add_special_tokens", &bos)
	raw := f.Raw("prompt")
	var list []json.RawMessage
	if ids, ok := wire.Ints(raw); ok && len(ids) > 0 {
		list = []json.RawMessage{raw}
	} else if json.Unmarshal(raw, &s) == nil && raw != nil {
		list = []json.RawMessage{raw}
	} else if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		f.Fail("prompt", "must be a text, a list of texts, or token ids")
		return nil, nil
	}
	for i, raw := range list {
		var text string
		ids, ok := wire.Ints(raw)
		switch {
		case ok && gap:
			f.FailWith(wire.Unsupported("suffix", "suffix: the prompt must be text then, not token ids"))
		case ok:
			for at, id := range ids {
				if m.Tokenizer.Spelling(int(id)) == "" {
					f.Fail("prompt", "has the token %d at place %d, which the model does not know", id, at)
					return nil, nil
				}
			}
			text = m.Tokenizer.Decode(ids)
		case json.Unmarshal(raw, &text) != nil:
			f.Fail("prompt", "must be a text, a list of texts, or token ids; entry %d is none of them", i)
			return nil, nil
		case gap:
			var err error
			if ids, err = prompt.FIM(text, suffix).Encode(m.Tokenizer); err != nil {
				f.FailWith(wire.Unsupported("suffix", "suffix: %v", err))
			}
		default:
			if bos {
				ids = append(ids, m.BOS)
			}
			ids = m.Tokenizer.AppendEncode(ids, text, tokenizer.Options{})
		}
		prompts, texts = append(prompts, ids), append(texts, text)
	}
	return prompts, texts
}

// textWriter writes the log-probabilities of a choice and knows where in its text each token begins.
type textWriter struct {
	api *API
	q   completionRequest
	ids []int32 // of its prompt
	at  int
}

func newTextWriter(a *API, q completionRequest, choice int) *textWriter {
	return &textWriter{api: a, q: q, ids: q.Prompts[choice/max(q.Choices, 1)]}
}

// prompt writes the tokens of the echoed prompt; scored are all but the first.
func (w *textWriter) prompt(l *completionLogprobs, scored []engine.Token) {
	if !w.q.Score {
		return
	}
	w.add(l, int(w.ids[0]), nil, nil)
	w.tokens(l, scored)
}

func (w *textWriter) tokens(l *completionLogprobs, tokens []engine.Token) {
	tok := w.api.Runner.Model.Tokenizer
	for _, t := range tokens {
		p := finite(t.Logprob)
		top := map[string]float64{}
		for _, c := range t.Top {
			top[spelled(tok, c.ID)] = finite(c.Logprob)
		}
		if _, ok := top[spelled(tok, int(t.ID))]; !ok && w.q.Top > 0 {
			top[spelled(tok, int(t.ID))] = p // the API names the chosen token too
		}
		w.add(l, int(t.ID), &p, top)
	}
}

func (w *textWriter) add(l *completionLogprobs, id int, p *float64, top map[string]float64) {
	tok := w.api.Runner.Model.Tokenizer
	l.Tokens, l.Logprobs = append(l.Tokens, spelled(tok, id)), append(l.Logprobs, p)
	l.Top, l.Offsets = append(l.Top, top), append(l.Offsets, w.at)
	if id != int(w.api.Runner.Model.BOS) { // which no text shows
		for i := range len(tok.Token(id)) {
			if utf8.RuneStart(tok.Token(id)[i]) {
				w.at++
			}
		}
	}
}

// spelled is a token as these lists name it: bytes that are no characters are escaped, so that tokens stay apart.
func spelled(tok *tokenizer.Tokenizer, id int) string {
	s := tok.Token(id)
	if utf8.ValidString(s) {
		return s
	}
	out := "bytes:"
	for i := range len(s) {
		out += fmt.Sprintf(`\x%02x`, s[i])
	}
	return out
}

// streamCompletion sends pieces of text, then per text a chunk with the reason of its end.
func (a *API) streamCompletion(c *wire.Call, j *job.Job, q completionRequest, h head) error {
	s := c.Stream()
	n := len(q.Prompts) * max(q.Choices, 1)
	left := n
	writers := make([]*textWriter, n)
	echoed := make([]bool, n)
	for i := range writers {
		writers[i] = newTextWriter(a, q, i)
	}
	send := func(x completionChoice, u **usage) error {
		return s.Event("", completionResponse{head: h, Choices: []completionChoice{x}, Usage: u})
	}
	nothing := func() **usage {
		if q.usage {
			return new(*usage)
		}
		return nil
	}
	// echo sends the prompt before anything else of a choice.
	echo := func(i int, scored []engine.Token) error {
		if q.texts == nil || echoed[i] {
			return nil
		}
		echoed[i] = true
		x := completionChoice{Index: i, Text: q.texts[i/max(q.Choices, 1)]}
		if q.logprobs {
			x.Logprobs = &completionLogprobs{}
			writers[i].prompt(x.Logprobs, scored)
		}
		return send(x, nothing())
	}
	err := j.Each(c.KeepAlive, func() error { return s.Comment(j.Progress()) }, func(e job.Event) error {
		i := e.Choice
		switch e.Kind {
		case job.Scored:
			return echo(i, e.Tokens)
		case job.Piece:
			if err := echo(i, nil); err != nil {
				return err
			}
			x := completionChoice{Index: i, Text: e.Piece.Text}
			if q.logprobs {
				x.Logprobs = &completionLogprobs{}
				writers[i].tokens(x.Logprobs, e.Tokens)
			}
			return send(x, nothing())
		case job.Ended:
			if e.End.Err != nil {
				return e.End.Err
			}
			if err := echo(i, nil); err != nil {
				return err
			}
			left--
			finish := finishReason(&e.End.Finish)
			c.Note.Finish = finish
			x := completionResponse{head: h, Choices: []completionChoice{{Index: i, Finish: &finish}}, Usage: nothing()}
			if total := newUsage(c, j.Usage()); x.Usage == nil && left == 0 {
				x.Usage, x.Debug = &total, j.Debug(c.Asks("cache"))
			}
			return s.Event("", x)
		}
		return nil
	})
	if err == nil && q.usage {
		total := newUsage(c, j.Usage())
		err = s.Event("", completionResponse{head: h, Choices: []completionChoice{}, Usage: &total, Debug: j.Debug(c.Asks("cache"))})
	}
	return finishStream(s, err)
}
