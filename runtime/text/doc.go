// Package text turns the tokens of a generation into text while they come.
//
//	token id -> tokenizer.Decoder -> whole characters -> stop strings, output parser -> prompt.Event
//
// What a Reader returns is safe to show at once: valid UTF-8 without half a character, without the beginning of a stop
// string, and, for a conversation, without markup. The pieces concatenate to the same text however the tokens are cut.
//
// The package knows neither engine nor terminal: whoever runs a generation feeds ids and shows events.
package text
