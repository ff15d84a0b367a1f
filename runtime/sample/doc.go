// Package sample chooses the next token from one row of logits, and cuts text at stop strings.
//
// # The rule
//
//  1. The logit bias of a request is added to the logits of its tokens.
//  2. Penalties change the logits of tokens that were seen. The repetition penalty is that of Keskar et al. (CTRL) as in
//     Hugging Face transformers: for every token of the prompt or of the text written since, a positive logit is divided
//     by it, any other multiplied. Then the presence penalty, and the frequency penalty times the number of times, are
//     subtracted for every token of the text written since, as OpenAI defines them; the prompt does not count there.
//  3. Banned tokens are taken out, and those that a Constraint does not allow.
//  4. Temperature 0 (or below 1e-6) takes the largest logit, the lowest id of equals. Otherwise weights are
//     exp((logit - largest) / temperature), in float64.
//  5. Tokens are ranked by (logit descending, id ascending). top_k keeps the first k; top_p keeps the shortest prefix of
//     these whose share of their weight reaches p (always one token); min_p then drops what weighs less than min_p times
//     the heaviest.
//  6. A uniform number picks among the rest in ascending order of ids, each in proportion to its weight.
//
// Log-probabilities are those of the model's own logits, before step 1: a constraint does not change them.
//
// The uniform number is a function of (seed, choice, position) alone (Uniform), so a token does not depend on the batch,
// on speculation, or on what was drawn before. Sums run in a fixed order.
package sample
