package telemetry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"syscall"
	"time"
)

// maxReply bounds an answer.
const maxReply = 64 << 20

// Client asks a process. It is for one goroutine at a time.
type Client struct {
	conn net.Conn
	in   *bufio.Reader
	path string
}

// Dial connects to a socket.
func Dial(ctx context.Context, path string) (*Client, error) {
	if err := short(path); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("telemetry: nobody listens on %s: the process has ended, or is not a cedrun that serves or generates", path)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("telemetry: %s belongs to another user: run as that user or as root", path)
	case err != nil:
		return nil, fmt.Errorf("telemetry: connect to %s: %w", path, err)
	}
	return &Client{c, bufio.NewReader(c), path}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Ask puts a question and reads the answer's JSON. args may be nil.
func (c *Client) Ask(ctx context.Context, want string, args any) (json.RawMessage, error) {
	q := question{Want: want}
	if args != nil {
		var err error
		if q.Args, err = json.Marshal(args); err != nil {
			return nil, fmt.Errorf("telemetry: %s: %w", want, err)
		}
	}
	_ = c.conn.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := c.exchange(q)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return nil, fmt.Errorf("telemetry: %s: the process has ended", c.path)
		}
		return nil, fmt.Errorf("telemetry: ask %s for %s: %w", c.path, want, err)
	}
	var a struct {
		Reply json.RawMessage `json:"reply"`
		Error string          `json:"error"`
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return nil, fmt.Errorf("telemetry: %s gave no answer: %w", c.path, err)
	}
	if a.Error != "" {
		return nil, errors.New(printable(a.Error))
	}
	return a.Reply, nil
}

func (c *Client) exchange(q question) ([]byte, error) {
	if err := json.NewEncoder(c.conn).Encode(q); err != nil {
		return nil, err
	}
	var line []byte
	for {
		part, err := c.in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxReply {
			return nil, fmt.Errorf("an answer of more than %d bytes", maxReply)
		}
		if err == nil {
			return bytes.TrimSpace(line), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// WantSnapshot is the question for a Snapshot.
const WantSnapshot = "snapshot"

// Snapshot asks for a snapshot.
func (c *Client) Snapshot(ctx context.Context) (*Snapshot, error) {
	reply, err := c.Ask(ctx, WantSnapshot, nil)
	if err != nil {
		return nil, err
	}
	return Decode(reply)
}
