package verify

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"cedrun/runtime/checkpoint"
)

const (
	bufferBytes = 1 << 20 // a multiple of every element's size
	maxNames    = 10      // of tensors per kind of fault
)

// deep reads every byte of every file.
func (v *verifier) deep(ctx context.Context) error {
	if v.ck == nil {
		v.note("values were not looked at: the shards make no checkpoint")
	}
	jobs := v.jobs()
	total := int64(0)
	for _, j := range jobs {
		total += j.file.Bytes
	}
	add := func(int64) {}
	if v.Progress != nil {
		add = v.Progress(total)
	}
	queue := make(chan *job)
	var wg sync.WaitGroup
	for range v.Workers {
		wg.Go(func() {
			buf := make([]byte, bufferBytes)
			for j := range queue {
				j.err = j.read(ctx, v, buf, add)
			}
		})
	}
	// The largest first, so that no worker is left alone with one at the end.
	for _, j := range slices.SortedStableFunc(slices.Values(jobs), func(a, b *job) int { return -cmp.Compare(a.file.Bytes, b.file.Bytes) }) {
		queue <- j
	}
	close(queue)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	v.judge(jobs)
	v.report.BytesRead = total
	return nil
}

// job is one file to read, and what was found in it.
type job struct {
	file    *File
	tensors []checkpoint.Tensor // of a shard, in file order
	found   []finding
	err     error
}

// finding is a tensor with elements that stand for no number.
type finding struct {
	pattern *pattern
	tensor  string
	count   int64
	first   []int64
}

func (v *verifier) jobs() []*job {
	tensors := map[string][]checkpoint.Tensor{}
	if v.ck != nil {
		shards := v.ck.Shards()
		for _, t := range v.ck.Tensors() {
			tensors[shards[t.Shard]] = append(tensors[shards[t.Shard]], t)
		}
	}
	jobs := make([]*job, len(v.report.Files))
	for i := range jobs {
		f := &v.report.Files[i]
		jobs[i] = &job{file: f, tensors: tensors[f.Name]}
	}
	return jobs
}

// read goes through a file once.
func (j *job) read(ctx context.Context, v *verifier, buf []byte, add func(int64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := v.fsys.Open(j.file.Name)
	if err != nil {
		return err
	}
	defer f.Close()
	r, hash := bufio.NewReaderSize(f, bufferBytes), sha256.New()
	at := int64(0)
	// pass reads up to the byte at end and shows each piece to see.
	pass := func(end int64, see func(piece []byte)) error {
		for at < end {
			if err := ctx.Err(); err != nil {
				return err
			}
			b := buf[:min(int64(len(buf)), end-at)]
			if n, err := io.ReadFull(r, b); err != nil {
				if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					err = fmt.Errorf("became shorter while it was read: it ends at byte %d", at+int64(n))
				}
				return err
			}
			hash.Write(b)
			if see != nil {
				see(b)
			}
			at += int64(len(b))
			add(int64(len(b)))
		}
		return nil
	}
	for _, t := range j.tensors {
		if err := pass(t.Offset, nil); err != nil {
			return err
		}
		p := patterns[v.stored(&t)]
		var see func([]byte)
		found := finding{pattern: p, tensor: t.Name}
		if p != nil {
			see = func(piece []byte) {
				n, first := p.count(piece)
				if n > 0 && found.count == 0 {
					found.first = coordinates(first+(at-t.Offset)/t.DType.Size(), t.Shape)
				}
				found.count += int64(n)
			}
		}
		if err := pass(t.Offset+t.Size, see); err != nil {
			return err
		}
		if found.count > 0 {
			j.found = append(j.found, found)
		}
	}
	if err := pass(j.file.Bytes, nil); err != nil {
		return err
	}
	j.file.SHA256 = hex.EncodeToString(hash.Sum(nil))
	return nil
}

// stored is the format of a tensor's elements: a scale may be stored as U8.
func (v *verifier) stored(t *checkpoint.Tensor) checkpoint.DType {
	if t.DType == checkpoint.U8 && strings.HasSuffix(t.Name, ".scale") {
		return checkpoint.F8E8M0
	}
	return t.DType
}

// coordinates turns the number of an element into its place in the tensor.
func coordinates(element int64, shape []int64) []int64 {
	at := make([]int64, len(shape))
	for i, n := range slices.Backward(shape) {
		at[i] = element % n
		element /= n
	}
	return at
}

// judge turns what was found into faults, in the order of the files, and compares digests.
func (v *verifier) judge(jobs []*job) {
	type kind struct {
		count int
		names []string
	}
	kinds := map[*pattern]*kind{}
	var order []*pattern
	for _, j := range jobs {
		if j.err != nil {
			v.fault("%s %v", j.file.Name, j.err)
		}
		for _, f := range j.found {
			k := kinds[f.pattern]
			if k == nil {
				k = &kind{}
				kinds[f.pattern] = k
				order = append(order, f.pattern)
			}
			if k.count++; k.count <= maxNames {
				k.names = append(k.names, fmt.Sprintf("%s (%d, the first at %v)", f.tensor, f.count, f.first))
			} else if k.count == maxNames+1 {
				k.names = append(k.names, "...")
			}
		}
	}
	for _, p := range order {
		v.fault("%d tensors %s: %s", kinds[p].count, p.what, strings.Join(kinds[p].names, ", "))
	}
	v.compare()
}

func (v *verifier) compare() {
	d := v.Digests
	if d == nil {
		var names []string
		for _, f := range v.report.Files {
			names = append(names, f.Name)
		}
		if d = noted(v.fsys, names); d == nil {
			v.note("digests were taken but compared with nothing: give --digests FILE")
			return
		}
	}
	v.report.DigestSource = d.source
	unlisted := 0
	for i := range v.report.Files {
		f := &v.report.Files[i]
		want, ok := d.hex[f.Name]
		switch {
		case f.SHA256 == "": // unreadable, which is a fault already
		case !ok:
			unlisted++
		case f.SHA256 != want:
			v.fault("%s has SHA-256 %s, but %s says %s: download the file again", f.Name, f.SHA256, d.source, want)
		default:
			f.Confirmed = true
		}
	}
	if unlisted > 0 {
		v.note("%d files have no digest in %s", unlisted, d.source)
	}
}
