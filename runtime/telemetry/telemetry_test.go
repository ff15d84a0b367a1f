package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sample is a snapshot with everything in it.
func sample(at time.Time, tokens uint64) *Snapshot {
	return &Snapshot{
		Version: Version, At: at,
		Process: Process{PID: 42, Command: "serve", Version: "v1", Started: time.Unix(1000, 0).UTC(), Address: "http://127.0.0.1:8080"},
		Model: &Model{
			Name: "demo", Backend: "cpu", Threads: 2, Layers: 2, Context: 8192, Slots: 8,
			Prefill: Phase{10 * tokens, 3, float64(tokens) / 100, 2_000_000}, Decode: Phase{tokens, tokens / 2, float64(tokens) / 50, 1_000_000},
			Batch: 2, Depth: 100, Running: 2, Waiting: 1,
			KV:     []Tier{{Name: "host", Tokens: 64, Pages: 100, Used: 40, Cached: 10}},
			Prefix: &Prefix{5, 3, 900, 500, 128, 64}, Experts: &Experts{Chosen: []uint64{8 * tokens, 0}, Missed: []uint64{tokens, 0}}, Engram: &Engram{4 * tokens},
			Limit: &Limit{Read: 25e9, Multiply: 3e11, Bytes: 1e8, Step: 4e-3, Prompt: 1e-4},
		},
	}
}

func TestASnapshotGoesThroughTheSocketUnchanged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	want := sample(time.Unix(2000, 5).UTC(), 100)
	s, err := Listen(dir, map[string]Answer{
		WantSnapshot: func(context.Context, json.RawMessage) (any, error) { return want, nil },
		"echo":       func(_ context.Context, args json.RawMessage) (any, error) { return args, nil },
		"fault":      func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("the\x1b\nreason") },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		path string
		mode fs.FileMode
	}{{dir, fs.ModeDir | 0o700}, {s.Path(), fs.ModeSocket | 0o600}} {
		if info, err := os.Stat(f.path); err != nil || info.Mode() != f.mode {
			t.Errorf("%s: mode %v (%v), want %v", f.path, info.Mode(), err, f.mode)
		}
	}
	found, err := Find(dir)
	if err != nil || len(found) != 1 || found[0].PID != os.Getpid() || found[0].Path != s.Path() {
		t.Fatalf("found %v, %v", found, err)
	}
	ctx := context.Background()
	c, err := Dial(ctx, found[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 { // a connection takes any number of questions
		got, err := c.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	if reply, err := c.Ask(ctx, "echo", map[string]int{"seconds": 5}); err != nil || string(reply) != `{"seconds":5}` {
		t.Errorf("echo: %s, %v", reply, err)
	}
	if _, err := c.Ask(ctx, "fault", nil); err == nil || err.Error() != "the??reason" {
		t.Errorf("fault: %v", err)
	}
	if _, err := c.Ask(ctx, "weather", nil); err == nil || !strings.Contains(err.Error(), `"weather": ask for echo or fault or snapshot`) {
		t.Errorf("unknown: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := c.Snapshot(ctx); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("after the end: %v", err)
	}
	if _, err := os.Stat(s.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

func TestWhatIsNoQuestionIsAnsweredOrCutOff(t *testing.T) {
	s, err := Listen(filepath.Join(t.TempDir(), "s"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct{ send, want string }{
		{"GET / HTTP/1.1\n", `{"error":"not a question: `},
		{"{}\n", `{"error":"this cedrun knows nothing of`},
		{strings.Repeat("x", 2*maxQuestion), ""},
	} {
		conn, err := net.Dial("unix", s.Path())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = conn.Write([]byte(c.send))
		got := make([]byte, 256)
		n, _ := conn.Read(got)
		if !strings.HasPrefix(string(got[:n]), c.want) || c.want == "" && n > 0 {
			t.Errorf("%.20q: %q", c.send, got[:n])
		}
		_ = conn.Close()
	}
}

func TestAnAnswerEndsWithTheOneWhoAsked(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	s, err := Listen(filepath.Join(t.TempDir(), "s"), map[string]Answer{
		"long": func(ctx context.Context, _ json.RawMessage) (any, error) {
			close(began)
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := Dial(ctx, s.Path())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-began
		cancel()
	}()
	if _, err := c.Ask(ctx, "long", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	_ = c.Close()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the answer goes on")
	}
}

func TestTooManyViewersAreToldSo(t *testing.T) {
	s, err := Listen(filepath.Join(t.TempDir(), "s"), map[string]Answer{
		"time": func(context.Context, json.RawMessage) (any, error) { return 1, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	var last *Client
	for n := range maxViewers + 1 {
		c, err := Dial(ctx, s.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Ask(ctx, "time", nil)
		if full := n == maxViewers; full != (err != nil) || full && err.Error() != "32 others look at this process already: end one of them" {
			t.Errorf("viewer %d: %v", n, err)
		}
		if n < maxViewers {
			last = c
		}
	}
	_ = last.Close() // makes room
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		c, err := Dial(ctx, s.Path())
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Ask(ctx, "time", nil)
		_ = c.Close()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no room again: %v", err)
		}
	}
}

func TestAPathThatIsTooLongIsSaidSo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 108))
	_, err := Listen(dir, nil)
	_, dial := Dial(context.Background(), Path(dir, 1))
	for _, err := range []error{err, dial} {
		if err == nil || !strings.Contains(err.Error(), "a socket's path may have 107") {
			t.Errorf("%v", err)
		}
	}
}

func TestSocketsOfTheDeadAreRemoved(t *testing.T) {
	dir := t.TempDir()
	dead := Path(dir, 1<<30) // no process has this id
	l, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	other := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := Find(dir)
	if err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := os.Lstat(dead); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", dead, err)
	}
	if _, err := os.Lstat(other); err != nil {
		t.Error(err)
	}
	if found, err := Find(filepath.Join(dir, "none")); err != nil || found != nil {
		t.Errorf("no directory: %v, %v", found, err)
	}
	if _, err := Dial(context.Background(), dead); err == nil || !strings.Contains(err.Error(), "nobody listens") {
		t.Errorf("%v", err)
	}
}

func TestAProcessCanPublishMoreThanOneEngine(t *testing.T) {
	dir := t.TempDir()
	left, err := net.Listen("unix", Path(dir, os.Getpid())) // of an earlier process with this id
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = left.Close()
	for n := 1; n <= 3; n++ {
		s, err := Listen(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		found, err := Find(dir)
		if err != nil || len(found) != n {
			t.Errorf("%d servers: %v, %v", n, found, err)
		}
		for _, e := range found {
			if e.PID != os.Getpid() {
				t.Errorf("%+v", e)
			}
		}
	}
}

func TestADirectoryOfAnotherKindIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "l")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, link} {
		if s, err := Listen(dir, nil); err == nil {
			s.Close()
			t.Errorf("%s was taken", dir)
		}
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(open, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if info, _ := os.Stat(open); info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestRatesAreDifferencesOfCounters(t *testing.T) {
	a, b := sample(time.Unix(2000, 0), 100), sample(time.Unix(2002, 0), 200)
	p := func(v float64) *float64 { return &v }
	got := Between(a, b)
	want := Rates{
		Seconds: 2, Prefill: p(1000), Decode: p(50), PrefillShare: p(.1), DecodeShare: p(.1), Read: p(2.5e9), EngramRows: p(200),
		Experts: []*float64{p(.875), nil},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	b.Process.Started = b.Process.Started.Add(time.Second) // another process with the same id
	if got := Between(a, b); *got.Decode != 50 || got.Seconds != 1001 || *got.EngramRows != 800./1001 {
		t.Errorf("a foreign first snapshot: %+v", got)
	}
	idle := Between(b, b)
	if idle.Prefill != nil || idle.Decode != nil || idle.DecodeShare != nil {
		t.Errorf("nothing ran: %+v", idle)
	}
	b.Model = nil
	if got := Between(a, b); got.Decode != nil || got.Experts != nil {
		t.Errorf("no model: %+v", got)
	}
}

func TestSnapshotsThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []struct{ json, says string }{
		{``, "not a snapshot"},
		{`[1]`, "not a snapshot"},
		{`{"version":1} {}`, "something follows"},
		{`{"version":2}`, "version 2 where this cedrun reads 1"},
		{`{"version":1,"model":{"layers":-1}}`, "a count of -1"},
		{`{"version":1,"model":{"layers":100000}}`, "more than 4096 layers"},
		{`{"version":1,"model":{"decode":{"seconds":-2}}}`, "a figure of -2"},
		{`{"version":1,"model":{"experts":{"chosen":[1]}}}`, "experts chosen in 1 layers, missed in 0"},
	} {
		if _, err := Decode([]byte(c.json)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.json, err)
		}
	}
	s, err := Decode([]byte(`{"version":1,"process":{"command":"a\u001b[2Jb"}}`))
	if err != nil || s.Process.Command != "a?[2Jb" {
		t.Errorf("%+v, %v", s, err)
	}
}

// Whatever a socket sends, it is refused or is a snapshot whose rates can be computed.
func FuzzDecode(f *testing.F) {
	for _, s := range []*Snapshot{sample(time.Unix(2000, 0), 100), {Version: Version}} {
		b, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"version":1,"model":{"experts":{"chosen":[1,2],"missed":[3,0]},"kv":[{"pages":1}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Decode(data)
		if err != nil {
			return
		}
		first := sample(time.Unix(2000, 0), 100)
		first.Process = s.Process
		for _, r := range []Rates{Between(nil, s), Between(first, s), Between(s, s)} {
			for _, h := range r.Experts {
				if h != nil && (*h < 0 || *h > 1) {
					t.Errorf("hit rate %v", *h)
				}
			}
		}
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsRune(again, 0x1b) {
			t.Error("an escape sequence is left")
		}
		if _, err := Decode(again); err != nil {
			t.Error(err)
		}
	})
}
