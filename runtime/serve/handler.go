package serve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"cedrun/runtime/serve/anthropic"
	"cedrun/runtime/serve/openai"
	"cedrun/runtime/serve/page"
	"cedrun/runtime/serve/wire"
)

// route is what answers a path.
type route struct {
	name   string // in metrics
	method string // GET stands for HEAD too
	open   bool   // to callers without a key
	handle func(s *Server, c *wire.Call) error
}

// table lists the paths. Those of OpenAI's dialect are also there without /v1, as on DeepSeek's hosted API.
func (s *Server) table() map[string]route {
	t := map[string]route{
		"/health":       {"health", http.MethodGet, true, (*Server).health},
		"/ready":        {"ready", http.MethodGet, true, (*Server).readiness},
		"/health/ready": {"ready", http.MethodGet, true, (*Server).readiness},
		"/metrics":      {"metrics", http.MethodGet, s.opt.OpenMetrics, (*Server).writeMetrics},
		"/version":      {"version", http.MethodGet, false, (*Server).version},
	}
	for path, r := range map[string]route{
		"/models":           {"models", http.MethodGet, false, (*Server).models},
		"/chat/completions": {"chat", http.MethodPost, false, withChat((*openai.API).Chat)},
		"/completions":      {"completions", http.MethodPost, false, withChat((*openai.API).Completions)},
		"/responses":        {"responses", http.MethodPost, false, withChat((*openai.API).Responses)},
		"/tokenize":         {"tokenize", http.MethodPost, false, withChat((*openai.API).Tokenize)},
		"/detokenize":       {"detokenize", http.MethodPost, false, withChat((*openai.API).Detokenize)},
	} {
		t[path], t["/v1"+path] = r, r
	}
	for path, r := range map[string]route{
		"/beta/completions":      t["/completions"],
		"/beta/chat/completions": t["/chat/completions"],
	} {
		t[path] = r
	}
	for path, r := range map[string]route{
		"/v1/messages":              {"messages", http.MethodPost, false, withMessages((*anthropic.API).Messages)},
		"/v1/messages/count_tokens": {"count_tokens", http.MethodPost, false, withMessages((*anthropic.API).CountTokens)},
	} {
		t[path], t["/anthropic"+path] = r, r
	}
	for path, handle := range page.Handlers() {
		t[path] = route{"page", http.MethodGet, true, func(_ *Server, c *wire.Call) error {
			handle(c.W, c.R)
			return nil
		}}
	}
	return t
}

func withChat(f func(*openai.API, *wire.Call) error) func(*Server, *wire.Call) error {
	return func(s *Server, c *wire.Call) error {
		if _, err := s.ready(); err != nil {
			return err
		}
		return f(s.chat, c)
	}
}

func withMessages(f func(*anthropic.API, *wire.Call) error) func(*Server, *wire.Call) error {
	return func(s *Server, c *wire.Call) error {
		if _, err := s.ready(); err != nil {
			return err
		}
		return f(s.messages, c)
	}
}

// ServeHTTP answers one request and logs it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	rec := &recorder{ResponseWriter: w}
	c := &wire.Call{W: rec, R: r, ID: newID(), Note: &wire.Note{}, KeepAlive: s.opt.KeepAlive, Patience: s.opt.WriteTime}
	named := r.Header.Get("X-Request-Id")
	if !printable(named) {
		named = c.ID
	}
	rec.Header().Set("X-Request-Id", named)
	rec.Header().Set("Request-Id", named) // as Anthropic's clients read it
	rec.Header().Set("X-Content-Type-Options", "nosniff")
	name := "none"
	var err error
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.opt.Log.Error().Str("request", named).Str("stack", string(debug.Stack())).Msgf("panic: %v", p)
			err = fmt.Errorf("panic: %v", p)
		}
		s.fail(rec, r, err, named)
		s.calls.Add(1, name, strconv.Itoa(rec.status()))
		s.seconds.Observe(time.Since(began).Seconds(), name)
		s.access(c, rec, err, named, time.Since(began))
	}()
	err = s.answer(rec, r, c, &name)
}

func (s *Server) answer(w *recorder, r *http.Request, c *wire.Call, name *string) error {
	done, err := s.admitOrigin(w, r)
	if done || err != nil {
		return err
	}
	path := r.URL.Path
	t, ok := s.routes[path]
	if id, found := strings.CutPrefix(path, "/v1/models/"); found && id != "" {
		t, ok = route{"models", http.MethodGet, false, (*Server).model}, true
	}
	if !ok {
		return &wire.Error{Status: http.StatusNotFound, Code: "not_found", Message: fmt.Sprintf("there is nothing at %s", wire.Clip(path))}
	}
	*name = t.name
	if r.Method != t.method && !(r.Method == http.MethodHead && t.method == http.MethodGet) {
		w.Header().Set("Allow", t.method)
		return &wire.Error{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: fmt.Sprintf("%s takes %s requests", path, t.method)}
	}
	if c.Caller, ok = s.caller(r); !ok && !t.open {
		return &wire.Error{Status: http.StatusUnauthorized, Code: "invalid_api_key", Message: "no valid API key: send it as Authorization: Bearer KEY or as x-api-key"}
	}
	if t.method == http.MethodPost {
		if c.Body, err = s.body(w, r); err != nil {
			return err
		}
	}
	return t.handle(s, c)
}

// body reads a request's JSON within the limits of size and time.
func (s *Server) body(w *recorder, r *http.Request) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" { // another type needs no permission from a browser
		return nil, &wire.Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Message: "the body must be JSON: send Content-Type: application/json"}
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, &wire.Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Message: "the body must not be compressed"}
	}
	rc := http.NewResponseController(w.ResponseWriter)
	_ = rc.SetReadDeadline(time.Now().Add(s.opt.BodyTime)) // tests read from memory
	body, err := io.ReadAll(http.MaxBytesReader(w.ResponseWriter, r.Body, s.opt.MaxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &wire.Error{Status: http.StatusRequestEntityTooLarge, Code: "request_too_large", Message: fmt.Sprintf("the body has more than %d bytes", s.opt.MaxBody)}
	case err != nil:
		w.Header().Set("Connection", "close")
		return nil, &wire.Error{Status: http.StatusRequestTimeout, Code: "request_timeout", Message: "the body did not come in time, or not whole"}
	}
	_ = rc.SetReadDeadline(time.Time{})
	return body, nil
}

// caller is who calls, by key, and whether they may.
func (s *Server) caller(r *http.Request) (string, bool) {
	if len(s.keys) == 0 {
		return "", true
	}
	given := r.Header.Get("X-Api-Key")
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		given = strings.TrimSpace(token)
	}
	sum, found := sha256.Sum256([]byte(given)), 0
	for _, k := range s.keys { // all of them: the time tells nothing
		found |= subtle.ConstantTimeCompare(k[:], sum[:])
	}
	return string(sum[:]), found == 1
}

// admitOrigin lets web pages in that may call, and answers their preflights.
func (s *Server) admitOrigin(w http.ResponseWriter, r *http.Request) (done bool, err error) {
	if s.opt.Local && !localHost(r.Host) {
		return false, &wire.Error{Status: http.StatusForbidden, Code: "forbidden_host", Message: fmt.Sprintf("the host %q is not this machine: call it by address or localhost, or start the server with an API key", wire.Clip(r.Host))}
	}
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.Contains(s.opt.Origins, origin) && !slices.Contains(s.opt.Origins, "*") {
		return false, nil
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false, nil
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true, nil
}

func localHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "" || strings.EqualFold(host, "localhost") || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// fail tells the client of an error, unless its answer has begun.
func (s *Server) fail(w *recorder, r *http.Request, err error, id string) {
	if err == nil || w.code != 0 {
		return
	}
	e := wire.AsError(err)
	if errors.Is(err, context.Canceled) {
		w.code = 499 // nobody reads it; the log does
		return
	}
	if e.Status == http.StatusInternalServerError {
		s.opt.Log.Error().Str("request", id).Err(err).Msg("a request failed")
	}
	write := openai.WriteError
	if strings.Contains(r.URL.Path, "/v1/messages") || r.Header.Get("Anthropic-Version") != "" {
		write = anthropic.WriteError
	}
	write(w, e, id)
}

// access logs a request. It says nothing of its content.
func (s *Server) access(c *wire.Call, w *recorder, err error, id string, took time.Duration) {
	level := s.opt.Log.Info()
	if c.R.Method == http.MethodGet && w.status() < 400 {
		level = s.opt.Log.Debug()
	}
	e := level.Str("request", id).Str("method", c.R.Method).Str("path", c.R.URL.Path).Int("status", w.status()).Int64("us", took.Microseconds()).Int64("bytes", w.bytes)
	if n := c.Note; n.Prompt > 0 {
		e = e.Int("prompt", n.Prompt).Int("cached", n.Cached).Int("written", n.Written).Str("finish", n.Finish).Bool("stream", n.Stream)
	}
	switch {
	case err == nil:
	case errors.Is(err, context.Canceled) || c.R.Context().Err() != nil:
		e = e.Bool("gone", true) // the client, before the end
	default:
		e = e.Str("error", wire.AsError(err).Code)
	}
	e.Msg("request")
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	code  int
	bytes int64
}

func (r *recorder) status() int {
	if r.code == 0 {
		return http.StatusOK
	}
	return r.code
}

func (r *recorder) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

// Unwrap gives http.ResponseController the writer below.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func newID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// printable reports whether a client's request id can be repeated in a header and a log.
func printable(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] >= 0x7f {
			return false
		}
	}
	return true
}
