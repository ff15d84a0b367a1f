// Package prompt turns conversations into the text and token ids that deepseek_v41 was trained on,
// and turns what the model writes back into reasoning, content and tool calls.
//
// # Writing
//
// [Render] follows the V4.1 encoding of the specification (serving.md 6.1 to 6.5). Its result is a
// list of segments: spellings of control tokens, which become one id each, and text, which is encoded
// with added tokens disabled. Only the template writes control tokens: a user, a tool result or a tool
// description that spells "<｜User｜>" is plain text (decision S4). [Prompt.String] is the official
// prompt, byte for byte; [Prompt.Encode] gives the ids.
//
// Where the official script and the decisions of this project differ:
//
//   - Tools and a response format given in [Options] go to the first system message, and an empty one
//     is inserted if there is none (S3). Tools on any other message than a system message do not reach
//     the model, as in the script, and [Prompt.Warnings] says so.
//   - Earlier reasoning is dropped unless tools are present; [Options.Keep] keeps all of it (S2).
//   - A prefix message with reasoning only stops before "</think>" (S12).
//   - Images are listed in the order in which they are rendered (S10).
//   - The image placeholder spelled in user or assistant text is an error, as in the script; spelled in
//     a system message or in a tool result it is plain text.
//   - A task on a user message that is merged into the one before it is kept, not lost.
//
// # Reading
//
// [Parser] reads the output as it is generated, in pieces of any size (serving.md 6.6, the production
// rules), and [ParseStrict] is the official parser for complete, well-formed output. The parser starts
// where the prompt ended: [Prompt.Start].
//
// Policies of the parser: an output without "</think>" stays reasoning, and the finish says so. Markup
// is never passed on as text: stray thinking tags are skipped, and a broken tool call is reported by
// [Finish.Err], which keeps the raw text. The arguments of a complete call are always valid JSON: a value
// marked string="false" that is not JSON is passed on as a JSON string. The arguments of a call that was
// cut off stay open on purpose, so that nobody executes half a command.
package prompt
