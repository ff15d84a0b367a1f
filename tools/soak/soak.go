package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// plan is what a soak does.
type plan struct {
	Requests int           // of the closed set
	Together int           // at a time
	Sessions int           // of them: clients that run conversations of their own
	Leaving  float64       // share of requests whose client goes away
	For      time.Duration // after the lone runs
	Seed     uint64
	Every    time.Duration // samples
	Kept     func() int    // files that the server's cache keeps open by design; nil = none
	Log      func(format string, args ...any)
}

// report is what a soak found. Times are in seconds, memory in bytes.
type report struct {
	Requests, Together int
	Lone, Took         float64

	Equal, Left, HalfSent, Refused, Sessions int
	Wrong                                    []string // at most ten

	ResidentStart, ResidentEnd, ResidentMost float64
	Settled                                  float64    // seconds of the run before the slope is taken
	Slope                                    float64    // of resident memory, bytes a minute
	Goroutines, Files, Held                  [2]float64 // before and after

	Samples                int
	HealthP50, HealthP99   float64
	MetricsP50, MetricsP99 float64
}

// problems are what must not be, of what does not depend on the machine's speed.
func (r *report) problems() (out []string) {
	out = append(out, r.Wrong...)
	for _, x := range []struct {
		what string
		n    [2]float64
	}{{"goroutines", r.Goroutines}, {"open files", r.Files}, {"tokens of pages that no cache holds", r.Held}} {
		if x.n[1] > x.n[0] {
			out = append(out, fmt.Sprintf("%v %s after, %v before", x.n[1], x.what, x.n[0]))
		}
	}
	if r.Equal == 0 {
		out = append(out, "no request survived")
	}
	return out
}

// limits are what a long run on a quiet machine must keep to.
func (r *report) limits() (out []string) {
	if r.Slope >= 1e6 {
		out = append(out, fmt.Sprintf("resident memory grows by %.3f MB a minute; the limit is 1", r.Slope/1e6))
	}
	for _, x := range []struct {
		path string
		p99  float64
	}{{"/health", r.HealthP99}, {"/metrics", r.MetricsP99}} {
		if x.p99 >= 0.05 {
			out = append(out, fmt.Sprintf("%s took %.1f ms at the 99th percentile; the limit is 50", x.path, 1e3*x.p99))
		}
	}
	return out
}

// soaker runs a plan against a server.
type soaker struct {
	plan
	*client
	set  []request
	lone []string

	mu sync.Mutex
	r  report
}

func (s *soaker) wrong(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.r.Wrong) < 10 {
		s.r.Wrong = append(s.r.Wrong, fmt.Sprintf(format, args...))
	}
}

func (s *soaker) count(n *int) {
	s.mu.Lock()
	*n++
	s.mu.Unlock()
}

// soak runs a plan against the server at url.
func soak(ctx context.Context, url string, p plan) (*report, error) {
	s := &soaker{plan: p, client: newClient(url), set: makeSet(p.Requests, p.Seed)}
	s.r.Requests, s.r.Together = p.Requests, p.Together
	began := time.Now()
	for i := range s.set {
		answer, err := s.send(ctx, &s.set[i], s.set[i].with(object{"cache": "off"}), manners{})
		if err != nil {
			return nil, fmt.Errorf("lone run of request %d, %s: %w", i, &s.set[i], err)
		}
		s.lone = append(s.lone, answer)
	}
	s.r.Lone = time.Since(began).Seconds()
	s.http.CloseIdleConnections()
	w := newWatcher(url)
	defer w.http.CloseIdleConnections()
	w.kept = p.Kept
	before, err := w.settled()
	if err != nil {
		return nil, err
	}
	s.Log("%d requests alone took %.1f s; %d at a time for %v", len(s.set), s.r.Lone, s.Together, s.For)
	w.times = map[string][]float64{} // of the settled server
	start := time.Now()
	s.run(ctx, w)
	s.r.Took = time.Since(start).Seconds()
	s.http.CloseIdleConnections()
	s.r.Samples = len(w.times["/health"])
	s.r.HealthP50, s.r.HealthP99 = percentile(w.times["/health"], 0.5), percentile(w.times["/health"], 0.99)
	s.r.MetricsP50, s.r.MetricsP99 = percentile(w.times["/metrics"], 0.5), percentile(w.times["/metrics"], 0.99)
	for _, what := range w.failed {
		s.wrong("%s", what)
	}
	after, err := w.settled()
	if err != nil {
		return nil, err
	}
	s.r.Goroutines, s.r.Files = [2]float64{before.goroutines, after.goroutines}, [2]float64{before.files, after.files}
	s.r.Held = [2]float64{before.held, after.held}
	settle := min(5*time.Minute, s.For/4)
	s.r.Settled, s.r.Slope = settle.Seconds(), w.slope(start.Add(settle))
	s.r.ResidentStart, s.r.ResidentEnd = before.resident, after.resident
	for _, x := range w.samples {
		s.r.ResidentMost = max(s.r.ResidentMost, x.resident)
	}
	return &s.r, ctx.Err()
}

// run keeps clients busy for the plan's time.
func (s *soaker) run(ctx context.Context, w *watcher) {
	var clients, watching sync.WaitGroup
	end := time.Now().Add(s.For)
	going := func() bool { return time.Now().Before(end) && ctx.Err() == nil }
	next, sessions := 0, 0
	take := func(n *int) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		*n++
		return *n - 1
	}
	for i := range s.Together {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(s.Seed, uint64(i)))
			for going() {
				if i >= s.Sessions {
					s.one(ctx, r, take(&next)%len(s.set))
					continue
				}
				n := take(&sessions)
				if err := s.grow(ctx, session(n, s.Seed), func() { s.count(&s.r.Refused) }); err != nil {
					if ctx.Err() == nil {
						s.wrong("session %d: %v", n, err)
					}
					continue
				}
				s.count(&s.r.Sessions)
			}
		})
	}
	watch, stop := context.WithCancel(ctx)
	watching.Go(func() {
		shown := time.Now()
		w.watch(watch, s.Every, func(x state) {
			if time.Since(shown) < time.Minute {
				return
			}
			shown = time.Now()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.Log("%3.0f min: %d equal, %d left, %d refused, %d sessions; %.1f MB, %v goroutines, %v files, %v running, %v waiting",
				time.Until(end).Minutes(), s.r.Equal, s.r.Left, s.r.Refused, s.r.Sessions, x.resident/1e6, x.goroutines, x.files, x.running, x.waiting)
		})
	})
	clients.Wait()
	stop()
	watching.Wait()
}

// one sends a request of the set in some manner and compares what survives.
func (s *soaker) one(ctx context.Context, r *rand.Rand, i int) {
	q := &s.set[i]
	if r.Float64() < s.Leaving/8 {
		if err := s.halfARequest(q, r); err != nil {
			s.wrong("half a request: %v", err)
		}
		s.count(&s.r.HalfSent)
		return
	}
	m := randomManners(r, s.Leaving, q.stream)
	m.refused = func() { s.count(&s.r.Refused) }
	answer, err := s.send(ctx, q, q.body, m)
	switch {
	case errors.Is(err, errLeft):
		s.count(&s.r.Left)
	case ctx.Err() != nil:
	case err != nil:
		s.wrong("request %d, %s: %v", i, q, err)
	case answer != s.lone[i]:
		s.wrong("request %d, %s:\n  alone    %s\n  together %s", i, q, s.lone[i], answer)
	default:
		s.count(&s.r.Equal)
	}
}
