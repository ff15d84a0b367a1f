package prompt

import (
	"encoding/json"
	"fmt"
	"strings"

	"cedrun/runtime/tokenizer"
)

// Segment is a piece of a prompt: the spelling of one control token, or text.
type Segment struct {
	Text    string
	Control bool
}

// Prompt is a rendered conversation. Text segments are never adjacent: encoding each of them whole gives
// the ids of the whole text.
type Prompt struct {
	Segments []Segment
	Images   []json.RawMessage // image blocks in the order of their ImagePad segments
	Warnings []string          // what the conversation asked for and the model will not see
	start    Start
	finished bool
}

// Tokenizer is what Encode needs from a [tokenizer.Tokenizer].
type Tokenizer interface {
	// ID returns the id of the added token with this spelling.
	ID(spelling string) (id int, ok bool)
	// AppendEncode appends the ids of text; with the zero options it yields no added token.
	AppendEncode(ids []int32, text string, o tokenizer.Options) []int32
}

// String is the prompt as the official script writes it.
func (p *Prompt) String() string {
	var b strings.Builder
	for _, s := range p.Segments {
		b.WriteString(s.Text)
	}
	return b.String()
}

// Encode returns the token ids of the prompt. An image is one id; whoever knows its size widens it. A
// control token that the tokenizer lacks is an error.
func (p *Prompt) Encode(tok Tokenizer) ([]int32, error) {
	var ids []int32
	for _, s := range p.Segments {
		if !s.Control {
			ids = tok.AppendEncode(ids, s.Text, tokenizer.Options{})
			continue
		}
		id, ok := tok.ID(s.Text)
		if !ok && s.Text == ImagePad {
			id, ok = tok.ID(imagePadAlternative)
		}
		if !ok {
			return nil, fmt.Errorf("encoding the prompt: the tokenizer has no control token %q", s.Text)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

// Start says in which state the model begins to write after this prompt.
func (p *Prompt) Start() Start { return p.start }

// Finished reports that the prompt ends with a complete assistant turn, so that there is nothing to
// generate. Mark the last message as a prefix to have it continued.
func (p *Prompt) Finished() bool { return p.finished }

// FIM is the prompt that asks for the text between prefix and suffix (serving.md 6.5; the convention of
// earlier DeepSeek models, not confirmed for V4.1).
func FIM(prefix, suffix string) *Prompt {
	var w writer
	w.control(BOS)
	w.control(FIMBegin)
	w.text(prefix)
	w.control(FIMHole)
	w.text(suffix)
	w.control(FIMEnd)
	return &Prompt{Segments: w.done(), start: Start{Continues: true}}
}

// writer builds segments and joins adjacent text.
type writer struct {
	segments []Segment
	pending  strings.Builder
}

func (w *writer) text(s string) { w.pending.WriteString(s) }

func (w *writer) control(spelling string) {
	w.flush()
	w.segments = append(w.segments, Segment{spelling, true})
}

// template writes text of the template itself, in which control tokens are meant as such.
func (w *writer) template(s string) {
	for s != "" {
		at, found := len(s), ""
		for _, spelling := range []string{ThinkStart, ThinkEnd, DSML} {
			if i := strings.Index(s, spelling); i >= 0 && i < at {
				at, found = i, spelling
			}
		}
		w.text(s[:at])
		if found != "" {
			w.control(found)
		}
		s = s[at+len(found):]
	}
}

func (w *writer) flush() {
	if w.pending.Len() > 0 {
		w.segments = append(w.segments, Segment{Text: w.pending.String()})
		w.pending.Reset()
	}
}

func (w *writer) done() []Segment {
	w.flush()
	return w.segments
}
