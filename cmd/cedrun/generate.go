package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/engine"
	"cedrun/runtime/model"
	"cedrun/runtime/prompt"
	"cedrun/runtime/text"
)

const (
	defaultMaxTokens = 512
	defaultContext   = 8192
	promptChunk      = 256 // prompt tokens of a step; a model that exceeds memory gets more (plan.DiskChunk)
)

func generateCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "generate",
		Usage: "write text after a prompt",
		Description: "The prompt comes from --prompt, --prompt-file, --messages or stdin (one final newline of a file is dropped).\n" +
			"It is one user message in the chat template, or, with --raw, text to be continued. --raw is the default for the\n" +
			"embedded demo model, which is better at that (--raw=false asks it); without a prompt it writes from the beginning.\n" +
			"Ctrl-C stops: what was written stays, the exit status is 130.\n\n" +
			"Examples:\n" +
			"  cedrun generate -p 'In the beginning' --max-tokens 100\n" +
			"  cedrun generate -m DIR -p 'Why is the sky blue?' --thinking --effort low --stats\n" +
			"  cedrun generate -m DIR --messages chat.json --json\n" +
			"  cedrun generate -m DIR --raw --temperature 0 < draft.txt",
		Flags: flags(modelFlags(), inputFlags(), sampleFlags(),
			[]cli.Flag{
				intFlag(groupCompute, "context", 0, 1, "8192, or what they need", "room for `N` tokens of prompt and text together"),
				prefillFlag(model.Replay.String(), "replay"),
			}, engineFlags(),
			[]cli.Flag{
				stringFlag(groupOutput, "json-schema", "", "write JSON of the schema in `FILE` and nothing else, after the reasoning if there is any; - is stdin"),
				boolFlag(groupOutput, "stats", "print tokens, seconds and active parameters of prefill and decode"),
				intFlag(groupOutput, "logprobs", 0, 0, "none", "with --json: log-probabilities of the tokens, and of the `N` most likely ones at each place"),
			},
			outputFlags("print one JSON object at the end: text, reasoning, tool_calls, token_ids, logprobs, finish, stats")),
		Action: con.action(0, con.generate),
	}
}

// writing is a generation and everything that reads it.
type writing struct {
	*console
	inst   *engine.Instance
	input  *input
	req    engine.Request
	reader *text.Reader
	print  *printer // nil: only gathered
	got    prompt.Collector
	ids    []int32
	probs  []tokenLogprob
}

func (con *console) generate(c *cli.Context) error {
	params, err := sampling(c)
	if err != nil {
		return err
	}
	params.Logprobs = c.IsSet("logprobs")
	switch n := c.Int("logprobs"); {
	case params.Logprobs && !c.Bool("json"):
		return errors.New("--logprobs needs --json, which holds them")
	case n > engine.MaxTopLogprobs:
		return fmt.Errorf("--logprobs %d: use 0 to %d", n, engine.MaxTopLogprobs)
	}
	mode, err := model.ParsePrefill(c.String("prefill"))
	if err != nil {
		return err
	}
	kind, err := con.backend(c)
	if err != nil {
		return err
	}
	ask, err := con.readAsk(c, true)
	if err != nil {
		return err
	}
	form, err := con.readForm(c, ask)
	if err != nil {
		return err
	}
	f, err := con.openFiles(c)
	if err != nil {
		return err
	}
	w := &writing{console: con, req: engine.Request{
		Prefill: mode, Sampling: params, TopLogprobs: c.Int("logprobs"), Stop: []int32{int32(f.Config.EOS)},
	}}
	setup, err := w.prepare(c, f, ask)
	if err == nil && form != nil {
		w.req.Constraint, err = form.constraint(f, w.input)
	}
	if err != nil {
		return closing(f, err)
	}
	setup.Backend, setup.Threads, setup.Pin = kind, c.Int("threads"), c.Bool("pin")
	pub := con.publish("generate", &setup)
	defer pub.Close()
	if w.inst, err = con.start(f, setup); err != nil {
		return closing(f, err)
	}
	shown := pub.Show(w.inst)
	if !c.Bool("json") {
		w.print = newPrinter(con, w.input)
	}
	return closing(shown, w.run(c))
}

// prepare encodes the prompt and fits it into a context.
func (w *writing) prepare(c *cli.Context, f *engine.Files, ask *ask) (s engine.Setup, err error) {
	if err := needTokenizer(f); err != nil {
		return s, err
	}
	if w.input, err = ask.encode(w.console, f); err != nil {
		return s, err
	}
	w.req.Prompt, w.req.Sampling.Banned = w.input.ids, f.Banned()
	w.req.MaxTokens = c.Int("max-tokens")
	s.Context, w.req.MaxTokens, err = fit(len(w.input.ids), w.req.MaxTokens, c.IsSet("max-tokens"), c.Int("context"), f.Config.MaxPositions)
	if err != nil {
		return s, err
	}
	stops := c.StringSlice("stop")
	if w.input.raw {
		w.reader, err = text.Plain(f.Tokenizer, stops)
	} else {
		w.reader, err = text.Conversation(f.Tokenizer, w.input.start, stops)
	}
	return s, err
}

// fit chooses the context and the number of tokens to write, so that defaults always fit together.
func fit(prompt, maxTokens int, given bool, context, most int) (int, int, error) {
	if context > most {
		return 0, 0, fmt.Errorf("--context %d: this model takes at most %d tokens", context, most)
	}
	if !given {
		maxTokens = defaultMaxTokens
	}
	if context == 0 {
		context = min(most, max(defaultContext, prompt+maxTokens))
	}
	room := context - prompt
	remedy := fmt.Sprintf("raise --context (this model takes up to %d)", most)
	if context == most {
		remedy = "this model takes no more"
	}
	if room < 1 {
		return 0, 0, fmt.Errorf("the prompt has %d tokens and the context holds %d: shorten the prompt; %s", prompt, context, remedy)
	}
	if !given {
		maxTokens = min(maxTokens, room)
	}
	if maxTokens > room {
		return 0, 0, fmt.Errorf("the prompt of %d tokens and --max-tokens %d do not fit the context of %d: lower --max-tokens to %d; %s", prompt, maxTokens, context, room, remedy)
	}
	return context, maxTokens, nil
}

func (w *writing) run(c *cli.Context) error {
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	g, err := w.begin(ctx)
	if err != nil {
		return err
	}
	r, err := w.follow(g, cancel)
	if err != nil {
		w.endText()
		return err
	}
	if err := w.finish(c, r); err != nil {
		return err
	}
	if c.Context.Err() != nil {
		return errInterrupted
	}
	return nil
}

// begin submits the request and shows how its prompt gets on.
func (w *writing) begin(ctx context.Context) (*engine.Generation, error) {
	w.req.OnPrefill = func(done, total int) {
		if done < total {
			w.show("prompt: %d of %d tokens", done, total)
		} else {
			w.clear()
		}
	}
	return w.inst.Submit(ctx, w.req)
}

// follow shows tokens as they come, cancels the generation when the text is complete, and waits for its end.
func (w *writing) follow(g *engine.Generation, cancel context.CancelFunc) (engine.Result, error) {
	var err error
	for err == nil && !w.reader.Done() {
		t, ok := g.Next(context.Background()) // cancelling the request ends it
		if !ok {
			break
		}
		w.ids = append(w.ids, t.ID)
		if w.req.Sampling.Logprobs {
			w.probs = append(w.probs, newTokenLogprob(w.inst.Tokenizer, t))
		}
		err = w.take(w.reader.Next(t.ID))
	}
	if err != nil || w.reader.Done() {
		cancel()
	}
	r := g.Wait()
	w.clear()
	if err == nil {
		err = w.take(w.reader.Close(reason(r.Finish)))
	}
	if err == nil && r.Finish == engine.FinishError {
		err = r.Err
	}
	return r, err
}

func (w *writing) take(events []prompt.Event) error {
	w.got.Add(events...)
	if w.print == nil {
		return nil
	}
	return w.print.show(events)
}

// reason is the finish of the text when the generation ended first.
func reason(f engine.Finish) prompt.Reason {
	switch f {
	case engine.FinishStop:
		return prompt.ReasonStop
	case engine.FinishLength:
		return prompt.ReasonLength
	}
	return prompt.Reason(f)
}

// finish reports what the text does not show.
func (w *writing) finish(c *cli.Context, r engine.Result) error {
	result := w.got.Result()
	stats := newStats(w.inst, w.req.Prefill, r.Stats, len(w.ids))
	if w.print == nil {
		if err := w.printJSON(w.output(result, stats)); err != nil {
			return err
		}
	}
	w.endText()
	w.warn(result)
	w.log.Info().Str("finish", string(result.Finish.Reason)).Int("tokens", len(w.ids)).Msg("text complete")
	if c.Bool("stats") && w.print != nil {
		stats.print(w.err)
	}
	return nil
}

// endText ends the last line, in a pipe, too; --json has the text to the byte.
func (w *writing) endText() {
	if w.print != nil {
		w.print.end()
		w.print.fresh()
	}
}

// warn reports a text that is not what it should be.
func (w *writing) warn(result *prompt.Result) {
	end := result.Finish
	if end.UnclosedThinking {
		w.log.Warn().Msg("the output ended within its reasoning: raise --max-tokens or lower --effort")
	}
	if end.Err != nil {
		w.log.Warn().Err(end.Err).Str("raw", end.Err.Raw).Msg("the model wrote a tool call that cannot be read")
	}
	if n := text.Loop(w.ids); n > 0 {
		w.log.Warn().Int("period", n).Msg("the text ends in a loop: try a higher --temperature or another --seed")
	}
}

// output is the JSON of a generation.
type output struct {
	Model      string         `json:"model"`
	Backend    string         `json:"backend"`
	Threads    int            `json:"threads"`
	Prefill    string         `json:"prefill"`
	Text       string         `json:"text"`
	Reasoning  string         `json:"reasoning,omitempty"`
	ToolCalls  []toolCall     `json:"tool_calls,omitempty"`
	Finish     string         `json:"finish"` // stop, length, tool_calls, malformed_tool_call, cancelled
	StopString string         `json:"stop_string,omitempty"`
	TokenIDs   []int32        `json:"token_ids"`
	Logprobs   []tokenLogprob `json:"logprobs,omitempty"`
	Stats      *stats         `json:"stats"`
}

type toolCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Complete  bool   `json:"complete"`
}

func (w *writing) output(r *prompt.Result, s *stats) *output {
	o := &output{
		Model: w.inst.Source.Name(), Backend: w.inst.Setup.Backend.String(), Threads: w.inst.Threads(), Prefill: w.req.Prefill.String(),
		Text: r.Content, Reasoning: r.Reasoning, Finish: string(r.Finish.Reason), StopString: r.Finish.StopString,
		TokenIDs: append([]int32{}, w.ids...), Logprobs: w.probs, Stats: s,
	}
	for _, c := range r.Calls {
		o.ToolCalls = append(o.ToolCalls, toolCall(c))
	}
	return o
}
