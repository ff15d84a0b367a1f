package telemetry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxQuestion = 4 << 10
	maxViewers  = 32
	silence     = time.Minute // after it a connection is closed
)

// Answer answers a question of one kind: the "args" of it, or nil, to a value that becomes JSON. ctx ends with the
// connection.
type Answer func(ctx context.Context, args json.RawMessage) (any, error)

// Server answers on a socket until Close.
type Server struct {
	ln      net.Listener
	path    string
	answers map[string]Answer
	ctx     context.Context
	cancel  context.CancelFunc
	wait    sync.WaitGroup
	viewers chan struct{}
	refused chan struct{} // connections beyond those, until they are told
}

type question struct {
	Want string          `json:"want"`
	Args json.RawMessage `json:"args,omitempty"`
}

type answer struct {
	Reply any    `json:"reply,omitempty"`
	Error string `json:"error,omitempty"`
}

// Listen opens this process's socket in dir and answers, each connection on a goroutine of its own.
func Listen(dir string, answers map[string]Answer) (*Server, error) {
	if err := prepare(dir); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if _, err := Find(dir); err != nil { // removes what earlier processes left
		return nil, err
	}
	ln, path, err := listen(dir, os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("telemetry: %w", err), ln.Close())
	}
	s := &Server{ln: ln, path: path, answers: answers, viewers: make(chan struct{}, maxViewers), refused: make(chan struct{}, maxViewers)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wait.Go(s.accept)
	return s, nil
}

// listen takes the process's first name that nobody listens on.
func listen(dir string, pid int) (net.Listener, string, error) {
	if err := short(Path(dir, pid)); err != nil {
		return nil, "", err
	}
	for n := 1; ; n++ {
		path := Path(dir, pid)
		if n > 1 { // another server of this process
			path = strings.TrimSuffix(path, suffix) + "." + strconv.Itoa(n) + suffix
		}
		ln, err := net.Listen("unix", path)
		if !errors.Is(err, syscall.EADDRINUSE) || n == maxViewers {
			return ln, path, err
		}
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) { // of an earlier process with this id
			_ = os.Remove(path)
			n--
		}
	}
}

// Path is where the server listens.
func (s *Server) Path() string { return s.path }

// Close ends all connections and removes the socket.
func (s *Server) Close() error {
	s.cancel()
	err := s.ln.Close()
	s.wait.Wait()
	return err
}

func (s *Server) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select { // out of files, most likely
			case <-s.ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		select {
		case s.viewers <- struct{}{}:
			s.wait.Go(func() {
				s.serve(c)
				<-s.viewers
			})
		default:
			s.refuse(c)
		}
	}
}

// refuse tells a connection why it gets no answers. It is not read for long, and where many come at once some are just
// closed.
func (s *Server) refuse(c net.Conn) {
	select {
	case s.refused <- struct{}{}:
		s.wait.Go(func() {
			defer context.AfterFunc(s.ctx, func() { _ = c.Close() })()
			_ = c.SetDeadline(time.Now().Add(time.Second))
			if bufio.NewScanner(c).Scan() { // else closing would break what the other side still writes
				_ = json.NewEncoder(c).Encode(answer{Error: fmt.Sprintf("%d others look at this process already: end one of them", maxViewers)})
			}
			_ = c.Close()
			<-s.refused
		})
	default:
		_ = c.Close()
	}
}

// serve answers one question after another. What is being answered ends when the one who asked goes.
func (s *Server) serve(c net.Conn) {
	ctx, cancel := context.WithCancel(s.ctx)
	stop := context.AfterFunc(s.ctx, func() { _ = c.Close() })
	defer func() {
		cancel()
		stop()
		_ = c.Close()
	}()
	questions := make(chan []byte)
	s.wait.Go(func() {
		defer cancel()
		defer close(questions)
		lines := bufio.NewScanner(c)
		lines.Buffer(make([]byte, 0, 512), maxQuestion)
		for lines.Scan() {
			select {
			case questions <- bytes.Clone(lines.Bytes()):
			case <-ctx.Done():
				return
			}
		}
	})
	out := json.NewEncoder(c)
	for {
		select {
		case line, ok := <-questions:
			if !ok {
				return
			}
			reply := s.answer(ctx, line)
			_ = c.SetWriteDeadline(time.Now().Add(silence))
			if out.Encode(reply) != nil {
				return
			}
		case <-time.After(silence):
			return
		}
	}
}

func (s *Server) answer(ctx context.Context, line []byte) answer {
	var q question
	if err := json.Unmarshal(line, &q); err != nil {
		return answer{Error: "not a question: " + err.Error()}
	}
	f := s.answers[q.Want]
	if f == nil {
		return answer{Error: fmt.Sprintf("this cedrun knows nothing of %q: ask for %s", q.Want, strings.Join(slices.Sorted(maps.Keys(s.answers)), " or "))}
	}
	v, err := f(ctx, q.Args)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Reply: v}
}
