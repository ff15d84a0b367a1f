// Package sample chooses the next token from one row of logits, and cuts text at stop strings.
//
// # The rule
//
//  1. Banned tokens are taken out.
//  2. Temperature 0 (or below 1e-6) takes the largest logit, the lowest id of equals. Otherwise weights are
//     exp((logit - largest) / temperature), in float64.
//  3. Tokens are ranked by (logit descending, id ascending). top_k keeps the first k; top_p keeps the shortest prefix of
//     these whose share of their weight reaches p (always one token); min_p then drops what weighs less than min_p times
//     the heaviest.
//  4. A uniform number picks among the rest in ascending order of ids, each in proportion to its weight.
//
// The uniform number is a function of (seed, choice, position) alone (Uniform), so a token does not depend on the batch,
// on speculation, or on what was drawn before. Sums run in a fixed order.
package sample
