package engine

// follows reports whether a waiting request waits for a running one whose prompt begins alike and is being read: it then
// begins on that one's pages, so that texts of one prompt, or of prompts with a long common beginning that come together,
// read it once.
func (e *Engine) follows(q *run) bool {
	if q.Cache == CacheOff {
		return false
	}
	if q.leader == nil {
		e.findLeader(q)
	}
	r := q.leader
	if r == nil {
		return false
	}
	if r.seq != nil && r.seq.Pos() < q.shared {
		return true
	}
	if r.seq != nil && r.seq.Pos() < len(r.Prompt) {
		e.tree.Insert(r.Salt, r.seq.Tokens(), r.seq.Pages(), r.seq.Exact())
	}
	q.leader = nil
	return false
}

// findLeader looks among the requests that were placed since it last did.
func (e *Engine) findLeader(q *run) {
	known := -1
	for _, r := range e.running {
		if r.placed <= q.looked || r.Cache == CacheOff || r.Salt != q.Salt || r.Priority > q.Priority || r.left() == 0 {
			continue
		}
		n := agree(q.Prompt, r.Prompt)
		if known < 0 {
			m := e.tree.Find(q.Salt, q.Prompt)
			known = m.Tokens
		}
		rerun := 0 // a snapshot at the end of its prompt
		if n < len(r.Prompt) || e.opt.Snapshots == 0 {
			rerun = n - e.model.RestartAt(q.Prefill, len(q.Prompt), min(n, len(q.Prompt)-1))
		}
		if n > r.seq.Pos() && n-known >= e.opt.Chunk && n-known > 2*rerun && (q.leader == nil || n > q.shared) {
			q.leader, q.shared = r, n
		}
	}
	q.looked = e.placed
}

// agree is the length of the common beginning.
func agree(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
