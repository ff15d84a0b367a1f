package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/engram"
	"cedrun/runtime/kv/disk"
	"cedrun/runtime/model"
	"cedrun/runtime/plan"
	"cedrun/runtime/prompt"
	"cedrun/runtime/tokenizer"
)

// Source is a checkpoint directory: on disk, or, with FS set, embedded.
type Source struct {
	Dir string
	FS  fs.FS
}

func (s Source) fs() fs.FS {
	if s.FS != nil {
		return s.FS
	}
	return os.DirFS(s.Dir)
}

// Name is how the source is called in messages.
func (s Source) Name() string {
	if s.FS != nil {
		return "the embedded demo model"
	}
	return s.Dir
}

// check insists on a directory.
func (s Source) check() error {
	if s.FS != nil {
		return nil
	}
	if st, err := os.Stat(s.Dir); err != nil {
		return fmt.Errorf("model directory: %w", err)
	} else if !st.IsDir() {
		return fmt.Errorf("model %s is a file: give the directory that holds config.json and the safetensors shards", s.Dir)
	}
	return nil
}

// Tokenizer reads tokenizer.json, alone of all files. It is nil when the checkpoint has none.
func (s Source) Tokenizer() (*tokenizer.Tokenizer, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(s.fs(), "tokenizer.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: read tokenizer.json: %w", s.Name(), err)
	}
	t, err := tokenizer.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: tokenizer.json: %w", s.Name(), err)
	}
	return t, nil
}

// Setup says how to run a checkpoint.
type Setup struct {
	Backend  ced.Kind
	Device   int  // of the CUDA back end, counted from 0
	Threads  int  // 0 = one per usable core
	Pin      bool // binds each thread to a core
	Context  int  // tokens a sequence may have; 0 = 8192 or what the model allows
	Slots    int  // sequences at a time; 0 = 1
	Chunk    int  // prefill rows of a step; 0 = 256
	Outputs  int  // rows of a step that may want logits; 0 = one per slot
	KVTokens int  // tokens of KV cache in all; 0 = Slots * Context
	// Snapshots bounds the bytes of snapshots for CacheSnapshot; 0 = none. SnapshotTTL drops those unused for so long.
	Snapshots   int
	SnapshotTTL time.Duration
	Slowdown    float64 // Options.Slowdown
	// KVDir, if not empty, is where up to KVDisk bytes of pages of the prefix cache are kept.
	KVDir  string
	KVDisk int64
	// Warn is told of trouble that does not keep the engine from running: with KVDir, with captured steps.
	Warn        func(string)
	ExpertBytes int // of a device: model.Options.ExpertBytes; 0 = what is free
	// HostExperts lets the CPU compute the experts that a device has no room for (model.Options.HostExperts).
	HostExperts bool
	// NoGraphs lets a device run decode steps kernel by kernel, not captured: the same results.
	NoGraphs bool
	// Capturing, if set, is told at the start how many batch sizes of how many have their decode step captured.
	Capturing func(done, of int)
	// HugePages asks for huge pages behind caches, step buffers and mapped files.
	HugePages bool
	NoMap     bool
	CacheDir  string // for derived Engram maps; "" = none
	// Observe, if set, is told of every step on the engine's goroutine; Trace records what the stream runs, and is the
	// observer's to read and reset.
	Observe func(Step)
	Trace   *ced.Trace
	// NoSelfTest starts without trying the kernels and the model first.
	NoSelfTest bool
}

// Files are the parts of an opened checkpoint that need no backend.
type Files struct {
	Source     Source
	Config     *config.Config
	Checkpoint *checkpoint.Checkpoint
	Tokenizer  *tokenizer.Tokenizer // nil when the checkpoint has none
	Report     *checkpoint.Report
	Profile    prompt.Profile
	rows       model.RowSource
	warmed     bool // Warm has read all experts
	cacheDir   string
	weights    func() weights
	counts     func() plan.Weights
}

// OpenFiles opens and checks a checkpoint: config, census, tokenizer, Engram map. Nothing is computed yet.
func OpenFiles(src Source, o checkpoint.Options, cacheDir string) (*Files, error) {
	if err := src.check(); err != nil {
		return nil, err
	}
	fsys := src.fs()
	data, err := fs.ReadFile(fsys, "config.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no config.json: give the directory that holds it and the safetensors shards", src.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: read config.json: %w", src.Name(), err)
	}
	f := &Files{Source: src, cacheDir: cacheDir}
	f.weights = sync.OnceValue(f.sortWeights) // a census takes tens of milliseconds for the release
	f.counts = sync.OnceValue(func() plan.Weights { return plan.CountWeights(f.Config) })
	if f.Config, err = config.Parse(data); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(src.Dir, "config.json"), err)
	}
	if src.FS != nil {
		f.Checkpoint, err = checkpoint.OpenFS(src.FS, o)
	} else {
		f.Checkpoint, err = checkpoint.Open(src.Dir, o)
	}
	if err != nil {
		return nil, err
	}
	if err := f.read(fsys, cacheDir); err != nil {
		return nil, errors.Join(err, f.Checkpoint.Close())
	}
	return f, nil
}

func (f *Files) read(fsys fs.FS, cacheDir string) error {
	var err error
	if f.Report, err = f.Checkpoint.Check(f.Config); err != nil {
		return err
	}
	if f.Tokenizer, err = f.Source.Tokenizer(); err != nil {
		return err
	}
	if f.Tokenizer != nil && f.Tokenizer.VocabSize() > f.Config.VocabSize {
		return fmt.Errorf("%s: tokenizer.json has %d tokens, the model %d: they belong to different models", f.Source.Name(), f.Tokenizer.VocabSize(), f.Config.VocabSize)
	}
	script, err := fs.ReadFile(fsys, prompt.ScriptPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: read %s: %w", f.Source.Name(), prompt.ScriptPath, err)
	}
	f.Profile = prompt.DetectProfile(script)
	c := f.Config.Engram
	if len(c.Layers) == 0 {
		return nil
	}
	var vocabulary engram.Vocabulary
	if f.Tokenizer != nil {
		vocabulary = f.Tokenizer
	}
	var cache *engram.Cache
	if cacheDir != "" {
		cache = engram.NewCache(cacheDir)
	}
	f.rows, err = engram.Load(fsys, engram.Params{
		Layers: c.Layers, MaxNgram: c.MaxNgram, Bucket: c.VocabSize, Heads: c.Heads, Classes: c.Classes, PadToken: c.PadToken,
	}, vocabulary, cache)
	if err != nil {
		return fmt.Errorf("%s: Engram: %w", f.Source.Name(), err)
	}
	return nil
}

// Rows is the source of Engram row ids, nil for a model without Engram.
func (f *Files) Rows() model.RowSource { return f.rows }

// Banned lists the ids that must never be sampled: BOS, padding, image and noise placeholders, tokens that the vocabulary
// only reserves, turn headers, and ids that the tokenizer has no text for.
func (f *Files) Banned() []int {
	c := f.Config
	ids := []int{c.BOS, c.Pad}
	if c.ImageToken >= 0 {
		ids = append(ids, c.ImageToken)
	}
	if c.Draft.Layers > 0 {
		ids = append(ids, c.Draft.NoiseToken)
	}
	if f.Tokenizer == nil {
		return ids
	}
	for _, t := range f.Tokenizer.Added() {
		if t.ID != c.EOS && (placeholder(t.Content) || slices.Contains(headers, t.Content)) {
			ids = append(ids, t.ID)
		}
	}
	for id := range c.VocabSize {
		if f.Tokenizer.Spelling(id) == "" {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// headers begin a turn or a gap of the prompt: only templates write them.
var headers = []string{
	"<｜System｜>", "<｜User｜>", "<｜Assistant｜>", "<｜latest_reminder｜>", "<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>",
}

// placeholder reports whether an added token stands for no text: padding, parts of images, reserved ids.
func placeholder(spelling string) bool {
	for _, part := range []string{"▁pad▁", "image", "place▁holder"} {
		if strings.Contains(spelling, part) {
			return true
		}
	}
	return false
}

// Close closes the checkpoint.
func (f *Files) Close() error { return f.Checkpoint.Close() }

// Instance is a running engine with everything it was opened from.
type Instance struct {
	*Files
	*Engine
	Setup    Setup
	SelfTest SelfTest
	Captured Captured // of a device
	stream   *ced.Stream
	model    *model.Model
	store    *disk.Store
	noStore  string // why there is none
}

// Open opens a checkpoint and starts an engine on it.
func Open(src Source, setup Setup) (*Instance, error) {
	f, err := OpenFiles(src, checkpoint.Options{NoMap: setup.NoMap, HugePages: setup.HugePages, HugeCopies: setup.HugePages}, setup.CacheDir)
	if err != nil {
		return nil, err
	}
	i, err := Start(f, setup)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return i, nil
}

// Start starts an engine on opened files, which the instance then owns.
func Start(f *Files, setup Setup) (*Instance, error) {
	load, err := f.Plan(setup)
	if err != nil {
		return nil, err
	}
	if err := load.Check(); err != nil {
		return nil, err
	}
	sizes := load.Setup
	setup.Context, setup.Slots, setup.Chunk, setup.Outputs, setup.KVTokens = sizes.Context, sizes.Slots, sizes.Chunk, sizes.Outputs, sizes.KVTokens
	if load.Device != nil {
		setup.ExpertBytes = load.Device.Budget()
	}
	var flags []ced.Flag
	if setup.Pin {
		flags = append(flags, ced.Pin)
	}
	s, err := ced.Open(setup.Backend, setup.Device, setup.Threads, flags...)
	if err != nil {
		return nil, err
	}
	o := model.Options{
		Slots: setup.Slots, Context: setup.Context, KVTokens: setup.KVTokens, StepRows: setup.Chunk + setup.Slots,
		Outputs: setup.Outputs, DraftRows: f.Config.Draft.BlockSize, HugePages: setup.HugePages,
		ExpertBytes: setup.ExpertBytes, HostExperts: setup.HostExperts, HostThreads: setup.Threads, HostPin: setup.Pin,
		Tails:  setup.Snapshots > 0,
		Graphs: !setup.NoGraphs, Warn: setup.Warn,
	}
	if setup.ExpertBytes > 0 && !setup.HostExperts {
		o.ExpertOrder, o.ExpertOrderName = f.expertOrder()
	}
	f.residence(load, &o)
	m, err := model.New(s, f.Checkpoint, f.Config, f.rows, o)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", f.Source.Name(), err)
	}
	i := &Instance{Files: f, Setup: setup, stream: s, model: m}
	if err := m.Rehearse(i.rehearse); err != nil {
		m.Close()
		s.Close()
		return nil, fmt.Errorf("%s: %w", f.Source.Name(), err)
	}
	s.SetTrace(setup.Trace)
	i.openStore()
	i.Engine = New(m, s, Options{Context: setup.Context, Chunk: setup.Chunk, Observe: setup.Observe, Snapshots: setup.Snapshots, SnapshotTTL: setup.SnapshotTTL, Slowdown: setup.Slowdown, Store: i.store, NoStore: i.noStore})
	return i, nil
}

// rehearse runs what comes before the first request.
func (i *Instance) rehearse() (err error) {
	if !i.Setup.NoSelfTest {
		if i.SelfTest, err = i.selfTest(i.model, i.stream); err != nil {
			return err
		}
	}
	i.Captured, err = i.capture()
	return err
}

// Threads is the number of CPU workers in use.
func (i *Instance) Threads() int {
	if u := i.model.Use().Slots; u != nil && u.ByHost {
		return u.Threads
	}
	return i.stream.Threads()
}

// Close ends the engine and frees everything.
func (i *Instance) Close() error {
	i.Engine.Close()
	err := i.store.Close()
	i.keepOrder()
	i.model.Close()
	i.stream.Close()
	return errors.Join(err, i.Files.Close())
}
