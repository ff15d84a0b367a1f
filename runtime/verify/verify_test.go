package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cedrun/runtime/checkpoint"
)

const minis = "../../testdata/mini"

// model is a copy of a mini checkpoint that a test may damage.
type model struct {
	testing.TB
	dir string
}

func copyMini(t testing.TB, name string) model {
	t.Helper()
	m := model{t, t.TempDir()}
	if err := os.CopyFS(m.dir, os.DirFS(filepath.Join(minis, name))); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m model) path(name string) string { return filepath.Join(m.dir, name) }

func (m model) write(name, text string) {
	m.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		m.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), []byte(text), 0o644); err != nil {
		m.Fatal(err)
	}
}

func (m model) sha256(name string) string {
	m.Helper()
	data, err := os.ReadFile(m.path(name))
	if err != nil {
		m.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// put overwrites bytes of a tensor.
func (m model) put(tensor string, at int64, b ...byte) {
	m.Helper()
	ck, err := checkpoint.Open(m.dir, checkpoint.Options{NoMap: true})
	if err != nil {
		m.Fatal(err)
	}
	defer ck.Close()
	t, ok := ck.Tensor(tensor)
	if !ok || at+int64(len(b)) > t.Size {
		m.Fatalf("no byte %d in %s", at, tensor)
	}
	f, err := os.OpenFile(m.path(ck.Shards()[t.Shard]), os.O_RDWR, 0)
	if err != nil {
		m.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, t.Offset+at); err != nil {
		m.Fatal(err)
	}
}

func (m model) verify(o Options) *Report {
	m.Helper()
	r, err := Run(context.Background(), Subject{Name: "model", Dir: m.dir}, o)
	if err != nil {
		m.Fatal(err)
	}
	if r.OK != (len(r.Faults) == 0) {
		m.Errorf("OK is %v with faults %v", r.OK, r.Faults)
	}
	return r
}

// one insists on exactly one fault, which contains every text.
func (r *Report) one(t testing.TB, want ...string) {
	t.Helper()
	if len(r.Faults) != 1 {
		t.Fatalf("faults %q, want one", r.Faults)
	}
	for _, w := range want {
		if !strings.Contains(r.Faults[0], w) {
			t.Errorf("fault %q lacks %q", r.Faults[0], w)
		}
	}
}

func TestSoundCheckpointsAreWhole(t *testing.T) {
	for _, name := range []string{"base", "wide", "vl", "sched40", "calm"} {
		t.Run(name, func(t *testing.T) {
			for _, deep := range []bool{false, true} {
				r, err := Run(context.Background(), Subject{Name: name, Dir: filepath.Join(minis, name)}, Options{Deep: deep})
				if err != nil || !r.OK {
					t.Fatalf("%v, %v", err, r)
				}
				c := r.Census
				for _, counts := range [][]Count{c.Roles, c.Types} {
					sum := Count{}
					for _, n := range counts {
						sum.Tensors += n.Tensors
						sum.Bytes += n.Bytes
					}
					if sum.Tensors != c.Tensors || sum.Bytes != c.Bytes {
						t.Errorf("%v do not add up to %d tensors, %d bytes", counts, c.Tensors, c.Bytes)
					}
				}
				if deep != (r.BytesRead > c.Bytes) {
					t.Errorf("%d bytes read with deep = %v", r.BytesRead, deep)
				}
			}
		})
	}
}

func TestFaultsOfTheCensus(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(m model)
		want   []string
	}{
		{"no config", func(m model) { os.Remove(m.path("config.json")) }, []string{"config.json is missing"}},
		{"bad config", func(m model) { m.write("config.json", "{}") }, []string{"config.json: "}},
		{"truncated shard", func(m model) {
			shard := shards(m)[1]
			st, err := os.Stat(m.path(shard))
			if err != nil {
				m.Fatal(err)
			}
			if err := os.Truncate(m.path(shard), st.Size()-17); err != nil {
				m.Fatal(err)
			}
		}, []string{"model-00002-of-00003.safetensors is truncated: 17 of "}},
		{"missing shard", func(m model) { os.Remove(m.path(shards(m)[2])) }, []string{"model-00003-of-00003.safetensors is missing"}},
		{"git-lfs pointer", func(m model) {
			m.write(shards(m)[0], "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
		}, []string{"a git-lfs pointer"}},
		{"config of another model", func(m model) {
			data, err := os.ReadFile(filepath.Join(minis, "wide", "config.json"))
			if err != nil {
				m.Fatal(err)
			}
			m.write("config.json", string(data))
		}, []string{"tensors of a wrong shape: "}},
		{"tokenizer that is a page", func(m model) { m.write("tokenizer.json", "<html>") }, []string{"tokenizer.json: "}},
		{"Engram tables of another model", func(m model) { m.write("engram_tables.json", "{}") }, []string{"Engram: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := copyMini(t, "sched40")
			c.damage(m)
			r := m.verify(Options{})
			all := strings.Join(r.Faults, "\n")
			for _, w := range c.want {
				if !strings.Contains(all, w) {
					t.Errorf("faults\n%s\nlack %q", all, w)
				}
			}
			if strings.Contains(all, m.dir) {
				t.Errorf("faults repeat the directory: %s", all)
			}
			// Deep still reports, whatever the census found, and takes the digest of every file that is there.
			deep := m.verify(Options{Deep: true})
			if diff := cmp.Diff(r.Faults, deep.Faults); diff != "" {
				t.Errorf("deep: %s", diff)
			}
			for _, f := range deep.Files {
				if f.SHA256 != m.sha256(f.Name) {
					t.Errorf("%s: digest %q", f.Name, f.SHA256)
				}
			}
		})
	}
}

func shards(m model) []string {
	m.Helper()
	names, err := filepath.Glob(m.path("model-*.safetensors"))
	if err != nil || len(names) != 3 {
		m.Fatalf("shards %v, %v", names, err)
	}
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	return names
}

func TestFaultsOfTheWeights(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(m model)
		want   string
	}{
		{"E4M3 NaN", func(m model) {
			m.put("layers.0.attn.wq_a.weight", 5, 0x7f)
			m.put("layers.0.attn.wq_a.weight", 300, 0xff)
		},
			"1 tensors with E4M3 NaN codes (0x7F or 0xFF): layers.0.attn.wq_a.weight (2, the first at [0 5])"},
		{"E8M0 NaN", func(m model) { m.put("layers.1.ffn.experts.0.w1.scale", 0, 0xff) },
			"1 tensors with scales of 0xFF (E8M0 NaN): layers.1.ffn.experts.0.w1.scale (1, the first at [0 0])"},
		{"BF16 infinity", func(m model) { m.put("norm.weight", 6, 0x80, 0xff) }, "1 tensors with infinite or NaN values (BF16): norm.weight (1, the first at [3])"},
		{"F32 NaN", func(m model) { m.put("layers.2.attn.attn_sink", 4, 1, 0, 0x80, 0x7f) },
			"1 tensors with infinite or NaN values (F32): layers.2.attn.attn_sink (1, the first at [1])"},
		{"many tensors", func(m model) {
			for i := range 8 {
				m.put(fmt.Sprintf("layers.%d.hc_attn_base", i), 0, 0, 0, 0x80, 0x7f)
				m.put(fmt.Sprintf("layers.%d.hc_ffn_base", i), 0, 0, 0, 0x80, 0x7f)
			}
		}, "16 tensors with infinite or NaN values (F32): layers.0.hc_attn_base (1, the first at [0]), "},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := copyMini(t, "base")
			c.damage(m)
			if r := m.verify(Options{}); !r.OK {
				t.Errorf("the census reads weights: %v", r.Faults)
			}
			r := m.verify(Options{Deep: true})
			r.one(t, c.want)
			if n := strings.Count(r.Faults[0], "the first at"); n > maxNames {
				t.Errorf("%d tensors are named", n)
			}
		})
	}
	t.Run("codes that are numbers", func(t *testing.T) {
		m := copyMini(t, "base")
		m.put("layers.0.attn.wq_a.weight", 5, 0x7e, 0xfe, 0x80)
		m.put("layers.1.ffn.experts.0.w1.scale", 0, 0xfe, 0x7f)
		m.put("layers.1.ffn.experts.0.w1.weight", 0, 0xff, 0x7f) // FP4: every code is a number
		m.put("norm.weight", 6, 0x7f, 0xff)
		m.put("layers.2.attn.attn_sink", 4, 0xff, 0xff, 0x7f, 0x7f)
		if r := m.verify(Options{Deep: true}); !r.OK {
			t.Error(r.Faults)
		}
	})
}

// A repack may store scales as U8, and tensors at any byte.
func TestRepackedScalesAreReadAsScales(t *testing.T) {
	m := copyMini(t, "base")
	ck, err := checkpoint.Open(m.dir, checkpoint.Options{NoMap: true})
	if err != nil {
		t.Fatal(err)
	}
	out := []checkpoint.Out{{Name: "odd", DType: checkpoint.U8, Shape: []int64{1}, Data: []byte{255}}}
	for _, x := range ck.Tensors() {
		b, err := ck.Bytes(x.Name)
		if err != nil {
			t.Fatal(err)
		}
		d := x.DType
		if d == checkpoint.F8E8M0 {
			d = checkpoint.U8
			if x.Name == "layers.0.attn.wkv.scale" {
				b = bytes.Clone(b)
				b[0] = 255
			}
		}
		out = append(out, checkpoint.Out{Name: x.Name, DType: d, Shape: x.Shape, Data: b})
	}
	for _, name := range []string{"model.safetensors.index.json", ck.Shards()[0]} {
		if err := os.Remove(m.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkpoint.WriteFile(m.path("model.safetensors"), out); err != nil {
		t.Fatal(err)
	}
	if err := ck.Close(); err != nil {
		t.Fatal(err)
	}
	r := m.verify(Options{Deep: true})
	if len(r.Faults) != 2 || !strings.Contains(r.Faults[0], "1 tensors unexpected: odd") ||
		r.Faults[1] != "1 tensors with scales of 0xFF (E8M0 NaN): layers.0.attn.wkv.scale (1, the first at [0 0])" {
		t.Errorf("faults %q", r.Faults)
	}
}

func TestDigests(t *testing.T) {
	const shard, wrong = "model-00002-of-00003.safetensors", "0000000000000000000000000000000000000000000000000000000000000000"
	parse := func(t *testing.T, source, text string) *Digests {
		t.Helper()
		d, err := ParseDigests(source, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	t.Run("are those of sha256sum", func(t *testing.T) {
		m := copyMini(t, "sched40")
		r := m.verify(Options{Deep: true})
		if len(r.Files) != 6 {
			t.Errorf("files %v", r.Files)
		}
		for _, f := range r.Files {
			if f.SHA256 != m.sha256(f.Name) {
				t.Errorf("%s: %s", f.Name, f.SHA256)
			}
		}
		if r.DigestSource != "" || !strings.Contains(strings.Join(r.Notes, ";"), "compared with nothing") {
			t.Errorf("notes %q", r.Notes)
		}
	})
	t.Run("equal", func(t *testing.T) {
		m := copyMini(t, "sched40")
		m.write("README.md", "hello")
		d := parse(t, "SHA256SUMS", m.sha256(shard)+"  "+shard+"\n"+m.sha256("README.md")+" *./README.md\n")
		r := m.verify(Options{Deep: true, Digests: d})
		confirmed := 0
		for _, f := range r.Files {
			if f.Confirmed {
				confirmed++
			}
		}
		if !r.OK || confirmed != 2 || r.DigestSource != "SHA256SUMS" || !strings.Contains(strings.Join(r.Notes, ";"), "5 files have no digest in SHA256SUMS") {
			t.Errorf("%d confirmed, %+v", confirmed, r)
		}
	})
	t.Run("different", func(t *testing.T) {
		m := copyMini(t, "sched40")
		r := m.verify(Options{Deep: true, Digests: parse(t, "SHA256SUMS", wrong+"  "+shard)})
		r.one(t, shard+" has SHA-256 "+m.sha256(shard)+", but SHA256SUMS says "+wrong+": download the file again")
	})
	t.Run("of an absent file", func(t *testing.T) {
		m := copyMini(t, "sched40")
		m.verify(Options{Deep: true, Digests: parse(t, "SHA256SUMS", wrong+"  LICENSE")}).one(t, "LICENSE is listed in SHA256SUMS, but it is not there")
	})
	t.Run("noted by the Hugging Face client", func(t *testing.T) {
		m := copyMini(t, "sched40")
		note := func(name, etag string) {
			m.write(".cache/huggingface/download/"+name+".metadata", "dba1be0a40aa45a94ad051997016db3960a90277\n"+etag+"\n1760000000.5\n")
		}
		note(shard, m.sha256(shard))
		note("config.json", "2e84f45c8a1b6a4f3a6b7c8d9e0f1a2b3c4d5e6f") // a git blob's SHA-1
		if r := m.verify(Options{Deep: true}); !r.OK || r.DigestSource != "the download's own record" {
			t.Errorf("%+v", r)
		}
		note(shard, wrong)
		m.verify(Options{Deep: true}).one(t, shard, "the download's own record says "+wrong)
		r := m.verify(Options{Deep: true, Digests: parse(t, "SHA256SUMS", m.sha256(shard)+"  "+shard)})
		if !r.OK {
			t.Errorf("a given list does not win over the record: %v", r.Faults)
		}
	})
}

func TestStrayShardsAreNoted(t *testing.T) {
	m := copyMini(t, "sched40")
	m.write("model-00004-of-00004.safetensors", "left by another download")
	r := m.verify(Options{})
	if !r.OK || !strings.Contains(strings.Join(r.Notes, ";"), "model-00004-of-00004.safetensors is no part of the checkpoint") {
		t.Errorf("%+v", r)
	}
}

func TestReportDoesNotDependOnWorkersOrPlace(t *testing.T) {
	m := copyMini(t, "sched40")
	m.put("layers.0.attn.wq_a.weight", 5, 0x7f)
	m.put("layers.30.hc_attn_base", 0, 0, 0, 0x80, 0x7f)
	m.put("layers.39.attn.wq_a.weight", 1, 0xff)
	want := m.verify(Options{Deep: true, Workers: 1})
	if len(want.Faults) != 2 {
		t.Errorf("faults %q", want.Faults)
	}
	for _, workers := range []int{0, 2, 5} {
		var total, read atomic.Int64
		got := m.verify(Options{Deep: true, Workers: workers, Progress: func(n int64) func(int64) {
			total.Add(n)
			return func(n int64) { read.Add(n) }
		}})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d workers: %s", workers, diff)
		}
		if total.Load() != read.Load() || total.Load() != want.BytesRead {
			t.Errorf("progress of %d of %d bytes, %d read", read.Load(), total.Load(), want.BytesRead)
		}
	}
	embedded, err := Run(context.Background(), Subject{Name: "model", FS: os.DirFS(m.dir)}, Options{Deep: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, embedded); diff != "" {
		t.Errorf("embedded: %s", diff)
	}
}

func TestCancellingStopsReading(t *testing.T) {
	m := copyMini(t, "sched40")
	ctx, cancel := context.WithCancel(context.Background())
	read := int64(0)
	_, err := Run(ctx, Subject{Name: "model", Dir: m.dir}, Options{Deep: true, Workers: 1, Progress: func(int64) func(int64) {
		return func(n int64) { read += n; cancel() }
	}})
	if !errors.Is(err, context.Canceled) || read == 0 || read > bufferBytes {
		t.Errorf("%v after %d bytes", err, read)
	}
}

func TestPrintedReport(t *testing.T) {
	m := copyMini(t, "sched40")
	m.put("norm.weight", 0, 0x80, 0x7f)
	var out bytes.Buffer
	if err := m.verify(Options{Deep: true}).Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"model\n", "backbone", "F8_E8M0", m.sha256("config.json") + "  config.json\n", "note: ", "fault: 1 tensors with infinite"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "whole") {
		t.Errorf("a faulty checkpoint is called whole:\n%s", &out)
	}
	out.Reset()
	if err := copyMini(t, "base").verify(Options{}).Print(&out); err != nil || !strings.HasSuffix(out.String(), "whole, as far as headers tell: --deep reads the weights\n") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestKeysOfTheReport(t *testing.T) {
	data, err := json.Marshal(copyMini(t, "base").verify(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"ok":true`, `"files":[{"name":"config.json","bytes":`, `"census":{"shards":1,"tensors":`, `"roles":[{"name":"backbone"`, `"dtypes":[{"name":"BF16"`} {
		if !strings.Contains(string(data), key) {
			t.Errorf("%s lacks %s", data, key)
		}
	}
}
