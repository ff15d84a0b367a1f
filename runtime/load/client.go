package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Client sends requests to one server.
type Client struct {
	base, key, model string
	http             *http.Client
}

// NewClient takes the server's address, with or without /v1. The key, if any, is sent as a bearer token.
func NewClient(address, key, model string) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not an address like http://127.0.0.1:8080", address)
	}
	base := strings.TrimSuffix(strings.TrimSuffix(u.Scheme+"://"+u.Host+u.Path, "/"), "/v1") + "/v1"
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.DisableCompression = 0, 1<<16, true
	return &Client{base: base, key: key, model: model, http: &http.Client{Transport: t, CheckRedirect: sameMethod}}, nil
}

// sameMethod follows no redirect that makes a GET of a POST: its answer would be another page's.
func sameMethod(q *http.Request, via []*http.Request) error {
	switch {
	case q.Method != via[0].Method:
		return http.ErrUseLastResponse
	case len(via) >= 10:
		return errors.New("more than 10 redirects")
	}
	return nil
}

// Model is the name that requests ask for.
func (c *Client) Model() string { return c.model }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// FindModel asks the server for its first model if none was given.
func (c *Client) FindModel(ctx context.Context) error {
	if c.model != "" {
		return nil
	}
	resp, err := c.send(ctx, http.MethodGet, "/models", nil)
	if err != nil {
		return reason(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("%s/models: %w", c.base, err)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s/models: status %d: %s", c.base, resp.StatusCode, errorText(body))
	case json.Unmarshal(body, &list) != nil || len(list.Data) == 0 || list.Data[0].ID == "":
		return fmt.Errorf("%s/models names no model: give one", c.base)
	}
	c.model = list.Data[0].ID
	return nil
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	q.Header.Set("Accept", "text/event-stream, application/json")
	if c.key != "" {
		q.Header.Set("Authorization", "Bearer "+c.key)
	}
	return c.http.Do(q)
}

// body is the request of a turn after a conversation.
func (c *Client) body(conversation []json.RawMessage, turn *Turn, extra map[string]json.RawMessage) ([]byte, error) {
	q := map[string]any{"model": c.model, "messages": conversation, "stream": true, "stream_options": map[string]bool{"include_usage": true}}
	if turn.MaxTokens > 0 {
		q["max_tokens"] = turn.MaxTokens
	}
	for name, v := range merged(extra, turn.Extra) {
		q[name] = v
	}
	return json.Marshal(q)
}

func merged(a, b map[string]json.RawMessage) map[string]json.RawMessage {
	out := maps.Clone(a)
	if out == nil {
		return b
	}
	maps.Copy(out, b)
	return out
}

// patience is how long the end of a connection's answer may take after [DONE].
const patience = 50 * time.Millisecond

// Kinds of errors. Statuses other than 200 are "status N".
const (
	KindConnect   = "connect"   // no connection, or one that broke before an answer
	KindTimeout   = "timeout"   // of the request as a whole
	KindStream    = "stream"    // an error event within a stream
	KindTruncated = "truncated" // a stream without its end
	KindMalformed = "malformed" // an answer that is none
)

// failure is an error of a kind.
type failure struct {
	kind  string
	err   error
	after time.Duration // to come back, as the server says; -1 if it does not
}

func (f *failure) Error() string { return f.err.Error() }

// ask sends a request once. A failure is nil, or says what went wrong; what was seen until then is in the answer.
func (c *Client) ask(ctx context.Context, body []byte) (*answer, *failure) {
	a := &answer{}
	resp, err := c.send(ctx, http.MethodPost, "/chat/completions", body)
	if err != nil {
		return a, failed(ctx, KindConnect, reason(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		f := failed(ctx, fmt.Sprintf("status %d", resp.StatusCode), errors.New(errorText(text)))
		if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
			f.after = retryAfter(resp.Header.Get("Retry-After"), time.Now())
		}
		return a, f
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/json" { // did not stream
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxEvent))
		if err == nil {
			err = a.add(text, time.Now())
		}
		if err == nil && !a.choice {
			err = errNoChoice
		}
		if err != nil {
			return a, failed(ctx, kindOf(err), err)
		}
		a.done = true
		return a, nil
	}
	if err := a.readStream(resp.Body, time.Now); err != nil {
		return a, failed(ctx, kindOf(err), err)
	}
	if a.done && !a.choice {
		return a, failed(ctx, KindMalformed, errNoChoice)
	}
	if a.done {
		finish(resp.Body)
	}
	if !a.done && a.finish == "" {
		return a, failed(ctx, KindTruncated, errors.New("the stream ended without [DONE] and without a finish reason"))
	}
	return a, nil
}

// finish reads what follows [DONE], so that the connection can be used again; a server that keeps it open is not waited for.
func finish(body io.ReadCloser) {
	t := time.AfterFunc(patience, func() { _ = body.Close() })
	defer t.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 1<<16))
}

func failed(ctx context.Context, kind string, err error) *failure {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind, err = KindTimeout, errors.New("no complete answer in time")
	}
	return &failure{kind: kind, err: err, after: -1}
}

func kindOf(err error) string {
	var s *errStream
	switch {
	case errors.As(err, &s):
		return KindStream
	case errors.Is(err, errMalformed):
		return KindMalformed
	}
	return KindTruncated
}

// reason is an error of the HTTP client without the method and the address before it twice.
func reason(err error) error {
	var u *url.Error
	var op *net.OpError
	if errors.Is(err, io.EOF) {
		return errors.New("the connection was closed before an answer")
	}
	if errors.As(err, &op) && op.Addr != nil {
		return fmt.Errorf("%s: %w", op.Addr, op.Err)
	}
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// retryAfter reads seconds or a date; -1 if it is neither.
func retryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.ParseFloat(s, 64); err == nil && n >= 0 && n <= maxSeconds {
		return seconds(n)
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(0, at.Sub(now))
	}
	return -1
}
