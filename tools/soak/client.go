package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// errLeft is how a request ends that its client gave up.
var errLeft = errors.New("left")

// client sends requests to the server.
type client struct {
	url  string
	http *http.Client
}

func newClient(url string) *client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 1 << 10
	return &client{url: url, http: &http.Client{Transport: t}}
}

// manners are how a client behaves.
type manners struct {
	leaveAfter  time.Duration // the request goes, if positive
	leaveEvents int           // of a stream have come, if positive
	slow        time.Duration // between events
	refused     func()        // told of each 503 and 429
}

// random picks manners: a share of clients leaves, somehow.
func randomManners(r *rand.Rand, leaving float64, stream bool) (m manners) {
	switch x := r.Float64(); {
	case x < leaving/2 || x < leaving && !stream:
		m.leaveAfter = time.Duration(1 + r.Int64N(int64(300*time.Millisecond)))
	case x < leaving:
		m.leaveEvents = 1 + r.IntN(12)
	case r.IntN(8) == 0:
		m.slow = 3 * time.Millisecond
	}
	return m
}

// send sends a request until it is not refused and is the canonical answer.
func (c *client) send(ctx context.Context, q *request, body object, m manners) (string, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	if m.leaveAfter > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, m.leaveAfter, errLeft)
		defer cancel()
	}
	for {
		answer, wait, err := c.once(ctx, q, data, m)
		if context.Cause(ctx) == errLeft {
			return "", errLeft
		}
		if err != nil || wait < 0 {
			return answer, err
		}
		if m.refused != nil {
			m.refused()
		}
		select {
		case <-time.After(min(wait, time.Second)): // less than it was told, to keep the queue full
		case <-ctx.Done():
		}
	}
}

// once sends a request once. A wait of 0 or more says that it was refused and when to come back.
func (c *client) once(ctx context.Context, q *request, data []byte, m manners) (answer string, wait time.Duration, err error) {
	h, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+q.path, bytes.NewReader(data))
	if err != nil {
		return "", -1, err
	}
	h.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(h)
	if err != nil {
		return "", -1, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests {
		s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil {
			return "", -1, fmt.Errorf("status %d without a Retry-After", resp.StatusCode)
		}
		return "", time.Duration(s) * time.Second, nil
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return "", -1, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	var v any
	if q.stream {
		n := 0
		v, err = fold(resp.Body, q.path, func() error {
			if n++; n == m.leaveEvents {
				return errLeft
			}
			time.Sleep(m.slow)
			return nil
		})
	} else {
		err = json.NewDecoder(resp.Body).Decode(&v)
	}
	if err != nil {
		return "", -1, err
	}
	return canonical(v), -1, nil
}

// halfARequest opens a connection, sends part of a request, and goes.
func (c *client) halfARequest(q *request, r *rand.Rand) error {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(c.url, "http://"), 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if r.IntN(2) == 0 {
		_ = conn.(*net.TCPConn).SetLinger(0) // a reset instead of a proper end
	}
	data, err := json.Marshal(q.body)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", q.path, len(data), data)
	_, err = conn.Write(text[:1+r.IntN(len(text))])
	return err
}

// grow runs a session turn by turn.
func (c *client) grow(ctx context.Context, turns []string, refused func()) error {
	var messages []object
	q := &request{path: "/v1/chat/completions"}
	for i, text := range turns {
		messages = append(messages, object{"role": "user", "content": text})
		answer, err := c.send(ctx, q, object{"messages": messages, "max_tokens": 12, "seed": i, "temperature": 0.8}, manners{refused: refused})
		if err != nil {
			return err
		}
		var o struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal([]byte(answer), &o); err != nil || len(o.Choices) != 1 {
			return fmt.Errorf("answer %s: %w", answer, err)
		}
		messages = append(messages, object{"role": "assistant", "content": o.Choices[0].Message.Content})
	}
	return nil
}
