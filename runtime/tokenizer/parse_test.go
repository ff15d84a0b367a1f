package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// small returns a tokenizer.json of 256 bytes, a few merges and two added tokens as a tree that a test may change.
func small() map[string]any {
	vocab := map[string]any{}
	for b, r := range byteAlphabet() {
		vocab[string(r)] = b
	}
	merges := []any{}
	for i, m := range [][2]string{{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"Ġ", "w"}} {
		vocab[m[0]+m[1]] = 256 + i
		merges = append(merges, m[0]+" "+m[1])
	}
	split := func(p string) any {
		return map[string]any{"type": "Split", "pattern": map[string]any{"Regex": p}, "behavior": "Isolated", "invert": false}
	}
	added := func(id int, content string, normalized bool) any {
		return map[string]any{"id": id, "content": content, "normalized": normalized, "special": !normalized,
			"single_word": false, "lstrip": false, "rstrip": false}
	}
	return map[string]any{
		"added_tokens": []any{added(260, "<｜a｜>", false), added(261, "<｜", true)},
		"normalizer":   map[string]any{"type": "Sequence", "normalizers": []any{}},
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			split(knownPatterns[0]), split(knownPatterns[1]), split(knownPatterns[2]),
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}}},
		"post_processor": nil,
		"decoder":        map[string]any{"type": "ByteLevel"},
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "byte_fallback": false,
			"vocab": vocab, "merges": merges},
	}
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSmallVocabulary(t *testing.T) {
	for _, pairs := range []bool{false, true} { // merges as "a b" or as ["a", "b"]
		f := small()
		if model := f["model"].(map[string]any); pairs {
			for i, m := range model["merges"].([]any) {
				a, b, _ := strings.Cut(m.(string), " ")
				model["merges"].([]any)[i] = []any{a, b}
			}
		}
		tok, err := Parse(marshal(t, f))
		if err != nil {
			t.Fatal(err)
		}
		if got := tok.VocabSize(); got != 262 {
			t.Errorf("VocabSize = %d", got)
		}
		text := "hello w<｜a｜><｜"
		if got, want := tok.Encode(text, Options{AddedTokens: true}), []int32{258, 'o', 259, 260, 261}; !slices.Equal(got, want) {
			t.Errorf("Encode = %v, want %v", got, want)
		}
		if got := tok.Decode(tok.Encode(text, Options{})); got != text {
			t.Errorf("round trip: %q", got)
		}
	}
}

func TestUnsupportedFilesAreRefusedByName(t *testing.T) {
	at := func(v any, keys ...any) map[string]any {
		for _, k := range keys {
			switch k := k.(type) {
			case string:
				v = v.(map[string]any)[k]
			case int:
				v = v.([]any)[k]
			}
		}
		return v.(map[string]any)
	}
	for _, c := range []struct {
		name   string
		change func(f map[string]any)
		want   string
	}{
		{"model type", func(f map[string]any) { at(f, "model")["type"] = "Unigram" }, `model type "Unigram" is not supported`},
		{"byte fallback", func(f map[string]any) { at(f, "model")["byte_fallback"] = true }, "byte_fallback is not supported"},
		{"unknown token", func(f map[string]any) { at(f, "model")["unk_token"] = "<unk>" }, "unk_token is not supported"},
		{"dropout", func(f map[string]any) { at(f, "model")["dropout"] = 0.1 }, "dropout is not supported"},
		{"ignore_merges", func(f map[string]any) { at(f, "model")["ignore_merges"] = true }, "ignore_merges is not supported"},
		{"normalizer", func(f map[string]any) { f["normalizer"] = map[string]any{"type": "NFC"} }, `normalizer "NFC" is not supported`},
		{"normalizer in a sequence", func(f map[string]any) {
			at(f, "normalizer")["normalizers"] = []any{map[string]any{"type": "Lowercase"}}
		}, `normalizer "Lowercase" is not supported`},
		{"no pre-tokenizer", func(f map[string]any) { f["pre_tokenizer"] = nil }, `pre_tokenizer "none" is not supported`},
		{"other pre-tokenizer", func(f map[string]any) { f["pre_tokenizer"] = map[string]any{"type": "Metaspace"} }, `"Metaspace"`},
		{"missing step", func(f map[string]any) {
			p := at(f, "pre_tokenizer")
			p["pretokenizers"] = p["pretokenizers"].([]any)[1:]
		}, "has 3 steps, want 4"},
		{"other pattern", func(f map[string]any) {
			at(f, "pre_tokenizer", "pretokenizers", 0, "pattern")["Regex"] = `\p{N}`
		}, `step 0: the pattern "\\p{N}" is not one of`},
		{"other behaviour", func(f map[string]any) { at(f, "pre_tokenizer", "pretokenizers", 1)["behavior"] = "Removed" }, "step 1: only Split with behavior Isolated"},
		{"byte level with regex", func(f map[string]any) { at(f, "pre_tokenizer", "pretokenizers", 3)["use_regex"] = true }, "use_regex false"},
		{"decoder", func(f map[string]any) { at(f, "decoder")["type"] = "WordPiece" }, `decoder "WordPiece" is not supported`},
		{"post-processor", func(f map[string]any) { f["post_processor"] = map[string]any{"type": "TemplateProcessing"} }, `post_processor "TemplateProcessing"`},
		{"missing byte", func(f map[string]any) { delete(at(f, "model", "vocab"), "Z") }, "no token \"Z\" for the byte 0x5a"},
		{"shared id", func(f map[string]any) { at(f, "model", "vocab")["zz"] = 7 }, "share the id 7"},
		{"huge id", func(f map[string]any) { at(f, "model", "vocab")["zz"] = 1 << 30 }, `vocabulary entry "zz" has id 1073741824`},
		{"empty spelling", func(f map[string]any) { at(f, "model", "vocab")[""] = 262 }, `vocabulary entry "" has id 262`},
		{"merge of unknown parts", func(f map[string]any) { at(f, "model")["merges"] = []any{"q u"} }, `merge 0 ("q" + "u")`},
		{"malformed merge", func(f map[string]any) { at(f, "model")["merges"] = []any{"qu"} }, `merge "qu" is not two parts`},
		{"lstrip", func(f map[string]any) { at(f, "added_tokens", 0)["lstrip"] = true }, "lstrip"},
		{"added id taken", func(f map[string]any) { at(f, "added_tokens", 0)["id"] = 5 }, "id 5 of the vocabulary entry"},
		{"added twice", func(f map[string]any) { at(f, "added_tokens", 1)["content"] = "<｜a｜>" }, "appears twice"},
		{"added ids shared", func(f map[string]any) { at(f, "added_tokens", 1)["id"] = 260 }, "share the id 260"},
		{"added token that spells other bytes", func(f map[string]any) {
			at(f, "added_tokens", 1)["content"], at(f, "added_tokens", 1)["id"] = "Ġw", 259
		}, "spelling of other bytes"},
		{"empty added token", func(f map[string]any) { at(f, "added_tokens", 1)["content"] = "" }, "added token 1 has no content"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := small()
			c.change(f)
			_, err := Parse(marshal(t, f))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := Parse([]byte("version https://git-lfs.github.com/spec/v1")); err == nil || !strings.Contains(err.Error(), "not a tokenizer.json") {
		t.Errorf("a pointer file gives %v", err)
	}
	if _, err := Load("testdata/absent.json"); err == nil || !strings.Contains(err.Error(), "absent.json") {
		t.Errorf("a missing file gives %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(marshal(f, small()))
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":1},"merges":[["a"]]}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data)
		if err != nil {
			return
		}
		for _, o := range []Options{{}, {AddedTokens: true}} {
			const text = "hello w<｜a｜> 123 <｜中"
			if got := tok.Decode(tok.Encode(text, o)); got != text {
				t.Fatalf("round trip %q", got)
			}
		}
	})
}

func FuzzEncode(f *testing.F) {
	tok := release(f)
	for _, s := range []string{"", "Hello, world!", " \n \n x", "<｜User｜>Hi</think>", "ア゠イ\u0301 ½²³ 😀", "\xff\xfe\xf0\x9f", strings.Repeat("a", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, o := range []Options{{}, {AddedTokens: true}} {
			ids := tok.Encode(text, o)
			var raw strings.Builder
			for _, id := range ids {
				raw.WriteString(tok.Token(int(id)))
				if !o.AddedTokens && tok.IsAdded(int(id)) {
					t.Fatalf("plain text %q became the control token %d", text, id)
				}
			}
			if raw.String() != text {
				t.Fatalf("bytes %q of the ids of %q differ", raw.String(), text)
			}
			if got := tok.Decode(ids); utf8.ValidString(text) && got != text {
				t.Fatalf("Decode(Encode(%q)) = %q", text, got)
			}
		}
	})
}
