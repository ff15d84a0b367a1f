package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"cedrun/runtime/telemetry"
	"cedrun/runtime/top"
)

// groupView are the flags of what is shown.
const groupView = "View"

func topCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "top",
		Usage: "show the GPUs, this machine and the model that runs on it, live",
		Description: "Shows what nvidia-smi shows and the processors, memory and disks; and of a running cedrun serve, generate or chat of this\n" +
			"user, by its unix socket: tokens per second of prefill and decode, active parameters, batch and queue, the KV cache, hit\n" +
			"rates of prefixes and of every layer's experts, and the share of this machine's limit that is reached.\n\n" +
			"In a terminal the view is live: q quits, ? explains, Tab goes on to the next process. In a pipe one screen is printed, or,\n" +
			"with --watch, one after another. It works without a GPU, a driver, or a model.\n\n" +
			"Examples:\n" +
			"  cedrun top\n" +
			"  cedrun top --once\n" +
			"  cedrun top --json | jq .rates\n" +
			"  cedrun top --watch 5 --json >> log.jsonl",
		Flags: []cli.Flag{
			boolFlag(groupView, "once", "print one screen, of half a second, and end"),
			floatFlag(groupView, "watch", 1, "a new view every `N` seconds"),
			boolFlag(groupView, "no-color", "write no colours; NO_COLOR in the environment does the same"),
			intFlag(groupView, "pid", 0, 1, "the youngest", "look at the cedrun with process id `N`"),
			stringFlag(groupView, "socket", "", "look at the cedrun that listens on the socket `FILE`"),
			boolFlag(groupOutput, "json", "print JSON: host, gpu, processes, snapshot (counters) and rates"),
			logFlag(),
		},
		Action: con.action(0, con.top),
	}
}

const (
	leastWatch = 0.1             // seconds: reading PCIe throughput takes some hundredths for each GPU
	onceSpan   = time.Second / 2 // that the rates of a single view are of
)

func (con *console) top(c *cli.Context) error {
	every := c.Float64("watch")
	if math.IsNaN(every) || every < leastWatch || every > 86400 {
		return fmt.Errorf("--watch %v: use %v to 86400 seconds", every, leastWatch)
	}
	socket := c.String("socket")
	if pid := c.Int("pid"); pid != 0 {
		if socket != "" {
			return errors.New("--pid and --socket: give one of them")
		}
		var err error
		if socket, err = socketOf(pid); err != nil {
			return err
		}
	}
	s := top.NewSampler(telemetry.Dir(), socket)
	defer s.Close()
	if err := s.Attached(c.Context); err != nil {
		return err
	}
	terminal := con.outTerminal && os.Getenv("TERM") != "dumb"
	screen := top.Screen{
		Every: time.Duration(every * float64(time.Second)),
		Color: terminal && !c.Bool("no-color") && os.Getenv("NO_COLOR") == "",
		ASCII: !utf8Locale(os.Getenv),
	}
	if terminal && con.inTerminal && !c.Bool("once") && !c.Bool("json") {
		err := top.Watch(c.Context, s, screen, con.in, con.terminal())
		if err == nil && c.Context.Err() != nil {
			err = errInterrupted
		}
		return err
	}
	return con.printViews(c, s, screen)
}

// socketOf finds the socket of a process.
func socketOf(pid int) (string, error) {
	found, err := telemetry.Find(telemetry.Dir())
	if err != nil {
		return "", err
	}
	var there []string
	for _, e := range found {
		if e.PID == pid {
			return e.Path, nil
		}
		there = append(there, fmt.Sprint(e.PID))
	}
	if len(there) == 0 {
		there = []string{"none"}
	}
	return "", fmt.Errorf("--pid %d: this process publishes nothing in %s; those that do: %s", pid, telemetry.Dir(), strings.Join(there, ", "))
}

// printViews writes one view, or with --watch one after another until Ctrl-C.
func (con *console) printViews(c *cli.Context, s *top.Sampler, screen top.Screen) error {
	again := c.IsSet("watch") && !c.Bool("once")
	span := min(onceSpan, screen.Every)
	screen.Width = 80
	if con.outTerminal {
		if f, ok := con.terminal().(*os.File); ok {
			if w, _, err := term.GetSize(int(f.Fd())); err == nil {
				screen.Width = w
			}
		}
	}
	if !again {
		screen.Every = 0
	}
	s.Sample(c.Context)
	for {
		if err := sleep(c.Context, span); err != nil {
			if again { // Ctrl-C is how it ends
				return nil
			}
			return errInterrupted
		}
		v := s.Sample(c.Context)
		if c.Bool("json") {
			if err := con.printJSON(v); err != nil {
				return err
			}
		} else if _, err := fmt.Fprint(con.out, top.Render(v, screen)); err != nil {
			return err
		}
		if !again {
			return nil
		}
		span = screen.Every
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// utf8Locale reads the environment as setlocale does.
func utf8Locale(env func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := env(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// terminal is the stream below con.out, which knows its size and modes.
func (con *console) terminal() io.Writer {
	if o, ok := con.out.(*stdout); ok {
		return o.Writer
	}
	return con.out
}
