package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"cedrun/runtime/engine"
)

// console is where a command reads and writes.
type console struct {
	in       io.Reader
	out, err io.Writer
	log      zerolog.Logger

	inTerminal, outTerminal, errTerminal bool

	edit       func() editor                     // reads lines typed in a terminal; nil elsewhere
	interrupts func() (<-chan os.Signal, func()) // for commands that outlive Ctrl-C

	noSelfTest, noGraphs  bool
	device                int // of the CUDA back end
	expertMemory          int64
	hostExperts           bool // --expert-compute cpu
	automaticBackend      bool // --backend auto
	hugePages, hugeCopies bool
	warming               engine.Warming
	ctx                   context.Context // of the command: cancelled by Ctrl-C

	mu       sync.Mutex // of progress, which the engine's goroutine draws too
	progress bool       // a progress line stands on stderr
}

func newConsole(in io.Reader, out, err io.Writer) *console {
	con := &console{
		in: in, out: out, err: err, log: zerolog.Nop(), interrupts: interrupts,
		inTerminal: isTerminal(in), outTerminal: isTerminal(out), errTerminal: isTerminal(err),
	}
	if con.inTerminal && con.outTerminal {
		con.edit = newEditor
	}
	return con
}

func interrupts() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, endings()...)
	return c, func() { signal.Stop(c) }
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// logTo starts the logger: readable lines on a terminal, JSON elsewhere.
func (con *console) logTo(level string) error {
	l, err := zerolog.ParseLevel(level)
	if err != nil || level == "" {
		return fmt.Errorf("log level %q: use trace, debug, info, warn, error or disabled", level)
	}
	w := con.err
	if con.errTerminal {
		w = zerolog.ConsoleWriter{Out: con.err, NoColor: os.Getenv("NO_COLOR") != ""}
	}
	con.log = zerolog.New(w).Level(l).With().Timestamp().Logger()
	return nil
}

// show draws a progress line over the last one, on a terminal only.
func (con *console) show(format string, args ...any) {
	if !con.errTerminal {
		return
	}
	con.mu.Lock()
	defer con.mu.Unlock()
	con.progress = true
	fmt.Fprintf(con.err, "\r\x1b[K"+format, args...)
}

// clear removes the progress line.
func (con *console) clear() {
	con.mu.Lock()
	defer con.mu.Unlock()
	if con.progress {
		con.progress = false
		fmt.Fprint(con.err, "\r\x1b[K")
	}
}

// printJSON writes one value as one line of JSON.
func (con *console) printJSON(v any) error {
	e := json.NewEncoder(con.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
