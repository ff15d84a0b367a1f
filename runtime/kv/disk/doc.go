// Package disk keeps pages of the global KV cache in files, so that a prefix outlives the memory and the process that
// computed it. It knows nothing of devices: a page is its tokens and kv.Layout.PageBytes bytes.
//
// # Names
//
// A page is found by a Hash over all that its rows depend on: the salt that keeps callers apart, every token id and
// picture before its end. Each page names its parent, so a reader walks a prompt from its first page on:
//
//	pages := disk.Chain(salt, prompt, digestOfPicture)
//	hit := store.Find(pages, exactOnly)
//	defer hit.Release()
//	for _, p := range pages[:hit.Len()] {
//		exact, err := store.Read(ctx, p, buf) // ErrMissing: compute it instead
//	}
//
// The record on disk holds the 64 ids as well, and Read compares them: a hash alone is never trusted. A page is exact if
// its rows have the bits of a cold run; a replayed one is kept until an exact one of the same name replaces it, and is
// not given to those who ask for exact ones.
//
// # Files
//
// A directory belongs to one process at a time (flock on the directory itself, gone with the process). It holds segments
// named IDENTITY-NUMBER.kv, IDENTITY a hash over model, config, numerics, page size and format. Files of another identity
// are counted and never read further.
//
//	0                 4 KiB       segment header
//	4096              slots*512   record headers: name, parent, ids, provenance, checksums
//	4096+slots*512    slots*stride  payloads, stride = the page's bytes up to a multiple of 512
//
// Pages of one store have one size, so a segment is an array: an evicted page's slot takes the next page, nothing is ever
// compacted, and the budget holds to the byte. One file for each page would cost an open for each at start; a log would
// need rewriting to free space. Headers lie together, so that opening reads 8 MB for a million tokens.
//
// A writer blanks the slot's header, writes the payload, then the header. Killed at any moment, it loses the page being
// written and those still queued, nothing else; the kernel has the rest. Nothing is synced before Close: after a power
// loss pages may be missing or torn, and checksums (CRC-32C of header and payload) find those.
//
// # Budget
//
// Options.MaxBytes bounds the size of all segments together. The page given up is the one unused for longest of those
// that no other page on disk follows, so a prefix loses its end first; and a page is only written after the one before
// it, so what is written can be found. Times of use are counters in the headers, outside the checksum, and survive a
// restart. Segments stay open: beyond Options.MaxFiles none is made and none is read.
//
// # Trouble
//
// Nothing here stops the service. A page that cannot be queued, written or read is not on disk, and is counted. A full
// disk stops growth and the store goes on in the slots it has; any other failure to write pauses writing, with one
// warning, and is tried again later; reads go on. Files that somebody deletes under a running store, or its directory, are
// noticed with the next page: what was in them is forgotten, and pages are written anew. A directory that cannot be written
// at start is used for reading. Only a directory that cannot be read, or that another process holds, makes Open fail: the
// caller then runs without. All methods of a nil *Store are those of a store that is off.
package disk
