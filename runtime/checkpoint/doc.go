// Package checkpoint opens a safetensors checkpoint in the released layout (spec model.md section 2),
// reads its tensors in place or on demand, checks them against a config, and writes safetensors files.
//
// # Opening
//
// Open reads the index and every shard header and refuses the directory, with one message that names
// every faulty shard, if a shard is missing, truncated, padded, not safetensors at all (a git-lfs
// pointer, an HTML or JSON error page) or at odds with the index. No weight is read, so a checkpoint
// larger than memory opens in the time of parsing its headers. OpenFile opens one file without index
// (goldens, outputs), OpenFS a checkpoint embedded in the program.
//
// # Reading
//
// Shards are mapped read-only and Bytes returns the on-disk bytes in place. Where mapping is refused
// (an address-space limit, a file system without it) or unwanted (Options.NoMap), Bytes reads the whole
// tensor into anonymous memory at first use and ReadRows reads only the rows asked for; the values are
// the same in both ways. The memory stays valid until Close and must not be written. Its address is
// a multiple of the element size: a tensor that its file leaves misaligned is copied once.
//
// All methods but Close may be called by several goroutines.
//
// # Census
//
// Expected lists every tensor that a config implies, with dtypes, shape and role. Check compares
// a checkpoint with that list and reports missing, unexpected and ill-typed tensors in one error.
// Parts that the engine does not run yet (draft blocks, vision) are expected and counted all the same.
package checkpoint
