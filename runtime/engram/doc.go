// Package engram derives what the Engram lookups need from a model's configuration and tokenizer, and hashes token
// histories to table rows (spec model §4.12).
//
// Tokens are first mapped to compressed ids, equal for tokens that differ only in case, accents or white space
// (DeriveTokenMap). The last MaxNgram compressed ids are multiplied by constants of the layer, combined by XOR, and
// reduced modulo one prime per order and head (Derive): one table row per column.
//
// The released checkpoint ships neither map nor constants. A checkpoint may carry them in engram_tables.json; Load then
// compares them with what it recomputes, as a silent difference would read other rows and still produce fluent text.
//
// A position is Dead when it belongs to an image span. History stops at a Dead or missing position, and stays stopped
// for everything older.
package engram
