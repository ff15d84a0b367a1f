// Package verify says whether a downloaded checkpoint is whole.
//
// The census reads config.json, the index, every shard's header and the tokenizer, and holds files, tensors, dtypes and
// shapes against what the config implies (spec model.md section 2); no weight is read. The deep part reads every byte
// once, shards in parallel, each from front to back through a buffer of fixed size: it looks for codes that no sound
// checkpoint holds (E4M3 NaN, the E8M0 scale 0xFF, infinities and NaN in BF16 and F32) and takes the SHA-256 of every
// file, which it compares with a list of digests or with what the Hugging Face client noted when it downloaded the file.
//
// Run reports everything that is wrong, not only the first fault; its error is for a cancelled run alone.
package verify
