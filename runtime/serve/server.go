package serve

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"cedrun/runtime/serve/anthropic"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/metrics"
	"cedrun/runtime/serve/openai"
	"cedrun/runtime/serve/wire"
)

// Options shape a Server. Zero durations and sizes have the defaults that their comments give.
type Options struct {
	Keys    []string // of the API; none = everybody may call
	Origins []string // of web pages that may call; * = all
	Strict  bool     // request fields without a meaning are refused
	Version string
	Log     zerolog.Logger

	VLLMNames   bool // metrics under the names of vLLM too
	OpenMetrics bool // /metrics to callers without a key

	MaxBody   int64         // bytes of a request; 32 MiB
	BodyTime  time.Duration // for a client to send a request; 60 s
	WriteTime time.Duration // for a client to accept a write; 60 s
	KeepAlive time.Duration // longest silence of a stream; 10 s
	// Local refuses requests whose Host is a name other than localhost, so that no web page reaches a server without keys
	// by a name that it has pointed here.
	Local bool
}

// Server is the HTTP server of one model.
type Server struct {
	opt     Options
	keys    [][sha256.Size]byte
	metrics metrics.Set
	calls   metrics.Counter
	seconds metrics.Histogram
	routes  map[string]route

	mu       sync.RWMutex
	runner   *job.Runner // nil while the model loads
	chat     *openai.API
	messages *anthropic.API
	draining bool
}

// New makes a server that has no model yet.
func New(o Options) *Server {
	if o.MaxBody == 0 {
		o.MaxBody = 32 << 20
	}
	for _, d := range []struct {
		at *time.Duration
		or time.Duration
	}{{&o.BodyTime, time.Minute}, {&o.WriteTime, time.Minute}, {&o.KeepAlive, 10 * time.Second}} {
		if *d.at == 0 {
			*d.at = d.or
		}
	}
	s := &Server{opt: o}
	for _, k := range o.Keys {
		s.keys = append(s.keys, sha256.Sum256([]byte(k)))
	}
	s.calls = s.metrics.Counter("cedrun_http_requests_total", "HTTP requests, by route and status.", "route", "code")
	s.seconds = s.metrics.Histogram("cedrun_http_request_seconds", "Time of HTTP requests, by route.", []float64{0.001, 0.01, 0.1, 1, 10, 100, 1000}, "route")
	s.metrics.Info("cedrun_build_info", "The program.", "version", o.Version, "go", runtime.Version())
	s.metrics.Gauge("cedrun_ready", "1 while requests are taken on.", func() float64 {
		if _, err := s.ready(); err != nil {
			return 0
		}
		return 1
	})
	s.metrics.Gauge("process_resident_memory_bytes", "Resident memory.", residentBytes)
	s.metrics.Gauge("process_open_fds", "Open files and connections.", openFiles)
	s.metrics.Gauge("go_goroutines", "Goroutines.", func() float64 { return float64(runtime.NumGoroutine()) })
	s.routes = s.table()
	return s
}

// residentBytes is 0 where /proc does not say.
func residentBytes() float64 {
	data, _ := os.ReadFile("/proc/self/statm")
	f := strings.Fields(string(data))
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(f[1], 64)
	return pages * float64(os.Getpagesize())
}

// openFiles is 0 where /proc does not say.
func openFiles() float64 {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	return max(0, float64(len(names)-1)) // without d
}

// Ready gives the server its model.
func (s *Server) Ready(m *job.Model, e job.Engine, l job.Limits) {
	r := job.NewRunner(m, e, l, &s.metrics, s.opt.Log)
	if s.opt.VLLMNames {
		vllmNames(&s.metrics, m, e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runner = r
	s.chat, s.messages = &openai.API{Runner: r, Strict: s.opt.Strict}, &anthropic.API{Runner: r, Strict: s.opt.Strict}
}

// ready is the Runner, or why there is none.
func (s *Server) ready() (*job.Runner, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.draining:
		return nil, job.ShuttingDown()
	case s.runner == nil:
		return nil, &wire.Error{Status: http.StatusServiceUnavailable, Code: "loading", Message: "the model is being loaded", RetryAfter: 5 * time.Second}
	}
	return s.runner, nil
}

// Drain refuses new requests and waits until those that run have ended. When ctx ends first, it aborts them and returns
// its error.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	r := s.runner
	s.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.Drain(ctx)
}

// HTTP is a server for a listener, with limits on how slowly a client may send a header and how long it may be silent.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(quiet{s.opt.Log}, "", 0),
	}
}

// quiet logs what net/http says of connections that fail, which clients cause.
type quiet struct{ log zerolog.Logger }

func (q quiet) Write(b []byte) (int, error) {
	q.log.Debug().Msg(strings.TrimSpace(string(b)))
	return len(b), nil
}

// Loopback reports whether an address that a server listens on can only be reached from this machine.
func Loopback(a net.Addr) bool {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// ReadKeys reads API keys, one a line; empty lines and those that begin with # are left out.
func ReadKeys(text string) ([]string, error) {
	var keys []string
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if strings.ContainsAny(line, " \t") {
			return nil, fmt.Errorf("line %d holds white space within a key: give one key a line", i+1)
		}
		keys = append(keys, line)
	}
	return keys, nil
}
