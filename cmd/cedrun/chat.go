package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/peterh/liner"
	"github.com/urfave/cli/v2"

	"cedrun/runtime/engine"
	"cedrun/runtime/model"
	"cedrun/runtime/prompt"
	"cedrun/runtime/text"
)

func chatCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "chat",
		Usage: "talk with the model",
		Description: "Each line is a message; one that ends in \\ goes on in the next line. In a terminal, lines can be edited and earlier\n" +
			"ones come back with the arrow keys; Ctrl-C stops an answer, Ctrl-D ends. In a pipe, answers alone go to stdout.\n" +
			"The KV cache is kept: of each turn only what is new is computed.\n\n" + chatHelp + "\n" +
			"Examples:\n" +
			"  cedrun chat\n" +
			"  cedrun chat -m DIR --system 'Answer in one sentence.' --temperature 0.6\n" +
			"  cedrun chat -m DIR --thinking --effort low --messages chat.json\n" +
			"  printf 'Why is the sky blue?\\nAnd at night?\\n' | cedrun chat -m DIR",
		Flags: flags(modelFlags(), []cli.Flag{
			stringFlag(groupInput, "system", "", "begin with this system message `TEXT`"),
			stringFlag(groupInput, "messages", "", "begin with the conversation in `FILE.json`, as /save writes it and generate reads it"),
			boolFlag(groupInput, "keep-reasoning", "leave earlier reasoning in the prompt; without it the template drops it, and the turns after are computed anew"),
		}, thinkingFlags(), sampleFlags(), warmFlags(), []cli.Flag{
			intFlag(groupCompute, "context", 0, 1, "8192, or what the model takes", "room for `N` tokens of conversation"),
			prefillFlag(model.Replay.String(), "replay"),
		}, computeFlags(), []cli.Flag{
			boolFlag(groupOutput, "stats", "print /stats after each answer"),
			logFlag(),
		}),
		Action: con.action(0, con.chat),
	}
}

const chatHelp = "" +
	"  /help         list these commands\n" +
	"  /reset        begin a new conversation; the system message stays\n" +
	"  /stats        tokens and seconds of the last answer, tokens reused from the KV cache, context in use\n" +
	"  /save FILE    write the conversation as JSON\n" +
	"  /load FILE    go on with the conversation in FILE\n" +
	"  /exit         end; so does Ctrl-D\n" +
	"  //TEXT        a message that begins with /\n"

// editor reads lines in a terminal.
type editor interface {
	Prompt(string) (string, error) // io.EOF: Ctrl-D; liner.ErrPromptAborted: Ctrl-C
	AppendHistory(string)
	Close() error
}

func newEditor() editor {
	l := liner.NewLiner()
	l.SetCtrlCAborts(true)
	l.SetMultiLineMode(true)
	l.SetCompleter(func(line string) (out []string) {
		for c := range strings.FieldsSeq("/exit /help /load /reset /save /stats") {
			if strings.HasPrefix(c, line) {
				out = append(out, c)
			}
		}
		return out
	})
	return l
}

// chat is a conversation at a console.
type chat struct {
	*console
	inst    *engine.Instance
	lines   editor
	signals <-chan os.Signal
	typed   bool // by a person, who sees errors and goes on

	req      engine.Request // of every turn, but for its prompt
	stops    []string
	options  prompt.Options
	messages []prompt.Message
	past     []int32    // tokens of the messages as the model read and wrote them; nil: as the tokenizer would
	stats    *turnStats // of the last answer
}

func (con *console) chat(c *cli.Context) error {
	params, err := sampling(c)
	if err != nil {
		return err
	}
	mode, err := model.ParsePrefill(c.String("prefill"))
	if err != nil {
		return err
	}
	kind, err := con.backend(c)
	if err != nil {
		return err
	}
	h := &chat{console: con, stops: c.StringSlice("stop")}
	if err := h.begin(c); err != nil {
		return err
	}
	f, err := con.openFiles(c)
	if err != nil {
		return err
	}
	setup, err := h.prepare(c, f)
	if err != nil {
		return closing(f, err)
	}
	setup.Backend, setup.Threads, setup.Pin = kind, c.Int("threads"), c.Bool("pin")
	params.Banned = f.Banned()
	h.req = engine.Request{
		Prefill: mode, Sampling: params, MaxTokens: defaultMaxTokens, Stop: []int32{int32(f.Config.EOS)}, Session: &engine.Session{},
	}
	if c.IsSet("max-tokens") {
		h.req.MaxTokens = c.Int("max-tokens")
	}
	pub := con.publish("chat", &setup)
	defer pub.Close()
	if h.inst, err = con.start(f, setup); err != nil {
		return closing(f, err)
	}
	return closing(pub.Show(h.inst), h.run(c.Bool("stats")))
}

// begin reads the flags that the conversation begins with.
func (h *chat) begin(c *cli.Context) (err error) {
	if c.IsSet("messages") {
		if c.IsSet("system") {
			return errors.New("--system and --messages: give one of them; the system message is the first of the conversation")
		}
		if err := h.load(c.String("messages")); err != nil {
			return fmt.Errorf("--messages %w", err)
		}
	}
	if c.IsSet("system") {
		h.messages = []prompt.Message{{Role: "system", Content: prompt.Text(c.String("system"))}}
	}
	if c.IsSet("thinking") {
		h.options.Thinking = c.Bool("thinking")
	}
	h.options.Keep = c.Bool("keep-reasoning")
	n, err := effort(c)
	if n != 0 {
		h.options.Effort = n
	}
	if err == nil && n != 0 && !h.options.Thinking {
		err = errors.New("--effort needs --thinking: without reasoning there is no effort to set")
	}
	return err
}

// prepare sizes the context.
func (h *chat) prepare(c *cli.Context, f *engine.Files) (s engine.Setup, err error) {
	if err := needTokenizer(f); err != nil {
		return s, err
	}
	if _, err := text.Conversation(f.Tokenizer, prompt.Start{}, h.stops); err != nil {
		return s, err
	}
	s.Context = c.Int("context")
	if s.Context > f.Config.MaxPositions {
		return s, fmt.Errorf("--context %d: this model takes at most %d tokens", s.Context, f.Config.MaxPositions)
	}
	if s.Context == 0 {
		s.Context = min(defaultContext, f.Config.MaxPositions)
	}
	return s, nil
}

// run reads lines and answers them until the input ends.
func (h *chat) run(stats bool) error {
	signals, stop := h.interrupts()
	defer stop()
	h.signals = signals
	h.lines = &pipe{in: h.in}
	if h.edit != nil {
		h.lines, h.typed = h.edit(), true
		fmt.Fprintf(h.out, "%s, context of %d tokens\n/help lists the commands, Ctrl-C stops an answer, Ctrl-D ends.\n", h.inst.Source.Name(), h.inst.Setup.Context)
	}
	defer h.lines.Close()
	for {
		line, err := h.read()
		switch {
		case errors.Is(err, io.EOF):
			if h.typed {
				fmt.Fprintln(h.out)
			}
			return nil
		case errors.Is(err, liner.ErrPromptAborted):
			fmt.Fprintln(h.out, "/exit or Ctrl-D ends the chat.")
			continue
		case err != nil:
			return err
		}
		err = h.obey(line, stats)
		switch {
		case errors.Is(err, errExit):
			return nil
		case err == nil || errors.Is(err, errInterrupted):
		case h.typed && !errors.Is(err, engine.ErrDevice):
			fmt.Fprintln(h.err, "cedrun:", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
}

// read reads one message, or command. Ctrl-C and SIGTERM end it where no editor reads the keyboard.
func (h *chat) read() (string, error) {
	type message struct {
		text string
		err  error
	}
	got := make(chan message, 1)
	go func() {
		var text strings.Builder
		for mark := "> "; ; mark = ". " {
			line, err := h.lines.Prompt(mark)
			if err == nil && strings.TrimSpace(line) != "" {
				h.lines.AppendHistory(line)
			}
			more, goesOn := strings.CutSuffix(line, `\`)
			text.WriteString(more)
			if err != nil || !goesOn {
				got <- message{text.String(), err}
				return
			}
			text.WriteByte('\n')
		}
	}()
	for {
		select {
		case m := <-got:
			return m.text, m.err
		case s := <-h.signals:
			if s != os.Interrupt || !h.typed {
				return "", errInterrupted
			}
		}
	}
}

var errExit = errors.New("exit")

// obey runs a command, or answers a message.
func (h *chat) obey(line string, stats bool) error {
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	switch {
	case word == "":
		return nil
	case strings.HasPrefix(word, "//"):
		line = strings.Replace(line, "/", "", 1)
		fallthrough
	case !strings.HasPrefix(word, "/"):
		if err := h.answer(line); err != nil || !stats {
			return err
		}
		return h.showStats(h.err)
	}
	switch files := word == "/save" || word == "/load"; {
	case files && rest == "":
		return fmt.Errorf("%s needs a file: %s FILE", word, word)
	case !files && rest != "":
		return fmt.Errorf("%s takes nothing after it, not %q; // begins a message that starts with /", word, rest)
	}
	switch word {
	case "/help":
		_, err := io.WriteString(h.out, chatHelp)
		return err
	case "/reset":
		if len(h.messages) > 0 && h.messages[0].Role == "system" {
			h.messages = h.messages[:1]
		} else {
			h.messages = nil
		}
		h.past, h.stats = nil, nil
		return nil
	case "/stats":
		return h.showStats(h.out)
	case "/save":
		return h.save(rest)
	case "/load":
		if err := h.load(rest); err != nil {
			return fmt.Errorf("/load: %w", err)
		}
		h.say("%d messages loaded", len(h.messages))
		return nil
	case "/exit":
		return errExit
	}
	return fmt.Errorf("unknown command %s: /help lists them; // begins a message that starts with /", word)
}

// say tells a person what was done.
func (h *chat) say(format string, args ...any) {
	if h.typed {
		fmt.Fprintf(h.out, format+"\n", args...)
	}
}

// answer has the model answer a message. Unless it fails, both join the conversation.
func (h *chat) answer(message string) error {
	messages := append(h.messages[:len(h.messages):len(h.messages)], prompt.Message{Role: "user", Content: prompt.Text(message)})
	p, err := prompt.Render(messages, h.options)
	if err != nil {
		return err
	}
	if len(p.Images) > 0 {
		return fmt.Errorf("the conversation holds %d images: this build reads text only", len(p.Images))
	}
	w := &writing{console: h.console, inst: h.inst, input: &input{start: p.Start()}, req: h.req}
	if w.input.ids, err = h.encode(p); err != nil {
		return err
	}
	w.req.Prompt = w.input.ids
	room := h.inst.Setup.Context - len(w.req.Prompt)
	if room < 1 {
		return fmt.Errorf("the conversation has %d tokens and the context holds %d: /reset begins a new one, --context makes room", len(w.req.Prompt), h.inst.Setup.Context)
	}
	w.req.MaxTokens = min(w.req.MaxTokens, room)
	if w.reader, err = text.Conversation(h.inst.Tokenizer, w.input.start, h.stops); err != nil {
		return err
	}
	w.print = newPrinter(h.console, w.input)
	r, stopped, err := h.write(w)
	if err != nil {
		return err
	}
	w.print.end()
	if !h.outTerminal {
		fmt.Fprintln(h.out)
	}
	result := w.got.Result()
	if stopped == nil {
		w.warn(result)
	}
	h.stats = &turnStats{newStats(h.inst, w.req.Prefill, r.Stats, len(w.ids)), r.Stats.Reused, len(w.req.Prompt) + len(w.ids)}
	if len(w.ids) > 0 || stopped == nil {
		// Newlines around an answer are not shown, but the model wrote them and goes on from them.
		if all := h.inst.Tokenizer.Decode(w.ids); strings.Trim(all, "\n") == result.Content {
			result.Content = all
		}
		h.messages, h.past = append(messages, result.Message()), slices.Concat(w.req.Prompt, w.ids)
	}
	if stopped != nil && (stopped != os.Interrupt || !h.typed) {
		return errInterrupted
	}
	return nil
}

// encode gives the tokens of a prompt. The part that the model has read and written keeps the tokens it had: a model may
// spell the same text by other tokens than the tokenizer does, and only its own are in the KV cache.
func (h *chat) encode(p *prompt.Prompt) ([]int32, error) {
	tok := h.inst.Tokenizer
	rest, same := strings.CutPrefix(p.String(), tok.Decode(h.past))
	for i := len(p.Segments) - 1; same && i >= 0; i-- {
		if rest, same = strings.CutSuffix(rest, p.Segments[i].Text); same && rest == "" {
			ids, err := (&prompt.Prompt{Segments: p.Segments[i:]}).Encode(tok)
			return slices.Concat(h.past, ids), err
		}
	}
	return p.Encode(tok)
}

// write runs a generation to its end, or until a signal stops it. What has been sampled by then is in the KV cache, so
// all of it is shown and remembered.
func (h *chat) write(w *writing) (r engine.Result, stopped os.Signal, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g, err := w.begin(ctx)
	if err != nil {
		return r, nil, err
	}
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case stopped = <-h.signals:
				cancel()
			case <-ended:
				return
			}
		}
	}()
	r, err = w.follow(g, cancel)
	close(ended)
	<-watched
	return r, stopped, err
}
