package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// rewrite copies a mini checkpoint into one shard with its tensors edited.
func rewrite(t testing.TB, name string, edit func([]Out) []Out) string {
	t.Helper()
	dir := copyMini(t, name)
	src := mustOpen(t, miniDir(name), Options{})
	var tensors []Out
	for _, x := range src.Tensors() {
		data, err := src.Bytes(x.Name)
		if err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, Out{Name: x.Name, DType: x.DType, Shape: x.Shape, Data: data})
	}
	tensors = edit(tensors)
	weights := map[string]string{}
	for _, x := range tensors {
		weights[x.Name] = singleName
	}
	if err := WriteFile(filepath.Join(dir, singleName), tensors); err != nil {
		t.Fatal(err)
	}
	index, err := json.Marshal(map[string]any{"weight_map": weights})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, indexName), string(index))
	return dir
}

// without drops the tensors whose name contains a text.
func without(text string) func([]Out) []Out {
	return func(in []Out) []Out {
		var out []Out
		for _, x := range in {
			if !strings.Contains(x.Name, text) {
				out = append(out, x)
			}
		}
		return out
	}
}

// change edits one tensor.
func change(name string, edit func(*Out)) func([]Out) []Out {
	return func(in []Out) []Out {
		for i := range in {
			if in[i].Name == name {
				edit(&in[i])
			}
		}
		return in
	}
}

func TestCheckReportsWhatDoesNotFit(t *testing.T) {
	for _, tt := range []struct {
		name, mini string
		edit       func([]Out) []Out
		want       []string
	}{
		{"missing", "base", without("layers.7.attn.indexer.wq_b"),
			[]string{"does not fit its config: 2 tensors missing: layers.7.attn.indexer.wq_b.weight, layers.7.attn.indexer.wq_b.scale"}},
		{"many missing", "base", without("experts.3."),
			[]string{"54 tensors missing: layers.0.ffn.experts.3.w1.weight", ", ..."}},
		{"unexpected", "base", func(in []Out) []Out {
			return append(in, Out{Name: "layers.2.attn.compressor.wkv.weight", DType: BF16, Shape: []int64{1}, Data: make([]byte, 2)})
		}, []string{"1 tensors unexpected: layers.2.attn.compressor.wkv.weight"}},
		{"wrong shape", "base", change("layers.1.attn.wq_a.weight", func(x *Out) { x.Shape = []int64{128, 64} }),
			[]string{"1 tensors of a wrong shape: layers.1.attn.wq_a.weight is [128 64], not [64 128]"}},
		{"wrong dtype", "base", change("layers.1.attn.wq_a.weight", func(x *Out) { x.DType = I8 }),
			[]string{"1 tensors of a wrong dtype: layers.1.attn.wq_a.weight is I8, not F8_E4M3"}},
		{"norm in FP16", "base", change("norm.weight", func(x *Out) { x.DType = F16 }),
			[]string{"norm.weight is F16, not BF16 or F32"}},
		{"several kinds at once", "base", func(in []Out) []Out {
			in = without("layers.4.attn_norm")(in)
			return change("norm.weight", func(x *Out) { x.Shape = []int64{64, 2} })(in)
		}, []string{"1 tensors missing: layers.4.attn_norm.weight", "1 tensors of a wrong shape: norm.weight"}},
		{"part of the drafts", "wide", without("mtp.1.attn"), []string{"tensors missing: mtp.1.attn.wq_a.weight"}},
		{"part of the vision tower", "vl", without("aligner.w2"), []string{"2 tensors missing: aligner.w2.weight, aligner.w2.bias"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := rewrite(t, tt.mini, tt.edit)
			_, err := mustOpen(t, dir, Options{}).Check(loadConfig(t, dir))
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v does not contain %q", err, want)
				}
			}
			if err != nil && strings.Count(err.Error(), "layers.") > 4*maxNames {
				t.Errorf("report is too long: %v", err)
			}
		})
	}
}

func TestCheckAcceptsVariants(t *testing.T) {
	for _, tt := range []struct {
		name, mini string
		edit       func([]Out) []Out
		opts       Options
		want       string // of the report
	}{
		{name: "norm stored in F32", mini: "base", edit: change("norm.weight", widen), want: "backbone 731"},
		{name: "scales stored as bytes", mini: "base", edit: change("layers.0.attn.wkv.scale", func(x *Out) { x.DType = U8 }), want: "backbone 731"},
		{name: "no drafts", mini: "wide", edit: without("mtp."), want: "without draft (all 169 tensors)"},
		{name: "no vision", mini: "vl", edit: func(in []Out) []Out {
			return without("image_")(without("aligner.")(without("vision.")(in)))
		}, want: "without vision (all 26 tensors)"},
		{name: "no image routing", mini: "vl", edit: without("bias_vl"), want: "without image routing (12 tensors ffn.gate.bias_vl)"},
		{name: "no image routing in a text model", mini: "base", edit: without("bias_vl"), want: "backbone 722, engram 12"},
		{name: "ignored tensors", mini: "base", edit: func(in []Out) []Out {
			return append(in, Out{Name: "rotary.inv_freq", DType: F32, Shape: []int64{1}, Data: make([]byte, 4)})
		}, opts: Options{Ignore: []string{"rotary.*"}}, want: "ignored 1"},
		{name: "names of a repack", mini: "base", edit: func(in []Out) []Out {
			for i := range in {
				n := "model." + in[i].Name
				n = strings.Replace(n, ".attn.", ".self_attn.", 1)
				n = strings.Replace(n, ".ffn.", ".mlp.", 1)
				n = strings.Replace(n, "gate.bias", "gate.e_score_correction_bias", 1)
				n = strings.Replace(n, "correction_bias_vl", "correction_bias", 1)
				if in[i].Name != n && strings.HasSuffix(in[i].Name, ".bias_vl") {
					n = "model." + in[i].Name
				}
				if stem, ok := strings.CutSuffix(n, ".scale"); ok && !strings.Contains(n, "engram.embed") {
					n = stem + ".weight_scale_inv"
				}
				in[i].Name = n
			}
			return in
		}, want: "743 tensors, 3106248 bytes: backbone 731, engram 12"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := rewrite(t, tt.mini, tt.edit)
			c := mustOpen(t, dir, tt.opts)
			r, err := c.Check(loadConfig(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(r.String(), tt.want) {
				t.Errorf("report %q does not contain %q", r, tt.want)
			}
			if r.Total().Tensors != len(c.Tensors()) {
				t.Errorf("%d tensors counted of %d", r.Total().Tensors, len(c.Tensors()))
			}
		})
	}
}

// widen stores a BF16 tensor as F32.
func widen(x *Out) {
	var data []byte
	for i := 0; i < len(x.Data); i += 2 {
		data = binary.LittleEndian.AppendUint32(data, uint32(binary.LittleEndian.Uint16(x.Data[i:]))<<16)
	}
	x.DType, x.Data = F32, data
}

func TestBadIgnorePatternIsReported(t *testing.T) {
	dir := rewrite(t, "base", func(in []Out) []Out {
		return append(in, Out{Name: "extra", DType: U8, Shape: []int64{1}, Data: []byte{0}})
	})
	_, err := mustOpen(t, dir, Options{Ignore: []string{"["}}).Check(loadConfig(t, dir))
	if err == nil || !strings.Contains(err.Error(), `ignore pattern "["`) {
		t.Error(err)
	}
}

func TestFloatsAndInts(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	tensors := []Out{
		{Name: "f32", DType: F32, Shape: []int64{2}, Data: binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(1.5)), 0x80000000)},
		{Name: "bf16", DType: BF16, Shape: []int64{1, 2}, Data: []byte{0xC0, 0x3F, 0x80, 0xFF}},
		{Name: "i8", DType: I8, Shape: []int64{2}, Data: []byte{0xFF, 7}},
		{Name: "u8", DType: U8, Shape: []int64{1}, Data: []byte{0xFF}},
		{Name: "i64", DType: I64, Shape: []int64{}, Data: binary.LittleEndian.AppendUint64(nil, 1<<53+1)},
		{Name: "i32", DType: I32, Shape: []int64{1}, Data: []byte{0xFE, 0xFF, 0xFF, 0xFF}},
	}
	if err := WriteFile(path, tensors); err != nil {
		t.Fatal(err)
	}
	c, err := OpenFile(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, want := range map[string][]float32{"f32": {1.5, float32(math.Copysign(0, -1))}, "bf16": {1.5, float32(math.Inf(-1))}} {
		got, err := c.Floats(name)
		if err != nil || len(got) != 2 || math.Float32bits(got[0]) != math.Float32bits(want[0]) || math.Float32bits(got[1]) != math.Float32bits(want[1]) {
			t.Errorf("%s = %v, %v; want %v", name, got, err, want)
		}
	}
	for name, want := range map[string]int64{"i8": -1, "u8": 255, "i64": 1<<53 + 1, "i32": -2} {
		got, err := c.Ints(name)
		if err != nil || got[0] != want {
			t.Errorf("%s = %v, %v; want %d", name, got, err, want)
		}
	}
	if _, err := c.Floats("i8"); err == nil {
		t.Error("Floats of I8 succeeds")
	}
	if _, err := c.Ints("f32"); err == nil {
		t.Error("Ints of F32 succeeds")
	}
}
