// Package eval measures how well a model predicts text and how far back it remembers.
//
// # Bits per byte
//
// The text is encoded once and its tokens are cut into blocks of Stride tokens. Each block is scored in a window of its
// own: BOS, the tokens before the block as far as the context has room, then the block. So every byte of the text is
// predicted exactly once, by a row that has seen at least Context - Stride tokens (except near the beginning), and
//
//	bits per byte = sum over all tokens of -log2 P(token | window before it) / bytes of the text
//
// In exact mode the whole window is one prefill. The other modes do not compute logits for most rows of a prompt, so
// there the part before the block is the prompt and the block is fed token by token, as in decode: what is measured
// then is the model as it continues a prompt prefilled in that mode. Compare modes at the same context and stride.
//
// # Recall
//
// A case is a prompt and the answer that stands somewhere in it, a known number of sliding windows before the end. The
// answer counts when greedy decoding writes exactly its tokens.
//
// The package sees a model through two functions, so it neither knows engines nor needs the native library.
package eval
