// Killloop kills writers of KV pages with SIGKILL at random moments, hundreds of times, and checks what the next process
// finds: every page that is served is the one that was written, and what was reported as written before the kill is there.
//
//	go run ./tools/killloop [-n ROUNDS] [-seed N] [-dir DIR]                  the store alone
//	go run ./tools/killloop -serve bin/cedrun [-n ROUNDS] [-seed N] [-dir DIR]  the server: its answers are those of a cold run
//
// It exits with 1, and keeps the directory, at the first difference.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	n := flag.Int("n", 300, "rounds")
	seed := flag.Uint64("seed", 1, "of the moments and of what is written")
	dir := flag.String("dir", "", "directory for pages; default: a new one, removed at the end")
	program := flag.String("serve", "", "program to run as a server")
	write := flag.Uint64("write", 0, "be the writer of this round (for itself)")
	budget := flag.Int64("budget", 0, "of the writer")
	flag.Parse()
	var err error
	switch {
	case *write > 0:
		err = writer(*dir, *seed, *write, *budget)
	case *program != "":
		err = inDir(*dir, func(dir string) error { return serveRounds(os.Stdout, *program, dir, *seed, *n) })
	default:
		err = inDir(*dir, func(dir string) error { return storeRounds(os.Stdout, dir, *seed, *n) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "killloop:", err)
		os.Exit(1)
	}
}

// inDir makes a directory, and removes it after success.
func inDir(dir string, do func(dir string) error) error {
	made := dir == ""
	if made {
		var err error
		if dir, err = os.MkdirTemp("", "cedrun-killloop-"); err != nil {
			return err
		}
	}
	if err := do(dir); err != nil {
		return fmt.Errorf("%w (files are in %s)", err, dir)
	}
	if made {
		return os.RemoveAll(dir)
	}
	return nil
}

// say prints progress; a reader that left does not matter.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
