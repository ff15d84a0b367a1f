package wire

import (
	"net/http"
	"strings"
)

// Stream is a response of server-sent events. Its first failed write is returned by all that follow.
type Stream struct {
	call *Call
	err  error
}

// Stream begins one: the header goes out at once.
func (c *Call) Stream() *Stream {
	h := c.W.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	c.Note.Stream = true
	s := &Stream{call: c}
	c.W.WriteHeader(http.StatusOK)
	s.write("")
	return s
}

// Event sends v as JSON; name may be empty.
func (s *Stream) Event(name string, v any) error {
	data, err := Marshal(v)
	if err != nil {
		return err
	}
	return s.Data(name, string(data))
}

// Data sends one line of data.
func (s *Stream) Data(name, data string) error {
	var b strings.Builder
	if name != "" {
		b.WriteString("event: " + name + "\n")
	}
	b.WriteString("data: " + data + "\n\n")
	return s.write(b.String())
}

// Comment sends what clients skip, to keep a silent connection alive.
func (s *Stream) Comment(text string) error { return s.write(": " + text + "\n\n") }

func (s *Stream) write(text string) error {
	if s.err != nil {
		return s.err
	}
	s.call.patience()
	if _, s.err = s.call.W.Write([]byte(text)); s.err == nil {
		s.err = http.NewResponseController(s.call.W).Flush()
	}
	return s.err
}
