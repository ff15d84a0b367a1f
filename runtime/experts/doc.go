// Package experts decides which routed experts lie in device memory.
//
// Every expert has a copy in page-locked host memory. Device memory is divided into slots of one expert each, and a
// table of addresses on the device, an entry for each expert, points to its slot, or to the host's copy, which kernels
// read over the bus: a miss makes a step slower and never changes a bit. The table changes between steps only:
//
//	Observe, End   which experts the step chose (the router's log)
//	Start          who is worth a slot: the victim's entry points to the host again, and the slot is filled on a
//	               stream of its own, once no step that was enqueued can read it, while steps run
//	Land           the copies are there: the entries point to the slots
//
// The slots belong to all layers together, so that a layer whose tokens agree on few experts leaves room to others; of
// its experts each layer keeps Config.Floor. What an expert is worth is how many steps used it, the last ones more, with
// a half-life of some hundred steps: frequency, which a long prompt that uses everything once cannot empty, and which
// still follows a change of subject. Candidates are the experts that missed in the last step. One takes the worst slot if
// it is worth clearly more than the slot's owner, so that equals do not push each other out; and one batch of at most
// Config.Moves copies is under way at a time, which bounds what copies take of the bus that misses need. Package trace
// judges this on traces, against LRU and the optimum.
//
// Pure bookkeeping: nothing here touches memory. One goroutine uses a Cache.
package experts
