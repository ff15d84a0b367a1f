package wire

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Call is one request to a dialect, its body read.
type Call struct {
	W      http.ResponseWriter
	R      *http.Request
	Body   []byte
	ID     string // of the request, for logs and ids in responses
	Caller string // whose caches it may see: an API key, or "" without any
	Note   *Note

	KeepAlive time.Duration // longest silence of a stream
	Patience  time.Duration // how long a client may take to accept a write
}

// Note is what the access log says of a call. It holds no content.
type Note struct {
	Prompt, Cached, Written int // tokens
	Finish                  string
	Stream                  bool
}

// Asks reports whether the request's header X-Cedrun-Debug, a list, has a word.
func (c *Call) Asks(what string) bool {
	for _, v := range strings.Split(c.R.Header.Get("X-Cedrun-Debug"), ",") {
		if strings.EqualFold(strings.TrimSpace(v), what) {
			return true
		}
	}
	return false
}

// JSON answers with one object.
func (c *Call) JSON(v any) error {
	data, err := Marshal(v)
	if err != nil {
		return err
	}
	c.W.Header().Set("Content-Type", "application/json")
	c.patience()
	_, _ = c.W.Write(append(data, '\n')) // a client that has gone needs no answer
	return nil
}

func (c *Call) patience() {
	if c.Patience > 0 {
		_ = http.NewResponseController(c.W).SetWriteDeadline(time.Now().Add(c.Patience)) // tests write to recorders
	}
}

// Marshal is json.Marshal without escapes for HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
