// Package tokenizer turns text into token ids and back: byte-level BPE read from a Hugging Face tokenizer.json, with the
// pre-tokenizer of the DeepSeek V3 and V4 families (spec serving §5).
//
// # What is exact
//
// Ids equal those of the reference implementation (Hugging Face tokenizers 0.23.2) for every text. Three things make
// that hard and are done by hand here:
//
//   - The pre-tokenizer is a sequence of three isolated splits, the last one with a look-ahead, which package regexp
//     cannot express. split.go is a scanner for exactly these patterns; a file with any other pattern is refused.
//   - Character classes are those of Unicode 16.0 (package ucd).
//   - Added tokens are matched leftmost-longest on the raw text, those with "normalized": false first.
//
// testdata/reference.json holds digests of ids that the reference implementation computed for every Unicode code point
// alone and in 15 contexts, and for 20,000 random texts; testdata/reference.mjs is the program that wrote it. All
// 1,112,064 code points agree. The tests check the blocks that have characters; to check every block:
//
//	go test ./runtime/tokenizer -run EveryCodePoint -every-code-point
//
// # Injection
//
// Encode with the zero Options never yields an added token, whatever the text spells: that is the mode for text that
// comes from a user. Prompts are built as segments of control ids and plain text.
//
// # Invalid UTF-8
//
// Encode keeps invalid bytes as they are (split like U+FFFD). Decode replaces each maximal invalid subsequence by
// U+FFFD, as the reference does.
//
// A Tokenizer is immutable and safe for concurrent use. A Decoder belongs to one stream.
package tokenizer
