package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// The three Split patterns of the DeepSeek pre-tokenizer, in order. split.go implements them.
var knownPatterns = [...]string{
	`\p{N}{1,3}`,
	`[一-龥぀-ゟ゠-ヿ]+`,
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
}

// maxID bounds the ids of a file, so that a corrupt one cannot ask for gigabytes.
const maxID = 1 << 20

type component struct {
	Type           string      `json:"type"`
	Normalizers    []component `json:"normalizers"`
	Pretokenizers  []component `json:"pretokenizers"`
	Pattern        pattern     `json:"pattern"`
	Behavior       string      `json:"behavior"`
	Invert         bool        `json:"invert"`
	AddPrefixSpace bool        `json:"add_prefix_space"`
	UseRegex       *bool       `json:"use_regex"`
}

type pattern struct {
	Regex  *string `json:"Regex"`
	String *string `json:"String"`
}

type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type bpeModel struct {
	Type                    string           `json:"type"`
	Dropout                 *float64         `json:"dropout"`
	UnkToken                *string          `json:"unk_token"`
	ContinuingSubwordPrefix *string          `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string          `json:"end_of_word_suffix"`
	ByteFallback            bool             `json:"byte_fallback"`
	IgnoreMerges            bool             `json:"ignore_merges"`
	Vocab                   map[string]int32 `json:"vocab"`
	Merges                  []merge          `json:"merges"`
}

// merge is one entry of "merges": "left right" or ["left", "right"].
type merge struct{ left, right string }

func (m *merge) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		var pair []string
		if err := json.Unmarshal(b, &pair); err != nil {
			return err
		}
		if len(pair) != 2 {
			return fmt.Errorf("a merge has %d parts, want 2", len(pair))
		}
		m.left, m.right = pair[0], pair[1]
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	var ok bool
	if m.left, m.right, ok = strings.Cut(s, " "); !ok || strings.Contains(m.right, " ") {
		return fmt.Errorf("merge %q is not two parts separated by a space", s)
	}
	return nil
}

type file struct {
	AddedTokens   []addedToken `json:"added_tokens"`
	Normalizer    *component   `json:"normalizer"`
	PreTokenizer  *component   `json:"pre_tokenizer"`
	PostProcessor *component   `json:"post_processor"`
	Decoder       *component   `json:"decoder"`
	Model         bpeModel     `json:"model"`

	names []string // id -> spelling in the vocabulary
}

// Load reads a tokenizer.json. Errors name the file and what in it is not supported.
func Load(path string) (*Tokenizer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the tokenizer: %w", err)
	}
	t, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("reading the tokenizer %s: %w", path, err)
	}
	return t, nil
}

// Parse builds a tokenizer from the content of a tokenizer.json. Settings that change how text is split or merged and
// that are not implemented here are errors; truncation and padding are ignored, as neither is wanted in an engine.
func Parse(data []byte) (*Tokenizer, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	for _, check := range []func() error{
		f.checkNormalizer, f.checkPreTokenizer, f.checkDecoder, f.checkModel, f.checkAdded,
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return build(&f)
}

func (f *file) checkNormalizer() error {
	if n := f.Normalizer; n != nil && (n.Type != "Sequence" || len(n.Normalizers) > 0) {
		name := n.Type
		if len(n.Normalizers) > 0 {
			name = n.Normalizers[0].Type
		}
		return fmt.Errorf("normalizer %q is not supported: only files without a normalizer are", name)
	}
	return nil
}

func (f *file) checkPreTokenizer() error {
	p := f.PreTokenizer
	if p == nil || p.Type != "Sequence" {
		return fmt.Errorf("pre_tokenizer %q is not supported: want a Sequence of three Split and one ByteLevel", typeOf(p))
	}
	if want := len(knownPatterns) + 1; len(p.Pretokenizers) != want {
		return fmt.Errorf("pre_tokenizer has %d steps, want %d: three Split and one ByteLevel", len(p.Pretokenizers), want)
	}
	for i, known := range knownPatterns {
		s := &p.Pretokenizers[i]
		switch {
		case s.Type != "Split":
			return fmt.Errorf("pre_tokenizer step %d is %q, want Split", i, s.Type)
		case s.Behavior != "Isolated" || s.Invert:
			return fmt.Errorf("pre_tokenizer step %d: only Split with behavior Isolated and invert false is supported", i)
		case s.Pattern.Regex == nil:
			return fmt.Errorf("pre_tokenizer step %d: only a Split by Regex is supported", i)
		case *s.Pattern.Regex != known:
			return fmt.Errorf("pre_tokenizer step %d: the pattern %q is not one of the DeepSeek V3/V4 patterns that this program implements", i, *s.Pattern.Regex)
		}
	}
	b := &p.Pretokenizers[len(knownPatterns)]
	if b.Type != "ByteLevel" || b.AddPrefixSpace || b.UseRegex == nil || *b.UseRegex {
		return fmt.Errorf("the last pre_tokenizer step is %q, want ByteLevel with add_prefix_space false and use_regex false", b.Type)
	}
	return nil
}

func (f *file) checkDecoder() error {
	if f.Decoder == nil || f.Decoder.Type != "ByteLevel" {
		return fmt.Errorf("decoder %q is not supported: want ByteLevel", typeOf(f.Decoder))
	}
	if p := f.PostProcessor; p != nil && p.Type != "ByteLevel" {
		return fmt.Errorf("post_processor %q is not supported: want ByteLevel or none (prompts write their own control tokens)", p.Type)
	}
	return nil
}

func (f *file) checkModel() error {
	m := &f.Model
	unsupported := ""
	switch {
	case m.Type != "BPE":
		return fmt.Errorf("model type %q is not supported: want BPE", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		unsupported = "dropout"
	case m.UnkToken != nil:
		unsupported = "unk_token"
	case m.ContinuingSubwordPrefix != nil && *m.ContinuingSubwordPrefix != "":
		unsupported = "continuing_subword_prefix"
	case m.EndOfWordSuffix != nil && *m.EndOfWordSuffix != "":
		unsupported = "end_of_word_suffix"
	case m.ByteFallback:
		unsupported = "byte_fallback"
	case m.IgnoreMerges:
		unsupported = "ignore_merges"
	}
	if unsupported != "" {
		return fmt.Errorf("the BPE setting %s is not supported: want it unset", unsupported)
	}
	top := int32(-1)
	for s, id := range m.Vocab {
		if id < 0 || id > maxID || s == "" {
			return fmt.Errorf("vocabulary entry %q has id %d, want a spelling and an id of 0 to %d", s, id, maxID)
		}
		top = max(top, id)
	}
	f.names = make([]string, top+1)
	for s, id := range m.Vocab {
		if other := f.names[id]; other != "" {
			return fmt.Errorf("vocabulary entries %q and %q share the id %d", min(s, other), max(s, other), id)
		}
		f.names[id] = s
	}
	return nil
}

func (f *file) checkAdded() error {
	byContent := make(map[string]bool, len(f.AddedTokens))
	byID := make(map[int]string, len(f.AddedTokens))
	for i, a := range f.AddedTokens {
		switch {
		case a.Content == "":
			return fmt.Errorf("added token %d has no content", i)
		case a.ID < 0 || a.ID > maxID:
			return fmt.Errorf("added token %q has id %d, want 0 to %d", a.Content, a.ID, maxID)
		case a.SingleWord || a.Lstrip || a.Rstrip:
			return fmt.Errorf("added token %q sets single_word, lstrip or rstrip, which are not supported", a.Content)
		case byContent[a.Content]:
			return fmt.Errorf("added token %q appears twice", a.Content)
		}
		if other, taken := byID[a.ID]; taken {
			return fmt.Errorf("added tokens %q and %q share the id %d", other, a.Content, a.ID)
		}
		if id, ok := f.Model.Vocab[a.Content]; ok && int(id) != a.ID {
			return fmt.Errorf("added token %q has id %d, but the vocabulary says %d", a.Content, a.ID, id)
		}
		if a.ID < len(f.names) && f.names[a.ID] != "" && f.names[a.ID] != a.Content {
			return fmt.Errorf("added token %q has the id %d of the vocabulary entry %q", a.Content, a.ID, f.names[a.ID])
		}
		byContent[a.Content], byID[a.ID] = true, a.Content
	}
	return nil
}

func typeOf(c *component) string {
	if c == nil {
		return "none"
	}
	return c.Type
}
