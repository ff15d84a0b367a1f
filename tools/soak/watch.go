package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// state is what /metrics says of the server's resources.
type state struct {
	resident, goroutines, files float64
	held                        float64 // tokens of pages that only the prefix cache does not account for
	running, waiting            float64
}

// watcher asks /health and /metrics, on a connection of its own.
type watcher struct {
	*client
	times   map[string][]float64 // seconds, by path
	at      []time.Time
	samples []state
	failed  []string
	kept    func() int // open files that are not counted
}

func newWatcher(url string) *watcher {
	return &watcher{client: newClient(url), times: map[string][]float64{}}
}

func (w *watcher) get(path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		return "", err
	}
	began := time.Now()
	resp, err := w.http.Do(q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d", path, resp.StatusCode)
	}
	w.times[path] = append(w.times[path], time.Since(began).Seconds())
	return string(data), err
}

func (w *watcher) state() (s state, err error) {
	text, err := w.get("/metrics")
	if err != nil {
		return s, err
	}
	for name, to := range map[string]*float64{
		"process_resident_memory_bytes": &s.resident, "go_goroutines": &s.goroutines, "process_open_fds": &s.files,
		"cedrun_kv_held_tokens": &s.held, "cedrun_requests_running": &s.running, "cedrun_requests_waiting": &s.waiting,
	} {
		if *to, err = value(text, name); err != nil {
			return s, err
		}
	}
	if w.kept != nil {
		s.files -= float64(w.kept())
	}
	return s, nil
}

// value finds a metric without labels.
func value(text, name string) (float64, error) {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, fmt.Errorf("/metrics has no %s", name)
}

// watch samples until ctx ends.
func (w *watcher) watch(ctx context.Context, every time.Duration, show func(state)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, err := w.get("/health")
		s, err2 := w.state()
		if err = errors.Join(err, err2); err != nil {
			w.failed = append(w.failed, err.Error())
			continue
		}
		w.at, w.samples = append(w.at, time.Now()), append(w.samples, s)
		show(s)
	}
}

// settled waits until nothing runs and the counts no longer fall, 20 s at most.
func (w *watcher) settled() (best state, err error) {
	same := 0
	for deadline := time.Now().Add(20 * time.Second); same < 10 && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		s, err := w.state()
		if err != nil {
			return s, err
		}
		if s.running+s.waiting == 0 && s.goroutines == best.goroutines && s.files == best.files && s.held == best.held {
			same++
		} else {
			same = 0
		}
		best = s
	}
	if best.running+best.waiting > 0 {
		return best, fmt.Errorf("%v texts run and %v wait 20 s after the last request", best.running, best.waiting)
	}
	return best, nil
}

// slope is how resident memory grows after a while, in bytes a minute (least squares).
func (w *watcher) slope(after time.Time) float64 {
	var n, sx, sy, sxx, sxy float64
	for i, at := range w.at {
		if at.Before(after) {
			continue
		}
		x, y := at.Sub(after).Minutes(), w.samples[i].resident
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if d := n*sxx - sx*sx; n > 2 && d > 0 {
		return (n*sxy - sx*sy) / d
	}
	return 0
}

// percentile is a value that occurred (nearest rank).
func percentile(v []float64, p float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[max(0, int(math.Ceil(p*float64(len(v))))-1)]
}
