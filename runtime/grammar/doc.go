// Package grammar tells which tokens may come next when an output must have a given form: JSON, JSON of a schema, or
// tool calls in the model's own markup (spec serving.md 6.3, 6.6, 7.4).
//
//	NewVocab (once per tokenizer) -> Compile (once per request) -> Start -> Mask, Accept, Mask, Accept, ...
//
// # How it works
//
// An output is compiled to a program of a byte-level machine with a stack: bytes, choices, calls of recursive rules, and
// automata for strings, numbers and patterns (program.go, dfa.go). A state is a set of threads. The mask of a state
// comes from a walk of the trie of all tokens; what an automaton alone decides is computed once for each of its states,
// the rest where a token runs past its end. Masks are cached by state. Control tokens are symbols of their own: the end
// of the text is possible only when the value is complete.
//
// There are no dead ends: for every instruction the least depth of nesting that its completion needs is known, threads
// that would pass MaxDepth never start, and automata hold no state from which their end is out of reach. A schema that
// nothing satisfies is an error of Compile. When threads become too many (ambiguous alternatives inside each other), the
// later alternatives are dropped: what is written still matches.
//
// # What is written
//
// Properties come in the order of the schema; optional ones may be left out. Whitespace is allowed after the brackets
// and commas, one space or one newline with up to 32 spaces, and one space after a colon, so it never runs on. Numbers have
// at most 19 digits before the point, 17 after it and two of exponent. Text never spells the control tokens by which the
// output is read.
//
// # Schemas
//
// Supported: type (one or several), properties, required, additionalProperties, minProperties and maxProperties of maps,
// items, prefixItems, minItems, maxItems, enum, const, anyOf, oneOf of alternatives that exclude each other, allOf that can
// be merged, $ref within the schema (recursion too), minLength, maxLength, pattern (RE2 syntax, no word boundaries), format
// (date-time, date, time, duration, uuid, email, hostname, ipv4, ipv6, uri), minimum, maximum, exclusive ones, multipleOf
// (integers, and powers of ten below 1), nullable, true and false. Annotations are ignored. Any other keyword is an error
// that names it and the place.
//
// Readings that are narrower than the standard's: an object that lists properties and says nothing of additional ones has
// none; a schema without type has that of its keywords; names of additional properties hold no escapes.
package grammar
