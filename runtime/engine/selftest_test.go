package engine

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ced "cedrun/cuda"
	"cedrun/runtime/checkpoint"
)

// damage copies the mini checkpoint base with every byte pair of a BF16 tensor set to v.
func damage(t *testing.T, tensor string, v float32) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"config.json", "engram_tables.json"} {
		b, err := os.ReadFile(mini + "base/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ck, err := checkpoint.Open(mini+"base", checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	bits := math.Float32bits(v)
	if err := ck.Copy(filepath.Join(dir, "model.safetensors"), func(tensors []checkpoint.Out) []checkpoint.Out {
		for _, x := range tensors {
			if x.Name == tensor {
				for i := 0; i < len(x.Data); i += 2 {
					x.Data[i], x.Data[i+1] = byte(bits>>16), byte(bits>>24)
				}
			}
		}
		return tensors
	}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAModelThatComputesNaNsDoesNotStart(t *testing.T) {
	dir := damage(t, "layers.3.ffn_norm.weight", float32(math.NaN()))
	_, err := Open(Source{Dir: dir}, Setup{Backend: ced.CPU, Context: 64})
	if err == nil || !strings.Contains(err.Error(), "ffn_in of layer 3") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	i, err := Open(Source{Dir: dir}, Setup{Backend: ced.CPU, Context: 64, NoSelfTest: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}

func TestAModelOfZerosStartsWithAWarning(t *testing.T) {
	i, err := Open(Source{Dir: damage(t, "head.weight", 0)}, Setup{Backend: ced.CPU, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if !strings.Contains(i.SelfTest.Warning, "all 256 logits") {
		t.Errorf("%+v", i.SelfTest)
	}
}

func TestTheKnownAnswerOfACheckpointIsChecked(t *testing.T) {
	dir := damage(t, "", 0)
	i, err := Open(Source{Dir: dir}, Setup{Backend: ced.CPU, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	if !i.SelfTest.Model || i.SelfTest.Warning != "" {
		t.Errorf("%+v", i.SelfTest)
	}
	if err := i.Close(); err != nil {
		t.Error(err)
	}
	for content, want := range map[string]string{
		`{"prompt": [0, 1, 2, 3], "top1": 0}`: "selftest.json expects 0",
		`{"prompt": [256]}`:                   "token 256",
	} {
		if err := os.WriteFile(filepath.Join(dir, "selftest.json"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Source{Dir: dir}, Setup{Backend: ced.CPU, Context: 64}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", content, err, want)
		}
	}
}
