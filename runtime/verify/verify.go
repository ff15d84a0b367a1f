package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/engram"
	"cedrun/runtime/tokenizer"
)

// Subject is a checkpoint directory: on disk, or, with FS set, embedded.
type Subject struct {
	Name string // how it is called in the report
	Dir  string
	FS   fs.FS
}

// Options choose what is verified.
type Options struct {
	Deep    bool
	Digests *Digests // that files must have; nil = those that the Hugging Face client noted, if any
	Workers int      // shards read at a time; 0 = 2
	// Progress is called once, before the deep part reads total bytes. What it returns is called, by several
	// goroutines, with the number of bytes read since its last call.
	Progress func(total int64) (add func(n int64))
}

// Run verifies a checkpoint. It ends early, with ctx's error, only when ctx does.
func Run(ctx context.Context, s Subject, o Options) (*Report, error) {
	v := &verifier{Subject: s, Options: o, report: &Report{Model: s.Name}, fsys: s.FS}
	if v.fsys == nil {
		v.fsys = os.DirFS(s.Dir)
	}
	if v.Workers <= 0 {
		v.Workers = 2
	}
	defer v.close()
	v.readConfig()
	v.census()
	v.readTokenizer()
	v.list()
	if o.Deep {
		if err := v.deep(ctx); err != nil {
			return nil, err
		}
	}
	v.report.OK = len(v.report.Faults) == 0
	return v.report, ctx.Err()
}

type verifier struct {
	Subject
	Options
	fsys   fs.FS
	report *Report
	config *config.Config         // nil if it cannot be read
	ck     *checkpoint.Checkpoint // nil if it cannot be opened
}

func (v *verifier) close() {
	if v.ck != nil {
		_ = v.ck.Close() // opened for reading only
	}
}

func (v *verifier) fault(format string, args ...any) {
	v.report.Faults = append(v.report.Faults, fmt.Sprintf(format, args...))
}

func (v *verifier) note(format string, args ...any) {
	v.report.Notes = append(v.report.Notes, fmt.Sprintf(format, args...))
}

// faults reports each line of an error of package checkpoint, which lists all it found, without the words before it.
func (v *verifier) faults(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		line = strings.TrimPrefix(line, "checkpoint "+v.Dir+": ")
		line = strings.TrimPrefix(line, "checkpoint "+v.Dir+" does not fit its config: ")
		v.fault("%s", line)
	}
}

func (v *verifier) readConfig() {
	data, err := fs.ReadFile(v.fsys, "config.json")
	if errors.Is(err, fs.ErrNotExist) {
		v.fault("config.json is missing: without it the tensors cannot be held against anything")
		return
	} else if err != nil {
		v.fault("config.json: %v", err)
		return
	}
	if v.config, err = config.Parse(data); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			v.fault("config.json: %s", line)
		}
	}
}

func (v *verifier) census() {
	var err error
	if v.FS != nil {
		v.ck, err = checkpoint.OpenFS(v.FS, checkpoint.Options{})
	} else {
		v.ck, err = checkpoint.Open(v.Dir, checkpoint.Options{NoMap: true})
	}
	if err != nil {
		v.ck = nil
		v.faults(err)
		return
	}
	c := &Census{Shards: len(v.ck.Shards()), Tensors: len(v.ck.Tensors()), Bytes: v.ck.TotalSize()}
	v.report.Census = c
	byType := map[checkpoint.DType]int{}
	for _, t := range v.ck.Tensors() {
		i, ok := byType[t.DType]
		if !ok {
			i = len(c.Types)
			byType[t.DType] = i
			c.Types = append(c.Types, Count{Name: t.DType.String()})
		}
		c.Types[i].add(t.Size)
	}
	slices.SortFunc(c.Types, func(a, b Count) int { return strings.Compare(a.Name, b.Name) })
	if v.config == nil {
		return
	}
	r, err := v.ck.Check(v.config)
	if err != nil {
		v.faults(err)
		return
	}
	for role, n := range r.ByRole {
		if n.Tensors > 0 {
			c.Roles = append(c.Roles, Count{checkpoint.Role(role).String(), n.Tensors, n.Bytes})
		}
	}
	for _, a := range r.Absent {
		v.note("without %s", a)
	}
}

func (v *verifier) readTokenizer() {
	data, err := fs.ReadFile(v.fsys, "tokenizer.json")
	if errors.Is(err, fs.ErrNotExist) {
		v.note("no tokenizer.json: this checkpoint takes token ids only")
	} else if err != nil {
		v.fault("tokenizer.json: %v", err)
		return
	}
	var vocabulary engram.Vocabulary
	if err == nil {
		t, err := tokenizer.Parse(data)
		if err != nil {
			v.fault("tokenizer.json: %v; download the file again", err)
			return
		}
		if v.config != nil && t.VocabSize() > v.config.VocabSize {
			v.fault("tokenizer.json has %d tokens, the config %d: they belong to different models", t.VocabSize(), v.config.VocabSize)
			return
		}
		v.report.Tokens = t.VocabSize()
		vocabulary = t
	}
	if v.config == nil || len(v.config.Engram.Layers) == 0 {
		return
	}
	if _, err := fs.Stat(v.fsys, "engram_tables.json"); vocabulary == nil && err != nil {
		return // ids cannot be mapped, which the note on the tokenizer says
	}
	c := v.config.Engram
	if _, err := engram.Load(v.fsys, engram.Params{
		Layers: c.Layers, MaxNgram: c.MaxNgram, Bucket: c.VocabSize, Heads: c.Heads, Classes: c.Classes, PadToken: c.PadToken,
	}, vocabulary, nil); err != nil {
		v.fault("Engram: %v", err)
		return
	}
	v.report.EngramClasses = c.Classes
}

// parts are the files of a checkpoint beside its shards.
var parts = []string{"config.json", "model.safetensors.index.json", "tokenizer.json", "engram_tables.json"}

// list records the checkpoint's files and their sizes, and notes shards that nothing refers to.
func (v *verifier) list() {
	names := slices.Clone(parts)
	stored, _ := fs.Glob(v.fsys, "model*.safetensors") // a pattern without fault
	if v.ck != nil {
		names = append(names, v.ck.Shards()...)
	} else {
		names = append(names, stored...)
	}
	if v.Digests != nil {
		for _, name := range v.Digests.names {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		st, err := fs.Stat(v.fsys, name)
		switch {
		case err == nil && st.Mode().IsRegular():
			v.report.Files = append(v.report.Files, File{Name: name, Bytes: st.Size()})
		case v.Digests.has(name):
			v.fault("%s is listed in %s, but it is not there", name, v.Digests.source)
		}
	}
	for _, name := range stored {
		if !slices.Contains(names, name) {
			v.note("%s is no part of the checkpoint: the index does not name it", name)
		}
	}
}
