package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/engine"
	"cedrun/runtime/eval"
	"cedrun/runtime/model"
	"cedrun/runtime/prompt"
	"cedrun/runtime/sample"
	"cedrun/runtime/tokenizer"
)

const evalContext = 2048

func evalCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:      "eval",
		Usage:     "measure bits per byte of a text, or recall by distance",
		ArgsUsage: "[CASES.json with --recall]",
		Description: "--text FILE: the text is cut into windows of the context, each beginning with BOS; every byte is predicted once,\n" +
			"by the model that has seen what its window holds before it. --stride sets how many tokens a window scores; the\n" +
			"rest of it is repeated from the window before. In mode exact a window is one prefill. Modes cone and replay do\n" +
			"not compute most rows of a prompt: there a window's repeated part is the prompt and the scored tokens are fed\n" +
			"one by one as in decode. Compare modes at the same --context and --stride. Without --text the text is the\n" +
			"model's heldout.txt.\n\n" +
			"--recall: cases [{distance_windows, prompt, answer}] from a file (default: the model's recall.json); an answer is\n" +
			"right when greedy decoding writes exactly its tokens.\n\n" +
			"Examples:\n" +
			"  cedrun eval\n" +
			"  cedrun eval --text book.txt\n" +
			"  cedrun eval --text book.txt --prefill replay --context 2048 --stride 1024\n" +
			"  cedrun eval --prefill exact --recall\n" +
			"  cedrun eval -m DIR --recall cases.json",
		Flags: flags(modelFlags(),
			[]cli.Flag{
				stringFlag(groupInput, "text", "", "`FILE` whose bits per byte are measured; - is stdin"),
				boolFlag(groupInput, "recall", "measure recall by distance"),
				intFlag(groupInput, "stride", 0, 1, "context - 1 in mode exact, else context / 2", "score `N` tokens a window"),
				intFlag(groupCompute, "context", 0, 2, "2048 for text, what the longest case needs for recall", "windows of `N` tokens"),
				intFlag(groupCompute, "chunk", promptChunk, 1, "", "prefill `N` tokens a step"),
				prefillFlag("", "exact for text, replay for recall"),
			}, engineFlags(), outputFlags("print the result as JSON")),
		Action: con.action(1, con.eval),
	}
}

func (con *console) eval(c *cli.Context) error {
	recall, file := c.Bool("recall"), c.Args().First()
	switch {
	case recall && c.IsSet("text"):
		return errors.New("--text and --recall: give one of them")
	case file != "" && !recall:
		return fmt.Errorf("unexpected argument %q: only --recall takes a file", file)
	}
	kind, err := con.backend(c)
	if err != nil {
		return err
	}
	mode := map[bool]model.Prefill{true: model.Replay, false: model.Exact}[recall]
	if c.String("prefill") != "" {
		if mode, err = model.ParsePrefill(c.String("prefill")); err != nil {
			return err
		}
	}
	f, err := con.openFiles(c)
	if err != nil {
		return err
	}
	if err := needTokenizer(f); err != nil {
		return closing(f, err)
	}
	j := &judge{console: con, Files: f, mode: mode, setup: engine.Setup{Backend: kind, Threads: c.Int("threads"), Pin: c.Bool("pin"), Chunk: c.Int("chunk"), Context: c.Int("context")}}
	if recall {
		err = j.recall(c, file)
	} else {
		err = j.text(c)
	}
	if j.inst != nil {
		return closing(j.inst, err)
	}
	return closing(f, err)
}

// judge runs the windows or cases of an evaluation.
type judge struct {
	*console
	*engine.Files
	mode  model.Prefill
	setup engine.Setup
	inst  *engine.Instance
}

func (j *judge) start() (err error) {
	j.inst, err = j.console.start(j.Files, j.setup)
	return err
}

func (j *judge) text(c *cli.Context) error {
	name, data, err := j.heldout(c)
	if err != nil {
		return err
	}
	if j.setup.Context == 0 {
		j.setup.Context = min(evalContext, j.Config.MaxPositions)
	}
	w := eval.Windows{Context: j.setup.Context, BOS: int32(j.Config.BOS), Decode: j.mode != model.Exact, Stride: c.Int("stride")}
	if w.Stride == 0 && w.Decode {
		w.Stride = w.Context / 2
	} else if w.Stride == 0 {
		w.Stride = w.Context - 1
	}
	if err := w.Validate(); err != nil {
		return err
	}
	ids := j.Tokenizer.Encode(data, tokenizer.Options{})
	if len(ids) == 0 {
		return fmt.Errorf("%s is empty", name)
	}
	j.setup.Outputs = j.setup.Chunk + 1
	if err := j.start(); err != nil {
		return err
	}
	began := time.Now()
	size := func(id int32) int { return len(j.Tokenizer.Token(int(id))) }
	l, err := eval.Text(c.Context, j.score, ids, w, size, func(done int) { j.show("%d of %d tokens", done, len(ids)) })
	j.clear()
	if err != nil {
		return err
	}
	if l.Bytes != len(data) {
		return fmt.Errorf("%s: the tokens stand for %d bytes, the file has %d", name, l.Bytes, len(data))
	}
	return j.printLoss(c, l, w, time.Since(began))
}

// score is the model as package eval wants it for text.
func (j *judge) score(ctx context.Context, prompt, forced []int32, from int, row func(pos int, logits []float32) error) error {
	g, err := j.inst.Submit(ctx, engine.Request{Prompt: prompt, Forced: forced, Prefill: j.mode, OnLogits: row, LogitsFrom: from})
	if err == nil {
		_, err = wait(g)
	}
	return err
}

func (j *judge) printLoss(c *cli.Context, l *eval.Loss, w eval.Windows, took time.Duration) error {
	if c.Bool("json") {
		return j.printJSON(struct {
			Model   string  `json:"model"`
			Prefill string  `json:"prefill"`
			Context int     `json:"context"`
			Stride  int     `json:"stride"`
			Seconds float64 `json:"seconds"`
			*eval.Loss
		}{j.Source.Name(), j.mode.String(), w.Context, w.Stride, took.Seconds(), l})
	}
	fmt.Fprintf(j.out, "%s, prefill %s, context %d, stride %d\n", j.Source.Name(), j.mode, w.Context, w.Stride)
	fmt.Fprintf(j.out, "%d bytes, %d tokens, %d windows, %.1f s\n%.4f bits per byte, %.4f bits per token\n",
		l.Bytes, l.Tokens, l.Windows, took.Seconds(), l.BitsPerByte, l.BitsPerToken)
	t := tabwriter.NewWriter(j.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "positions\ttokens\tbits/byte\tbits/token\t")
	for _, b := range l.Positions {
		fmt.Fprintf(t, "%d-%d\t%d\t%.4f\t%.4f\t\n", b.From, b.To-1, b.Tokens, b.BitsPerByte, b.BitsPerToken)
	}
	return t.Flush()
}

func (j *judge) recall(c *cli.Context, file string) error {
	data, err := j.casesFile(file)
	if err != nil {
		return err
	}
	cases, err := eval.ParseCases(data)
	if err != nil {
		return err
	}
	if c.IsSet("stride") {
		return errors.New("--stride is for --text")
	}
	for _, k := range cases {
		p, a := j.encode(k)
		j.setup.Context = max(j.setup.Context, len(p)+len(a))
	}
	if err := j.start(); err != nil {
		return err
	}
	began := time.Now()
	by, all, err := eval.Recall(c.Context, j.greedy, cases, j.encode, func(done int) { j.show("%d of %d cases", done, len(cases)) })
	j.clear()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return j.printJSON(struct {
			Model     string          `json:"model"`
			Prefill   string          `json:"prefill"`
			Seconds   float64         `json:"seconds"`
			Distances []eval.Accuracy `json:"distances"`
			All       eval.Accuracy   `json:"all"`
		}{j.Source.Name(), j.mode.String(), time.Since(began).Seconds(), by, all})
	}
	fmt.Fprintf(j.out, "%s, prefill %s, window %d tokens\n", j.Source.Name(), j.mode, j.Config.Window)
	t := tabwriter.NewWriter(j.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "windows\tcases\tright\taccuracy\t")
	for _, a := range by {
		fmt.Fprintf(t, "%d\t%d\t%d\t%.1f %%\t\n", a.Distance, a.Cases, a.Right, 100*a.Accuracy)
	}
	fmt.Fprintf(t, "all\t%d\t%d\t%.1f %%\t\n", all.Cases, all.Right, 100*all.Accuracy)
	return t.Flush()
}

// casesFile reads the cases that the user named, or those that come with the model.
func (j *judge) casesFile(name string) ([]byte, error) {
	if name != "" {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("--recall: %w", err)
		}
		return data, nil
	}
	data, err := j.own("recall.json")
	if err != nil {
		return nil, fmt.Errorf("--recall: %w: give a file of cases", err)
	}
	return data, nil
}

// heldout reads the text that the user named, or the one that comes with the model.
func (j *judge) heldout(c *cli.Context) (name, text string, err error) {
	if name = c.String("text"); c.IsSet("text") {
		text, err = j.readFile("--text", name)
		return name, text, err
	}
	data, err := j.own("heldout.txt")
	if err != nil {
		return "", "", fmt.Errorf("%w: give --text FILE, or --recall", err)
	}
	return "heldout.txt", string(data), nil
}

// own reads a file of the model's directory.
func (j *judge) own(name string) ([]byte, error) {
	fsys := j.Source.FS
	if fsys == nil {
		fsys = os.DirFS(j.Source.Dir)
	}
	data, err := fs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s", j.Source.Name(), name)
	}
	return data, err
}

// encode gives the ids of a case. Its control tokens are meant as such: cases are written with the model in mind.
func (j *judge) encode(k eval.Case) (ids, answer []int32) {
	ids = j.Tokenizer.Encode(k.Prompt, tokenizer.Options{AddedTokens: true})
	if bos, ok := j.Tokenizer.ID(prompt.BOS); ok && (len(ids) == 0 || ids[0] != int32(bos)) {
		ids = append([]int32{int32(bos)}, ids...)
	}
	return ids, j.Tokenizer.Encode(k.Answer, tokenizer.Options{})
}

// greedy is the model as package eval wants it for recall.
func (j *judge) greedy(ctx context.Context, ids []int32, n int) ([]int32, error) {
	g, err := j.inst.Submit(ctx, engine.Request{
		Prompt: ids, MaxTokens: n, Prefill: j.mode, Stop: []int32{int32(j.Config.EOS)},
		Sampling: sample.Params{TopP: 1, Banned: j.Banned()},
	})
	if err != nil {
		return nil, err
	}
	return wait(g)
}
