// Command soak runs many clients against cedrun serve for a while and says whether anything was lost or came out wrong.
//
//	go run ./tools/soak -cedrun bin/cedrun -time 20m
//
// It starts the server with the demo model, sends a closed set of mixed requests one at a time without the prefix cache,
// and keeps their answers. Then the set runs again and again, many at a time and with the cache, while clients go away
// at random moments, read slowly or send half a request, and others hold conversations that grow. Each answer that a
// client waited for must equal the one from the lone run, to the bit. When all have gone, the server must have as many
// goroutines and open files as before, and no pages but those of the prefix cache. Meanwhile /health and /metrics are
// timed and resident memory is fitted.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// long is how long a run must be for its times and its memory to be judged: caches fill for five minutes.
const long = 10 * time.Minute

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run() error {
	p := plan{Every: 500 * time.Millisecond, Log: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	program := flag.String("cedrun", "bin/cedrun", "the `program`")
	flag.IntVar(&p.Requests, "requests", 200, "requests of the set")
	flag.IntVar(&p.Together, "together", 64, "clients at a time")
	flag.IntVar(&p.Sessions, "sessions", 12, "of them with growing conversations")
	flag.Float64Var(&p.Leaving, "leaving", 0.25, "share of requests whose client goes away")
	flag.DurationVar(&p.For, "time", 20*time.Minute, "how long")
	flag.Uint64Var(&p.Seed, "seed", 1, "of the requests and the clients' behaviour")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "soak [flags] [-- flags of cedrun serve]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if p.Sessions > p.Together || p.Requests < 1 || p.Together < 1 {
		return errors.New("use at least one request and client, and no more sessions than clients")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := start(*program, dir, flag.Args()...)
	if err != nil {
		return err
	}
	p.Kept = s.kept
	r, err := soak(ctx, s.url, p)
	if serr := s.end(); err == nil {
		err = serr
	}
	if err != nil {
		return err
	}
	if *asJSON {
		err = json.NewEncoder(os.Stdout).Encode(r)
	} else {
		r.print(os.Stdout)
	}
	found := r.problems()
	if p.For >= long {
		found = append(found, r.limits()...)
	}
	if len(found) > 0 {
		err = errors.Join(err, errors.New(strings.Join(found, "\n")))
	}
	return err
}

// server is a running cedrun serve.
type server struct {
	cmd  *exec.Cmd
	url  string
	dir  string // of pages on disk
	errs strings.Builder
}

// start starts the demo model on a free port, with caches in memory and on disk that are soon full.
func start(program, dir string, args ...string) (*server, error) {
	s := &server{dir: dir}
	s.cmd = exec.Command(program, append([]string{
		"serve", "--port", "0", "--context", "1024", "--max-batch", "8", "--max-queue", "48", "--log-level", "warn",
		"--kv-host", "8MiB", "--kv-dir", dir, "--kv-disk", "8MiB",
	}, args...)...)
	s.cmd.Stderr = &s.errs
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s gave no address: %w: %s", program, errors.Join(s.cmd.Wait(), err), &s.errs)
	}
	s.url = strings.TrimSpace(line)
	return s, nil
}

// kept counts the files of pages, which the server keeps open.
func (s *server) kept() int {
	names, _ := filepath.Glob(filepath.Join(s.dir, "*.kv"))
	return len(names)
}

// end ends the server as an operator does; it must have had nothing to warn of.
func (s *server) end() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end the server: %w: %s", err, &s.errs)
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("the server ended with %w: %s", err, &s.errs)
	}
	if log := strings.TrimSpace(s.errs.String()); log != "" {
		return fmt.Errorf("the server's log: %.2000s", log)
	}
	return nil
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%d requests alone in %.1f s, then %d clients for %.0f s\n", r.Requests, r.Lone, r.Together, r.Took)
	fmt.Fprintf(w, "answers equal to the lone run's  %d, others %d\n", r.Equal, len(r.Wrong))
	fmt.Fprintf(w, "clients that left                %d, and %d in the middle of a request; refused and come back %d\n", r.Left, r.HalfSent, r.Refused)
	fmt.Fprintf(w, "conversations of five turns      %d\n", r.Sessions)
	fmt.Fprintf(w, "goroutines, files, held tokens   %v, %v, %v before; %v, %v, %v after\n", r.Goroutines[0], r.Files[0], r.Held[0], r.Goroutines[1], r.Files[1], r.Held[1])
	fmt.Fprintf(w, "resident MB                      %.1f before, %.1f at most, %.1f after; %+.3f a minute after the first %.0f s\n", r.ResidentStart/1e6, r.ResidentMost/1e6, r.ResidentEnd/1e6, r.Slope/1e6, r.Settled)
	fmt.Fprintf(w, "/health, /metrics ms             p50 %.2f, %.2f; p99 %.2f, %.2f; %d of each\n", 1e3*r.HealthP50, 1e3*r.MetricsP50, 1e3*r.HealthP99, 1e3*r.MetricsP99, r.Samples)
}
