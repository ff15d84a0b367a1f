package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/engram"
	"cedrun/runtime/tokenizer"
)

const testdata = "../../testdata/"

// control tokens of the test model, in the order of their ids after the 256 bytes.
var control = []string{
	"<｜System｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>", "<｜deepseek_image｜>",
}

// small is a directory with the mini checkpoint "base", its vocabulary grown to 256 bytes and the control tokens, and
// a tokenizer.json for it. It writes gibberish, but as a real model would.
func small(t testing.TB) string {
	t.Helper()
	dir, err := smallModel()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var smallModel = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp(workDir, "small")
	if err != nil {
		return "", err
	}
	tok, err := writeTokenizer(dir)
	if err != nil {
		return "", err
	}
	return dir, writeCheckpoint(dir, tok)
})

// writeTokenizer writes a byte-level vocabulary without merges in the released pipeline.
func writeTokenizer(dir string) (*tokenizer.Tokenizer, error) {
	data, err := os.ReadFile(testdata + "tokenizer/tokenizer.json")
	if err != nil {
		return nil, err
	}
	var released map[string]any
	if err := json.Unmarshal(data, &released); err != nil {
		return nil, err
	}
	vocab := map[string]int{}
	var added []map[string]any
	add := func(s string) {
		added = append(added, map[string]any{"id": len(vocab) + len(added), "content": s, "special": true, "normalized": false})
	}
	for _, s := range []string{"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"} {
		added = append(added, map[string]any{"id": len(added), "content": s, "special": true, "normalized": false})
	}
	for b, other := 0, 0; b < 256; b++ { // the byte-level alphabet: printable bytes stand for themselves
		r := rune(b)
		if b <= 32 || b >= 127 && b <= 160 || b == 173 {
			r = rune(256 + other)
			other++
		}
		vocab[string(r)] = 3 + b
	}
	for _, s := range control {
		add(s)
	}
	model := map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}}
	out, err := json.Marshal(map[string]any{
		"added_tokens": added, "normalizer": nil, "pre_tokenizer": released["pre_tokenizer"], "decoder": released["decoder"], "model": model,
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), out, 0o644); err != nil {
		return nil, err
	}
	return tokenizer.Parse(out)
}

// writeCheckpoint copies the weights of mini/base; vocabulary rows that it lacks repeat its rows.
func writeCheckpoint(dir string, tok *tokenizer.Tokenizer) error {
	base := testdata + "mini/base"
	data, err := os.ReadFile(base + "/config.json")
	if err != nil {
		return err
	}
	var config map[string]any
	if err := json.Unmarshal(data, &config); err != nil {
		return err
	}
	_, classes := engram.DeriveTokenMap(tok)
	text := config["text_config"].(map[string]any)
	old := int64(text["vocab_size"].(float64))
	text["vocab_size"], text["engram_compressed_vocab_size"] = tok.VocabSize(), classes
	image, _ := tok.ID("<｜deepseek_image｜>")
	for _, m := range []map[string]any{config, text} {
		if _, ok := m["image_token_id"]; ok {
			m["image_token_id"] = image
		}
	}
	if data, err = json.Marshal(config); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644); err != nil {
		return err
	}
	ck, err := checkpoint.Open(base, checkpoint.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	var out []checkpoint.Out
	for _, x := range ck.Tensors() {
		b, err := ck.Bytes(x.Name)
		if err != nil {
			return err
		}
		shape := x.Shape
		if x.Name == "embed.weight" || x.Name == "head.weight" {
			row := int64(len(b)) / old
			more := (int64(tok.VocabSize()) - old) * row
			b = slices.Concat(b, b[:more])
			shape = []int64{int64(tok.VocabSize()), shape[1]}
		}
		out = append(out, checkpoint.Out{Name: x.Name, DType: x.DType, Shape: shape, Data: b})
	}
	return checkpoint.WriteFile(filepath.Join(dir, "model.safetensors"), out)
}

// copyModel copies the files of a model that a test wants to damage.
func copyModel(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}
