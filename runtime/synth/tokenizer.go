package synth

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

var (
	// The released tokenizer.json without vocabulary and merges, without its placeholder tokens, and without ids.
	//go:embed tokenizer.json
	frame []byte
	// The released tokenizer's first merges. Its vocabulary is: three control tokens, the 256 bytes, the merges in
	// order, added tokens.
	//go:embed merges.txt
	merges string
)

// tokenizerConfig is the tokenizer_config.json, which other programs want to see.
const tokenizerConfig = `{
 "tokenizer_class": "PreTrainedTokenizerFast",
 "bos_token": "<｜begin▁of▁sentence｜>",
 "eos_token": "<｜end▁of▁sentence｜>",
 "pad_token": "<｜▁pad▁｜>",
 "add_bos_token": false,
 "add_eos_token": false,
 "clean_up_tokenization_spaces": false,
 "model_max_length": 1048576
}
`

// controls is the number of added tokens with the first ids.
const controls = 3

// truncated is a tokenizer.json of n tokens: the released one's first merges and all added tokens.
func truncated(n int) ([]byte, error) {
	var file object
	if err := json.Unmarshal(frame, &file); err != nil {
		return nil, fmt.Errorf("embedded tokenizer: %w", err)
	}
	added := file["added_tokens"].([]any)
	lines := strings.Split(strings.TrimSuffix(merges, "\n"), "\n")
	used := n - 256 - len(added)
	if used < 0 || used > len(lines) {
		return nil, fmt.Errorf("a tokenizer of %d tokens: %d to %d can be made", n, 256+len(added), 256+len(added)+len(lines))
	}
	lines = lines[:used]
	vocabulary := map[string]int{}
	for i, a := range added {
		id := i
		if i >= controls {
			id = n - len(added) + i
		}
		token := a.(map[string]any)
		token["id"] = id
		if i < controls {
			vocabulary[token["content"].(string)] = id
		}
	}
	for i, r := range alphabet() {
		vocabulary[string(r)] = controls + i
	}
	for i, m := range lines {
		vocabulary[strings.Replace(m, " ", "", 1)] = controls + 256 + i
	}
	model := file["model"].(map[string]any)
	model["vocab"], model["merges"] = vocabulary, lines
	data, err := json.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("encode the tokenizer: %w", err)
	}
	return data, nil
}

// alphabet is how byte-level BPE spells the 256 bytes: Latin-1's visible characters, and letters from U+0100 on for the
// rest, in order of code point.
func alphabet() []rune {
	var spelling []rune
	next := rune(0x100)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			spelling = append(spelling, b)
		} else {
			spelling = append(spelling, next)
			next++
		}
	}
	slices.Sort(spelling)
	return spelling
}
