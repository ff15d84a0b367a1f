package grammar

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

// BenchmarkMask measures the mask of a state that was not met before, and Accept, along texts that the grammar allows.
func BenchmarkMask(b *testing.B) {
	v := must[*Vocab](b)(released())
	for name, o := range map[string]Output{
		"person": {Format: Schema, Schema: []byte(more[0])},
		"steps":  {Format: Schema, Schema: []byte(more[2])},
		"any":    {Format: Object},
		"call":   {Reasoning: true, Calls: MustCall, Tools: []Tool{{Name: "weather", Parameters: []byte(weather), Strict: true}}},
	} {
		for _, warm := range []bool{false, true} {
			b.Run(map[bool]string{true: "known/", false: "new/"}[warm]+name, func(b *testing.B) {
				g := must[*Grammar](b)(v.Compile(o))
				r := rand.New(rand.NewPCG(1, 1))
				m := g.Start()
				n := 0
				for b.Loop() {
					if m.Done() || n%200 == 199 {
						m = g.Start()
					}
					n++
					if !warm {
						clear(g.masks)
					}
					mask := m.Mask()
					word := r.IntN(len(mask))
					for mask[word] == 0 {
						word = (word + 1) % len(mask)
					}
					id := int32(64*word + bits.TrailingZeros64(mask[word]))
					if err := m.Accept(id); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkNewVocab(b *testing.B) {
	for b.Loop() {
		if _, err := vocabOf("tokenizer/tokenizer.json"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	v := must[*Vocab](b)(released())
	for b.Loop() {
		must[*Grammar](b)(v.Compile(Output{Format: Schema, Schema: []byte(more[0])}))
	}
}
