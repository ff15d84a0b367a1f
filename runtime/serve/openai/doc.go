// Package openai speaks the dialects of OpenAI: chat completions, completions and responses, with the fields that
// DeepSeek's hosted API adds (serving.md 7): reasoning_content, thinking, prefix, cache counts in usage.
//
// A decoder reads every field that has an effect and names those that are accepted without one; with Strict, any other
// field is refused. What a stream brings concatenates to what the same request without stream brings.
package openai
