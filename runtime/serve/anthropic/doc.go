// Package anthropic speaks the Messages dialect (serving.md 7.5): messages, streaming and not, and the counting of their
// tokens. Reasoning is a thinking block; its signature is the message's id and means nothing.
//
// A last message by the assistant is continued, as there.
package anthropic
