// Command cedrun runs DeepSeek-V4.1-Flash and models of its architecture: text in, text out, and the tools to judge
// what was computed.
//
// One file per subcommand. Every flag can also be set by the environment variable CEDRUN_<FLAG> or in the config file
// (settings.go). Messages and progress go to stderr, results to stdout. Exit status: 0, 1 for any error (one sentence on
// stderr), 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	ced "cedrun/cuda"
)

// Exit statuses.
const (
	exitError       = 1
	exitInterrupted = 130 // 128 + SIGINT, as shells report it
)

// errInterrupted ends a command that Ctrl-C stopped after it wrote what it had.
var errInterrupted = errors.New("interrupted")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// endings are the signals after which a command ends in order: Ctrl-C, a service manager's, and that of a terminal that
// went away, unless nohup keeps the program from it.
func endings() []os.Signal {
	s := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		s = append(s, syscall.SIGHUP)
	}
	return s
}

// stdout keeps the first error, so that no command ends well that could not write its results.
type stdout struct {
	io.Writer
	err error
}

func (o *stdout) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("write results: %w", err)
	}
	return n, err
}

// run is the program without its process: the exit status of a command line.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	con, results := newConsole(in, out, errs), &stdout{Writer: out}
	con.out = results
	err := newApp(con).RunContext(ctx, numberLast(args))
	if err == nil {
		err = results.err
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted) || ctx.Err() != nil:
		fmt.Fprintln(errs, "cedrun: interrupted")
		return exitInterrupted
	}
	fmt.Fprintf(errs, "cedrun: %v%s\n", err, remedy(err))
	return exitError
}

// remedy is what to do about an error of the CUDA runtime, which does not say so itself.
func remedy(err error) string {
	var e *ced.Error
	switch {
	case !errors.As(err, &e) || e.CUDA == 0 || strings.Contains(err.Error(), "--backend cpu"):
		return ""
	case e.Code == ced.ENOMEM:
		return ": end what else is on the device (cedrun top lists it), or use --backend cpu"
	default:
		return ": start again; should that fail too, use --backend cpu, and scripts/gpu-check.sh to find the cause"
	}
}
