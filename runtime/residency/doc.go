// Package residency asks the system about pages of memory and moves them: which are in memory, which to read ahead of
// their use, which to keep, which to back by huge pages. It knows slices, not models.
//
// Everything is advice to the kernel but Populate and Lock, whose refusals are errors. Slices are rounded outwards to
// whole pages, or, for huge pages, inwards.
package residency
