package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/inventory"
)

func inspectCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "inspect",
		Usage: "say what a checkpoint is: layers, parameters, formats, caches",
		Description: "Shows the schedule of the layers, the parameters by part, the bytes by format, how many parameters a token is\n" +
			"multiplied by in prefill and in decode, and what a sequence takes in memory. All of it follows from config.json:\n" +
			"no weight has to be there. Where there are weights, what is stored is held against it; cedrun verify says more.\n\n" +
			"Examples:\n" +
			"  cedrun inspect\n" +
			"  cedrun inspect -m DIR --context 65536\n" +
			"  cedrun inspect -m config.json --json",
		Flags: flags([]cli.Flag{
			withDefault(stringFlag(groupModel, "model", "", "checkpoint `DIR`, or a config.json alone", "m"), "the embedded demo model"),
			intFlag(groupCompute, "context", 0, 1, "what the model allows", "count the memory of a sequence of `N` tokens"),
		}, outputFlags("print the report as JSON")),
		Action: con.action(0, con.inspect),
	}
}

func (con *console) inspect(c *cli.Context) error {
	m, err := locate(c)
	if err != nil {
		return err
	}
	cfg, err := m.config()
	if err != nil {
		return err
	}
	r, err := inventory.New(m.name, cfg, c.Int("context"))
	if err != nil {
		return fmt.Errorf("--context: %w", err)
	}
	var fault error
	if m.weights() {
		var ck *checkpoint.Checkpoint
		var census *checkpoint.Report
		if ck, fault = m.open(); fault == nil {
			census, fault = ck.Check(cfg)
		}
		r.Store(cfg, ck, census, fault)
		if ck != nil {
			fault = closing(ck, fault)
		}
	}
	if c.Bool("json") {
		err = con.printJSON(r)
	} else {
		err = r.Print(con.out)
	}
	if err == nil && fault != nil {
		err = fmt.Errorf("the weights do not fit the config: cedrun verify -m %s lists the faults", m.name)
	}
	return err
}

// files are a model's files, before anything is known about them.
type files struct {
	name       string
	dir        string // "" when embedded
	fsys       fs.FS
	configName string
	bare       bool // --model names a config file alone
}

// locate finds the model that --model names: a directory, or a config file.
func locate(c *cli.Context) (*files, error) {
	src, err := source(c)
	if err != nil {
		return nil, err
	}
	m := &files{name: src.Name(), dir: src.Dir, fsys: src.FS, configName: "config.json"}
	if m.fsys != nil {
		return m, nil
	}
	st, err := os.Stat(m.dir)
	if err != nil {
		return nil, fmt.Errorf("--model: %w", err)
	}
	if !st.IsDir() {
		m.bare = true
		m.dir, m.configName = filepath.Split(filepath.Clean(m.dir))
		m.dir = filepath.Clean(m.dir)
	}
	m.fsys = os.DirFS(m.dir)
	return m, nil
}

func (m *files) config() (*config.Config, error) {
	data, err := fs.ReadFile(m.fsys, m.configName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no config.json: give the directory that holds it, or a config.json itself", m.name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.name, err)
	}
	cfg, err := config.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(m.dir, m.configName), err)
	}
	return cfg, nil
}

// weights reports whether there is anything of a checkpoint's weights.
func (m *files) weights() bool {
	if m.bare {
		return false
	}
	for _, pattern := range []string{"model*.safetensors", "*.safetensors.index.json"} {
		if names, err := fs.Glob(m.fsys, pattern); err == nil && len(names) > 0 {
			return true
		}
	}
	return false
}

// open opens the shards without mapping them: only headers are read.
func (m *files) open() (*checkpoint.Checkpoint, error) {
	if m.dir == "" {
		return checkpoint.OpenFS(m.fsys, checkpoint.Options{})
	}
	return checkpoint.Open(m.dir, checkpoint.Options{NoMap: true})
}
