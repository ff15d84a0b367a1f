package conform

import (
	"fmt"
	"slices"

	"cedrun/runtime/model"
)

// endToEnd is the one-shot exact prefill of the whole prompt.
func (r *run) endToEnd() error {
	return r.with(model.Exact, len(r.ids), false, func(s *session) error {
		taps := &tapProbe{run: r}
		var err error
		if r.own, err = s.feed(r.ids, 0, taps); err != nil {
			return err
		}
		if r.ownKV, err = r.kvBytes(s); err != nil {
			return err
		}
		r.compare("end to end", "logits", r.own)
		if want, ok := r.g.get("main_hidden"); ok && r.canonical {
			r.add("end to end", "main_hidden", "R1", bitEqual, taps.joined(len(r.ids)), want, r.g.width("main_hidden"))
		}
		return nil
	})
}

// chunks is R4: every chunking, decode included, two threads' order, and a ragged batch give the one-shot bits.
func (r *run) chunks() error {
	const section = "chunked prefill, decode, batches"
	n := len(r.ids)
	for _, c := range [][]int{{1}, {7}, {16, 5}, {max(n/2, 1), 1}} {
		err := r.with(model.Exact, n, false, func(s *session) error {
			got, err := s.chunked(r.ids, c)
			if err != nil {
				return err
			}
			name := fmt.Sprintf("chunks %v", c)
			r.self(section, "logits, "+name, got, r.own)
			rows, err := r.kvBytes(s)
			if err != nil {
				return err
			}
			for l, want := range r.ownKV {
				r.add(section, fmt.Sprintf("global rows of layer %d, %s", l, name), "R4", bitEqual, byteValues(rows[l]), byteValues(want), 1)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.batch(section)
}

// batch runs prompts of three lengths in the same steps, prefill beside decode.
func (r *run) batch(section string) error {
	m, err := r.model(false)
	if err != nil {
		return err
	}
	defer m.Close()
	n, v := len(r.ids), r.Config.VocabSize
	prompts := [][]int32{r.ids, r.ids[:(n+1)/2], r.ids[:max(n/3, 1)]}
	got := make([][]float32, len(prompts))
	var sessions []*session
	for _, p := range prompts {
		s, err := r.session(m, model.Exact, len(p))
		if err != nil {
			return err
		}
		sessions = append(sessions, s)
	}
	for step := 0; ; step++ {
		var spans []model.Span
		var who []int
		for i, s := range sessions {
			size := min([]int{n/2 + 1, 7, 1}[(i+step)%3], len(prompts[i])-s.q.Pos())
			if size > 0 {
				spans = append(spans, model.Span{Seq: s.q, Tokens: prompts[i][s.q.Pos() : s.q.Pos()+size], Logits: s.q.Pos()})
				who = append(who, i)
			}
		}
		if len(spans) == 0 {
			break
		}
		if err := r.ctx.Err(); err != nil {
			return err
		}
		addr, rows, err := m.Forward(spans, nil)
		if err != nil {
			return err
		}
		l, err := r.download(addr, rows*v)
		if err != nil {
			return err
		}
		for i, w := range who {
			k := len(spans[i].Tokens) * v
			got[w], l = append(got[w], l[:k]...), l[k:]
		}
	}
	for i, p := range prompts {
		r.self(section, fmt.Sprintf("logits, prompt of %d in a ragged batch", len(p)), got[i], r.own[:len(p)*v])
	}
	return nil
}

// stale imitates the upstream index-key quirk (spec D1).
func (r *run) stale() error {
	want, ok := r.g.get("stale.logits")
	if !ok || !r.canonical {
		return nil
	}
	m := r.g.rows("stale.logits")
	first := len(r.ids) - m + 1
	if first < 1 {
		return fmt.Errorf("golden stale.logits has %d rows for %d input_ids", m, len(r.ids))
	}
	return r.with(model.Exact, first, true, func(s *session) error {
		got, err := s.feed(r.ids[:first], first-1, nil)
		for i := first; i < len(r.ids) && err == nil; i++ {
			var row []float32
			row, err = s.feed(r.ids[i:i+1], 0, nil)
			got = append(got, row...)
		}
		if err == nil {
			r.add("upstream index-key quirk", "stale.logits", "R1", bitEqual, got, want, r.Config.VocabSize)
		}
		return err
	})
}

// greedy continues the goldens' prompts.
func (r *run) greedy() error {
	for _, name := range r.g.series("greedy", ".tokens") {
		prompt, want := r.g.ints(name+".prompt"), r.g.ints(name+".tokens")
		r.g.get(name + ".margins")
		if len(prompt) == 0 {
			return fmt.Errorf("golden %s.tokens comes without %s.prompt", name, name)
		}
		err := r.with(model.Exact, len(prompt), false, func(s *session) error {
			l, err := s.feed(prompt, len(prompt)-1, nil)
			if err != nil {
				return err
			}
			got, _, err := s.greedy(l, len(want))
			r.compareInts("greedy", name+".tokens", got)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lengths are prompts at boundary lengths, each with three decode steps.
func (r *run) lengths() error {
	for _, name := range r.g.series("len", ".ids") {
		ids, next := r.g.ints(name+".ids"), r.g.ints(name+".next")
		if _, ok := r.g.get(name + ".logits"); !ok {
			continue
		}
		err := r.with(model.Exact, len(ids), false, func(s *session) error {
			got, err := s.feed(ids, len(ids)-1, nil)
			for i := 0; i < len(next) && err == nil; i++ {
				var row []float32
				row, err = s.feed(next[i:i+1], 0, nil)
				got = append(got, row...)
			}
			r.compare("prompt lengths", name+".logits", got)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// modes are decoder bounded replay and the exact cone, with the decode steps that follow, one shot and in chunks.
func (r *run) modes() error {
	n, v := len(r.ids), r.Config.VocabSize
	var oneShot []float32
	for _, chunk := range []int{n, 7, 1} {
		err := r.with(model.Replay, n, false, func(s *session) error {
			l, err := s.chunked(r.ids, []int{chunk})
			if err != nil {
				return err
			}
			tokens, last, err := s.greedy(r.lastRow(l), 4)
			if err != nil {
				return err
			}
			if chunk != n {
				r.self("replay", fmt.Sprintf("logits and decode, chunks of %d", chunk), append(l, last...), oneShot)
				return nil
			}
			oneShot = slices.Concat(l, last)
			r.compare("replay", "tail.logits", l)
			r.compareInts("replay", "tail.next_tokens", tokens)
			r.compare("replay", "tail.next_logits", last)
			return nil
		})
		if err != nil {
			return err
		}
	}
	var exactNext []float32
	if err := r.with(model.Exact, n, false, func(s *session) error {
		if _, err := s.feed(r.ids, n, nil); err != nil {
			return err
		}
		var err error
		exactNext, err = s.feed([]int32{5}, 0, nil)
		return err
	}); err != nil {
		return err
	}
	for _, chunk := range []int{n, 7, 1} {
		err := r.with(model.Cone, n, false, func(s *session) error {
			l, err := s.chunked(r.ids, []int{chunk})
			if err != nil {
				return err
			}
			next, err := s.feed([]int32{5}, 0, nil)
			if err != nil {
				return err
			}
			name := fmt.Sprintf("chunks of %d", chunk)
			r.self("cone equals exact", "last row, "+name, r.lastRow(l), r.own[(n-1)*v:])
			r.self("cone equals exact", "next decode step, "+name, next, exactNext)
			if chunk == n {
				r.compare("cone", "cone.logits", l)
				r.compare("cone", "cone.decode_logits", next)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// encoderReplay keeps the global rows of a prefix and replays its last window (spec 7.6).
func (r *run) encoderReplay() error {
	hits := r.g.ints("encreplay.hit")
	if len(hits) != 1 {
		return nil
	}
	hit, v := int(hits[0]), r.Config.VocabSize
	if hit < 1 || hit >= len(r.ids) {
		return fmt.Errorf("golden encreplay.hit is %d: there are %d input_ids", hit, len(r.ids))
	}
	for name, mode := range map[string]model.Prefill{"encreplay.full_logits": model.Exact, "encreplay.tail_logits": model.Replay} {
		for _, chunk := range []int{len(r.ids), 5} {
			err := r.with(model.Exact, hit, false, func(s *session) error {
				if _, err := s.feed(r.ids[:hit], hit, nil); err != nil {
					return err
				}
				if err := s.m.Rewind(s.q, mode, len(r.ids)); err != nil {
					return err
				}
				l, err := s.chunked(r.ids[s.q.Pos():], []int{chunk})
				if err != nil {
					return err
				}
				r.compare("encoder replay", name, l[max(len(l)-r.g.rows(name)*v, 0):])
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func byteValues(b []byte) []float32 {
	out := make([]float32, len(b))
	for i, x := range b {
		out[i] = float32(x)
	}
	return out
}
