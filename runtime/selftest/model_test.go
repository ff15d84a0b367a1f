package selftest

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
	"cedrun/runtime/engram"
	"cedrun/runtime/model"
)

const mini = "../../testdata/mini/base"

// damaged copies the mini checkpoint with some tensors changed and loads it.
func damaged(t *testing.T, change func(name string, t checkpoint.DType, data []byte)) (*model.Model, *ced.Stream) {
	t.Helper()
	ck, err := checkpoint.Open(mini, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	dir := t.TempDir()
	if err := ck.Copy(filepath.Join(dir, "model.safetensors"), func(tensors []checkpoint.Out) []checkpoint.Out {
		for _, x := range tensors {
			change(x.Name, x.DType, x.Data)
		}
		return tensors
	}); err != nil {
		t.Fatal(err)
	}
	return load(t, dir, model.Options{Slots: 1, Context: 64, StepRows: 64})
}

func load(t *testing.T, dir string, opt model.Options) (*model.Model, *ced.Stream) {
	t.Helper()
	c, err := config.Load(mini + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	e := c.Engram
	ids, err := engram.Load(os.DirFS(mini), engram.Params{
		Layers: e.Layers, MaxNgram: e.MaxNgram, Bucket: e.VocabSize, Heads: e.Heads, Classes: e.Classes, PadToken: e.PadToken,
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := stream(t, ced.CPU, 1)
	m, err := model.New(s, ck, c, ids, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, s
}

func intact(string, checkpoint.DType, []byte) {}

// setAll overwrites a tensor of BF16 or F32 with one value.
func setAll(d checkpoint.DType, data []byte, v float32) {
	bits := math.Float32bits(v)
	for i := 0; i < len(data); i += 2 {
		switch {
		case d == checkpoint.F32 && i%4 == 0:
			data[i], data[i+1] = byte(bits), byte(bits>>8)
		default:
			data[i], data[i+1] = byte(bits>>16), byte(bits>>24)
		}
	}
}

func top1(t *testing.T, m *model.Model, s *ced.Stream, ids []int32) int32 {
	t.Helper()
	row, err := forward(m, s, ids, nil)
	if err != nil {
		t.Fatal(err)
	}
	return int32(slices.Index(row, slices.Max(row)))
}

func TestAHealthyModelPasses(t *testing.T) {
	m, s := damaged(t, intact)
	known := Known{Prompt: []int32{9, 8, 7}}
	want := top1(t, m, s, known.Prompt)
	for _, k := range []Known{{}, known, {Prompt: known.Prompt, Top1: &want}} {
		if warning, err := Model(m, s, k); warning != "" || err != nil {
			t.Errorf("%+v: warning %q, error %v", k, warning, err)
		}
	}
}

func TestNaNsAreRefusedWithTheLayerWhereTheyBegin(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct{ tensor, want string }{
		{"layers.4.ffn.gate.weight", "beginning with route_w of layer 4"},
		{"layers.2.attn.attn_sink", "beginning with attn_out of layer 2"},
		{"layers.0.attn_norm.weight", "beginning with attn_in of layer 0"},
		{"head.weight", "beginning with the output head"},
	} {
		t.Run(c.tensor, func(t *testing.T) {
			changed := false
			m, s := damaged(t, func(name string, d checkpoint.DType, data []byte) {
				if name == c.tensor {
					setAll(d, data, nan)
					changed = true
				}
			})
			if !changed {
				t.Fatal("the checkpoint has no such tensor")
			}
			_, err := Model(m, s, Known{})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestConstantLogitsAreAWarning(t *testing.T) {
	m, s := damaged(t, func(name string, _ checkpoint.DType, data []byte) {
		if name == "head.weight" {
			clear(data)
		}
	})
	warning, err := Model(m, s, Known{})
	if err != nil || !strings.Contains(warning, "no trained weights") {
		t.Errorf("warning %q, error %v", warning, err)
	}
}

func TestAnotherAnswerThanTheKnownOneIsRefused(t *testing.T) {
	healthy, s := damaged(t, intact)
	ids := []int32{9, 8, 7}
	want := top1(t, healthy, s, ids)
	wrong, s := damaged(t, func(name string, _ checkpoint.DType, data []byte) {
		if name == "head.weight" {
			clear(data)
			data[len(data)/2+1] = 0x3F // another row than the answer's
		}
	})
	other := top1(t, wrong, s, ids)
	if other == want {
		t.Fatal("the damage does not change the answer")
	}
	_, err := Model(wrong, s, Known{Prompt: ids, Top1: &want})
	if err == nil || !strings.Contains(err.Error(), "selftest.json expects") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}

func TestThePromptIsCutToWhatTheModelIsSizedFor(t *testing.T) {
	m, s := load(t, mini, model.Options{Slots: 1, Context: 2, StepRows: 2})
	wrong := int32(1)
	if warning, err := Model(m, s, Known{Prompt: []int32{9, 8, 7}, Top1: &wrong}); warning != "" || err != nil {
		t.Errorf("warning %q, error %v", warning, err)
	}
}

func TestParseKnown(t *testing.T) {
	k, err := ParseKnown([]byte(`{"prompt": [3, 4], "top1": 9}`), 10)
	if err != nil || !slices.Equal(k.Prompt, []int32{3, 4}) || *k.Top1 != 9 {
		t.Errorf("%+v, %v", k, err)
	}
	for in, want := range map[string]string{
		``:                             "EOF",
		`{"prompt": []}`:               "the prompt is empty",
		`{"prompt": [10]}`:             "token 10",
		`{"prompt": [1], "top1": -1}`:  "token -1",
		`{"prompt": [1], "answer": 3}`: "unknown field",
		`{"prompt": [1]} {}`:           "more than one value",
		`{"prompt": [1.5], "top1": 3}`: "1.5",
		`{"prompt": [4294967296]}`:     "4294967296",
	} {
		if _, err := ParseKnown([]byte(in), 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", in, err, want)
		}
	}
}

func FuzzParseKnown(f *testing.F) {
	f.Add([]byte(`{"prompt": [3, 4], "top1": 9}`))
	f.Add([]byte(`{"prompt": [], "top1": null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := ParseKnown(data, 10)
		if err != nil {
			return
		}
		for _, id := range k.Prompt {
			if id < 0 || id >= 10 {
				t.Errorf("token %d was accepted", id)
			}
		}
		if len(k.Prompt) == 0 || k.Top1 != nil && (*k.Top1 < 0 || *k.Top1 >= 10) {
			t.Errorf("%+v was accepted", k)
		}
	})
}
