package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Options changes how a checkpoint is opened. The zero value maps the shards.
type Options struct {
	// NoMap reads tensors into anonymous memory at first use, and table rows one by one.
	NoMap bool
	// HugePages reads mapped files in huge pages, where the file system can: the tables apart, which are read by rows.
	HugePages bool
	// HugeCopies asks for huge pages behind anonymous memory. Making room for them may take seconds per gigabyte.
	HugeCopies bool
	// Ignore lists patterns (path.Match, * does not cross a '/') of tensor names that Check passes over.
	Ignore []string
}

// Checkpoint is an open set of shards.
type Checkpoint struct {
	dir     string
	opts    Options
	shards  []shard
	tensors []Tensor
	byName  map[string]int32
	mapErr  error // why mapping was refused, if it was

	mu     sync.Mutex          // guards cache
	cache  map[int32]*resident // tensors that were read or copied
	memory memory
}

// resident is a tensor in anonymous memory; the first caller fills it.
type resident struct {
	once sync.Once
	data []byte
	err  error
}

// shard is one file. data holds all of it when it is mapped or resident; otherwise file is read.
type shard struct {
	name   string
	size   int64
	data   []byte
	mapped bool
	file   *os.File
}

func (s *shard) reader() io.ReaderAt {
	if s.file != nil {
		return s.file
	}
	return bytes.NewReader(s.data)
}

// Open opens the checkpoint in a directory: the shards that model.safetensors.index.json names, or
// model.safetensors alone. Every header is read and verified; the error names every faulty shard.
func Open(dir string, opts Options) (*Checkpoint, error) {
	x, err := readIndex(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	return open(dir, x, opts)
}

// OpenFile opens one safetensors file. Names are kept as stored.
func OpenFile(path string, opts Options) (*Checkpoint, error) {
	return open(filepath.Dir(path), &index{shards: []string{filepath.Base(path)}, totalSize: -1}, opts)
}

// OpenFS opens the checkpoint at the root of a file system that cannot be mapped, such as an embedded
// one: each shard is copied to memory whose address is a multiple of 64.
func OpenFS(fsys fs.FS, opts Options) (*Checkpoint, error) {
	x, err := readIndex(fsys)
	if err != nil {
		return nil, fmt.Errorf("embedded checkpoint: %w", err)
	}
	c := &Checkpoint{dir: "embedded checkpoint", opts: opts, memory: memory{huge: opts.HugeCopies}}
	return c.load(x, func(name string) (shard, error) {
		f, err := fsys.Open(name)
		if err != nil {
			return shard{}, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return shard{}, err
		}
		data, err := c.memory.alloc(info.Size())
		if err != nil {
			return shard{}, err
		}
		if _, err := io.ReadFull(f, data); err != nil {
			return shard{}, err
		}
		return shard{name: name, size: info.Size(), data: data}, nil
	})
}

func open(dir string, x *index, opts Options) (*Checkpoint, error) {
	c := &Checkpoint{dir: dir, opts: opts, memory: memory{huge: opts.HugeCopies}}
	c, err := c.load(x, func(name string) (shard, error) {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return shard{}, err
		}
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("is not a regular file")
		}
		if err != nil {
			f.Close()
			return shard{}, err
		}
		return shard{name: name, size: info.Size(), file: f}, nil
	})
	if err == nil && !opts.NoMap {
		c.mapErr = c.mapShards()
	}
	return c, err
}

// load opens every shard, reads its header and holds it against the index. It returns the receiver, or
// closes it and returns one error for all faults.
func (c *Checkpoint) load(x *index, openShard func(name string) (shard, error)) (*Checkpoint, error) {
	c.byName = make(map[string]int32, len(x.names))
	c.cache = map[int32]*resident{}
	var faults faults
	for i, name := range x.shards {
		s, err := openShard(name)
		if err != nil {
			faults.shard(name, missingFile(err))
			continue
		}
		c.shards = append(c.shards, s)
		tensors, err := readHeader(s.reader(), s.size, x.intern)
		if err != nil {
			faults.shard(name, err)
			continue
		}
		for _, t := range tensors {
			t.Shard = len(c.shards) - 1
			if _, dup := c.byName[t.Name]; dup {
				faults.tensor("stored twice", t.Name)
				continue
			}
			if x.id != nil {
				id, ok := x.id[t.Name]
				if !ok || x.shardOf[id] != int32(i) {
					faults.tensor("not where the index says", t.Name)
				}
			}
			c.byName[t.Name] = int32(len(c.tensors))
			c.tensors = append(c.tensors, t)
		}
	}
	// With a shard that cannot be read, its tensors would all count as missing: one cause, one message.
	if len(faults.shards) == 0 {
		total := int64(0)
		for i := range c.tensors {
			total += c.tensors[i].Size
		}
		for _, name := range x.names {
			if _, ok := c.byName[name]; !ok {
				faults.tensor("in the index but in no shard", name)
			}
		}
		if x.totalSize >= 0 && x.totalSize != total {
			faults.shard(indexName, fmt.Errorf("states total_size %d, but the shards hold %d bytes", x.totalSize, total))
		}
	}
	if err := faults.err(); err != nil {
		return nil, errors.Join(fmt.Errorf("checkpoint %s: %w", c.dir, err), c.Close())
	}
	return c, nil
}

func missingFile(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("is missing" + redownload)
	}
	return err
}

// readIndex reads the index at the root of fsys, or makes one up for a lone model.safetensors.
func readIndex(fsys fs.FS) (*index, error) {
	data, err := fs.ReadFile(fsys, indexName)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := fs.Stat(fsys, singleName); err != nil {
			return nil, fmt.Errorf("neither %s nor %s is there", indexName, singleName)
		}
		return &index{shards: []string{singleName}, totalSize: -1}, nil
	}
	if err != nil {
		return nil, err
	}
	x, err := parseIndex(data)
	if err != nil {
		return nil, fmt.Errorf("%s %w", indexName, err)
	}
	return x, nil
}
