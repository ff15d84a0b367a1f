package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	ced "cedrun/cuda"
	"cedrun/runtime/config"
	"cedrun/runtime/machine"
	"cedrun/runtime/plan"
	"cedrun/runtime/profile"
	"cedrun/runtime/telemetry"
)

// attach profiles a process that runs.
func (con *console) attach(c *cli.Context) error {
	for _, name := range []string{"prompt", "prompt-file", "messages", "prompt-tokens", "tokens"} { // a config file may set others
		if c.IsSet(name) {
			return fmt.Errorf("--attach profiles what a process runs already: leave out --%s", name)
		}
	}
	ask := profile.Ask{Seconds: c.Float64("seconds")}
	if err := ask.Check(); err != nil {
		return fmt.Errorf("--seconds: %w", err)
	}
	at, err := endpoint(c.Args().First())
	if err != nil {
		return err
	}
	client, err := telemetry.Dial(c.Context, at.Path)
	if err != nil {
		return err
	}
	con.show("recording process %d for %g s", at.PID, ask.Seconds)
	answer, err := recordThere(c.Context, client, ask, patience)
	con.clear()
	if err = closing(client, err); err != nil {
		if c.Context.Err() != nil {
			return errInterrupted
		}
		return err
	}
	reply, err := profile.DecodeReply(answer)
	if err != nil {
		return err
	}
	reply.Subject.PID = at.PID
	var limits *profile.Limits
	var works profile.Works
	if c.String("roofline") != "" {
		con.show("measuring this machine")
		limits, err = measured(c.Context, reply.Subject.Threads)
		con.clear()
		if err != nil {
			return err
		}
		if works, err = decodeWorks(reply); err != nil {
			return err
		}
	}
	return con.writeProfile(c, profile.New(reply.Subject, reply.Recording, works, limits), reply.Recording)
}

// patience is how much longer than asked a process may take: it ends the step that it is in.
const patience = time.Minute

// recordThere has a process recorded, and waits a while longer than that takes.
func recordThere(ctx context.Context, client *telemetry.Client, ask profile.Ask, patience time.Duration) (json.RawMessage, error) {
	within := time.Duration(ask.Seconds*float64(time.Second)) + patience
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %v: is the process stopped?", within))
	defer cancel()
	return client.Ask(ctx, profile.Want, ask)
}

// numberLast puts the process that profile --attach names behind the flags, the one place where they are not ended by it.
func numberLast(args []string) []string {
	if len(args) < 3 || args[1] != "profile" {
		return args
	}
	for i, a := range args {
		switch name, pid, joined := strings.Cut(strings.TrimLeft(a, "-"), "="); {
		case name != "attach" || !strings.HasPrefix(a, "-"):
		case joined:
			if _, err := strconv.Atoi(pid); err == nil {
				return append(slices.Concat(args[:i], []string{"--attach"}, args[i+1:]), pid)
			}
		case i+1 < len(args):
			if _, err := strconv.Atoi(args[i+1]); err == nil {
				return append(slices.Concat(args[:i+1], args[i+2:]), args[i+1])
			}
		}
	}
	return args
}

// endpoint is the process that is named, or the one that there is.
func endpoint(pid string) (at telemetry.Endpoint, err error) {
	if pid != "" {
		n, err := strconv.Atoi(pid)
		if err != nil || n < 1 {
			return at, fmt.Errorf("--attach %s: give the number of a process, or none if one cedrun runs", pid)
		}
		return telemetry.Endpoint{PID: n, Path: telemetry.Path(telemetry.Dir(), n)}, nil
	}
	all, err := telemetry.Find(telemetry.Dir())
	switch {
	case err != nil:
		return at, err
	case len(all) == 0:
		return at, fmt.Errorf("no cedrun of this user serves or generates: start cedrun serve, or leave out --attach")
	case len(all) > 1:
		var pids []string
		for _, e := range all {
			pids = append(pids, strconv.Itoa(e.PID))
		}
		return at, fmt.Errorf("several processes run: give --attach one of %s", strings.Join(pids, ", "))
	}
	return all[0], nil
}

// measured are the machine's rates, on as many threads as a process has. What it does meanwhile lowers them.
func measured(ctx context.Context, threads int) (*profile.Limits, error) {
	s, err := ced.Open(ced.CPU, 0, min(threads, ced.MaxThreads))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	p, err := machine.NewProber(ctx, s)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if err := p.Probe(); err != nil {
		return nil, err
	}
	time.Sleep(600 * time.Millisecond) // a prober measures so often at most
	if err := p.Probe(); err != nil {
		return nil, err
	}
	return profile.NewLimits(p), nil
}

// decodeWorks is the work of decode steps: that of prompts depends on where each began, which a recording does not say.
func decodeWorks(r *profile.Reply) (profile.Works, error) {
	if len(r.Config) == 0 {
		return nil, nil
	}
	cfg, err := config.Parse(r.Config)
	if err != nil {
		return nil, fmt.Errorf("process %d: config.json: %w", r.Subject.PID, err)
	}
	sites := plan.Sites{}
	for _, s := range r.Recording.Steps {
		if s.Decode > 0 && s.Prefill == 0 {
			sites.AddDecode(cfg, s.Decode, min(s.Depth, cfg.MaxPositions-1))
		}
	}
	return profile.Works{profile.Decode: sites}, nil
}
