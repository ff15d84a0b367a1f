package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/engine"
	"cedrun/runtime/model"
)

const logitsChunk = 1024 // prompt tokens of a step, at most, unless --chunk says otherwise

func logitsCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "logits",
		Usage: "write the logits of given token ids to a safetensors file",
		Description: "The file holds positions I32 [rows] and logits F32 [rows, vocabulary]: the row of position p predicts the token\n" +
			"at p + 1. By default it has every row that the mode computes; --from asks for those from a position on.\n" +
			"The bits do not depend on --chunk, --decode-from or --threads.\n\n" +
			"Examples:\n" +
			"  cedrun logits -m DIR --ids 0,17,42 --out a.safetensors\n" +
			"  cedrun logits -m DIR --ids-file ids.txt --chunk 7 --decode-from 20 --out b.safetensors\n" +
			"  cedrun logits -m DIR --ids-file ids.txt --prefill replay --out c.safetensors",
		Flags: flags(modelFlags(),
			[]cli.Flag{
				stringFlag(groupInput, "ids", "", "token `IDS`, separated by commas"),
				stringFlag(groupInput, "ids-file", "", "read token ids from `FILE`, separated by commas or white space; - is stdin"),
				intFlag(groupCompute, "chunk", 0, 1, "all, 1024 at most", "prefill `N` tokens a step"),
				intFlag(groupCompute, "decode-from", 0, 1, "none", "feed the tokens from position `K` on by decode steps, one at a time"),
				prefillFlag(model.Exact.String(), "exact"),
			}, engineFlags(),
			[]cli.Flag{
				stringFlag(groupOutput, "out", "", "the safetensors `FILE` to write", "o"),
				intFlag(groupOutput, "from", 0, 0, "the first that the mode computes", "begin at `POSITION`"),
			}, outputFlags("print what was written as JSON")),
		Action: con.action(0, con.logits),
	}
}

func (con *console) logits(c *cli.Context) error {
	mode, err := model.ParsePrefill(c.String("prefill"))
	if err != nil {
		return err
	}
	kind, err := con.backend(c)
	if err != nil {
		return err
	}
	if c.String("out") == "" {
		return errors.New("give --out FILE.safetensors for the logits")
	}
	ids, err := con.readIDs(c)
	if err != nil {
		return err
	}
	prompt := len(ids)
	if c.IsSet("decode-from") {
		prompt = c.Int("decode-from")
	}
	if prompt > len(ids) {
		return fmt.Errorf("--decode-from %d: there are %d ids", prompt, len(ids))
	}
	f, err := con.openFiles(c)
	if err != nil {
		return err
	}
	if err := checkIDs(f, ids); err != nil {
		return closing(f, err)
	}
	first := model.NewPlan(f.Config, mode, prompt).FirstLogits()
	from := first
	if c.IsSet("from") {
		from = c.Int("from")
	}
	switch {
	case from >= len(ids):
		return closing(f, fmt.Errorf("--from %d: the positions are 0 to %d", from, len(ids)-1))
	case from < first:
		return closing(f, fmt.Errorf("--from %d: prefill mode %s computes logits of this prompt from position %d on; use --prefill exact", from, mode, first))
	}
	chunk := min(prompt, logitsChunk)
	if c.IsSet("chunk") {
		chunk = min(prompt, c.Int("chunk"))
	}
	inst, err := con.start(f, engine.Setup{
		Backend: kind, Threads: c.Int("threads"), Pin: c.Bool("pin"), Context: len(ids), Chunk: chunk, Outputs: chunk + 1,
	})
	if err != nil {
		return closing(f, err)
	}
	req := engine.Request{Prompt: ids[:prompt], Forced: ids[prompt:], Prefill: mode, LogitsFrom: from}
	return closing(inst, con.writeLogits(c, inst, req, len(ids)-from))
}

func (con *console) writeLogits(c *cli.Context, inst *engine.Instance, req engine.Request, rows int) error {
	path := c.String("out")
	file, err := createRows(path, req.LogitsFrom, rows, inst.Config.VocabSize)
	if err != nil {
		return err
	}
	defer file.abandon()
	req.OnLogits = file.row
	req.OnPrefill = func(done, total int) { con.show("prompt: %d of %d tokens", done, total) }
	g, err := inst.Submit(c.Context, req)
	if err == nil {
		_, err = wait(g)
	}
	con.clear()
	if err != nil {
		return err
	}
	if err := file.commit(); err != nil {
		return err
	}
	if c.Bool("json") {
		return con.printJSON(map[string]any{
			"file": path, "rows": rows, "first_position": req.LogitsFrom, "vocabulary": inst.Config.VocabSize,
			"prefill": req.Prefill.String(), "backend": inst.Setup.Backend.String(), "threads": inst.Threads(),
		})
	}
	_, err = fmt.Fprintf(con.out, "%s: %d rows of %d logits, positions %d to %d\n", path, rows, inst.Config.VocabSize, req.LogitsFrom, req.LogitsFrom+rows-1)
	return err
}

func (con *console) readIDs(c *cli.Context) ([]int32, error) {
	switch {
	case c.IsSet("ids") == c.IsSet("ids-file"):
		return nil, errors.New("give the token ids by --ids or by --ids-file")
	case c.IsSet("ids"):
		return parseIDs("--ids", c.String("ids"))
	}
	name := c.String("ids-file")
	s, err := con.readFile("--ids-file", name)
	if err != nil {
		return nil, err
	}
	return parseIDs("--ids-file "+name, s)
}

// parseIDs reads decimal ids separated by commas or white space, as a list or as a JSON array.
func parseIDs(where, s string) ([]int32, error) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = s[1 : len(s)-1]
	}
	var ids []int32
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' }) {
		n, err := strconv.ParseInt(w, 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%s: %.40q is not a token id", where, w)
		}
		ids = append(ids, int32(n))
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s: no token ids", where)
	}
	return ids, nil
}

func checkIDs(f *engine.Files, ids []int32) error {
	for i, id := range ids {
		if int(id) >= f.Config.VocabSize {
			return fmt.Errorf("token %d at position %d: the vocabulary of %s is 0 to %d", id, i, f.Source.Name(), f.Config.VocabSize-1)
		}
	}
	if len(ids) > f.Config.MaxPositions {
		return fmt.Errorf("%d ids: this model takes at most %d", len(ids), f.Config.MaxPositions)
	}
	return nil
}
