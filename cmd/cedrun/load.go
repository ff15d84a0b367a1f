package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/load"
)

// Groups of flags of cedrun load.
const (
	groupTarget = "Server to measure"
	groupLoop   = "Load"
	groupShape  = "Conversations"
)

func loadCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "load",
		Usage: "measure a server of OpenAI's chat API under load, as agents use it",
		Description: "Sends conversations that share a long system prompt and grow turn by turn, streams the answers, and reports times to\n" +
			"first token, between tokens and to the end, throughput, the share of prompt tokens that came from a cache, and errors.\n\n" +
			"Closed loop (--concurrency): so many conversations at a time; each asks again when it has its answer. Open loop\n" +
			"(--rate): requests are due at times that do not depend on the server, and all times count from when a request was due,\n" +
			"so a server that falls behind shows it. 429 and 503 with a Retry-After are obeyed and count as waiting.\n\n" +
			"A trace is a file of JSON lines, one a request: {\"session\": \"a\", \"messages\": [..], \"max_tokens\": 40, \"think\": 2}, or\n" +
			"with \"at\": 1.5 (seconds after the start) for an open loop; messages are added to what the session has said and heard.\n" +
			"Ctrl-C prints what was measured.\n\n" +
			"Examples:\n" +
			"  cedrun load --requests 64 --concurrency 8\n" +
			"  cedrun load --url http://127.0.0.1:8080 --rate 4 --requests 200 --slo ttft=500ms,itl=50ms\n" +
			"  cedrun load --url https://api.example.com/v1 --model NAME --api-key-env KEY --concurrency 2 --requests 16 --json\n" +
			"  cedrun load --trace agents.jsonl --extra '{\"cache\": \"off\"}'",
		Flags: flags([]cli.Flag{
			stringFlag(groupTarget, "url", "http://127.0.0.1:8080", "address of the server, `URL` with or without /v1"),
			withDefault(stringFlag(groupTarget, "model-name", "", "ask for the model `NAME`", "model"), "the first that the server names"),
			stringFlag(groupTarget, "api-key-env", "", "send the API key that the environment variable `VAR` holds"),
			stringFlag(groupTarget, "extra", "", "further fields of every request, a `JSON` object"),
			durationFlag(groupTarget, "request-timeout", 10*time.Minute, "", "give a request up after `TIME`; 0 = never"),
			intFlag(groupTarget, "retries", 5, 0, "", "come back up to `N` times when told to"),

			intFlag(groupLoop, "concurrency", 0, 1, "4, if there is no --rate", "closed loop of `N` conversations at a time"),
			floatFlag(groupLoop, "rate", 0, "open loop of `R` requests a second"),
			stringFlag(groupLoop, "arrival", string(load.Poisson), "an open loop's requests are due as `KIND` says: poisson (independent) or constant (equally far apart)"),
			stringFlag(groupLoop, "slo", "", "count what meets an `OBJECTIVE`, as in ttft=500ms,itl=50ms,e2e=10s"),

			intFlag(groupShape, "requests", 64, 1, "", "`N` requests in all"),
			intFlag(groupShape, "turns", 8, 1, "", "`N` requests of a conversation"),
			intFlag(groupShape, "system-words", 400, 0, "", "system prompts of `N` words"),
			intFlag(groupShape, "systems", 1, 1, "", "`N` different system prompts; conversations take them in turn"),
			intFlag(groupShape, "turn-words", 60, 1, "", "each turn adds `N` words on average"),
			intFlag(groupShape, "max-tokens", 32, 1, "", "answers of at most `N` tokens"),
			durationFlag(groupShape, "think", 0, "none; 2s with --rate", "`TIME` between an answer and the next turn on average"),
			&cli.Uint64Flag{Category: groupShape, Name: "seed", Usage: "`SEED` of the conversations", EnvVars: env("seed")},
			stringFlag(groupShape, "trace", "", "send the requests in `FILE.jsonl` instead; - is stdin"),

			stringFlag(groupOutput, "records", "", "write what was measured of each request to `FILE.jsonl`"),
		}, outputFlags("print one JSON object; times are in seconds")),
		Action: con.action(0, con.load),
	}
}

func (con *console) load(c *cli.Context) error {
	client, err := loadClient(c)
	if err != nil {
		return err
	}
	defer client.Close()
	slo, err := load.ParseSLO(c.String("slo"))
	if err != nil {
		return fmt.Errorf("--slo: %w", err)
	}
	o := load.Options{Concurrency: c.Int("concurrency"), Retries: c.Int("retries"), Timeout: c.Duration("request-timeout")}
	if o.Extra, err = load.Extra(c.String("extra")); err != nil {
		return fmt.Errorf("--extra: %w", err)
	}
	trace, err := con.loadTrace(c)
	if err != nil {
		return err
	}
	if o.Concurrency == 0 {
		o.Concurrency = 4
	}
	var records *os.File
	if name := c.String("records"); name != "" {
		if records, err = os.Create(name); err != nil {
			return fmt.Errorf("--records: %w", err)
		}
		defer records.Close()
	}
	if err := client.FindModel(c.Context); err != nil {
		if c.Context.Err() != nil {
			return errInterrupted
		}
		if c.String("api-key-env") == "" && strings.Contains(err.Error(), "status 401") {
			return fmt.Errorf("--url %s wants an API key: name the variable that holds one by --api-key-env (%w)", c.String("url"), err)
		}
		return fmt.Errorf("no answer from --url %s: %w", c.String("url"), err)
	}
	shown := time.Time{}
	o.Progress = func(p load.Progress) {
		if now := time.Now(); now.Sub(shown) > 100*time.Millisecond {
			shown = now
			con.show("%d of %d answered, %d failed, %d under way, %.1f tokens/s", p.Done, p.Total, p.Failed, p.InFlight, float64(p.Tokens)/p.Elapsed.Seconds())
		}
	}
	result := load.Run(c.Context, client, trace, o)
	con.clear()
	if records != nil {
		if err := writeRecords(records, result.Records); err != nil {
			return fmt.Errorf("--records: %w", err)
		}
	}
	r := result.Report(client, o, slo)
	if err := con.printLoad(c, r); err != nil {
		return err
	}
	switch {
	case result.Interrupted:
		return errInterrupted
	case r.OK == 0:
		return errors.New("no request was answered")
	}
	return nil
}

func (con *console) printLoad(c *cli.Context, r *load.Report) error {
	if c.Bool("json") {
		return con.printJSON(r)
	}
	return r.Print(con.out)
}

func loadClient(c *cli.Context) (*load.Client, error) {
	key := ""
	if name := c.String("api-key-env"); name != "" {
		if key = os.Getenv(name); key == "" {
			return nil, fmt.Errorf("--api-key-env %s: this environment variable is not set", name)
		}
	}
	client, err := load.NewClient(c.String("url"), key, c.String("model-name"))
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	return client, nil
}

// loadTrace reads or makes the requests, and says when they are due.
func (con *console) loadTrace(c *cli.Context) (*load.Trace, error) {
	if c.IsSet("rate") && c.IsSet("concurrency") {
		return nil, errors.New("--rate is an open loop and --concurrency a closed one: choose one")
	}
	arrival, err := load.ParseArrival(c.String("arrival"))
	if err != nil {
		return nil, fmt.Errorf("--arrival: %w", err)
	}
	think := c.Duration("think")
	if c.IsSet("rate") && !c.IsSet("think") {
		think = 2 * time.Second
	}
	t, err := con.readTrace(c, think)
	if err != nil {
		return nil, err
	}
	switch {
	case c.IsSet("rate"):
		if err := t.Schedule(c.Float64("rate"), arrival, think, c.Uint64("seed")); err != nil {
			return nil, fmt.Errorf("--rate: %w", err)
		}
	case c.IsSet("concurrency"):
		t.Scheduled = false
	}
	return t, nil
}

func (con *console) readTrace(c *cli.Context, think time.Duration) (*load.Trace, error) {
	name := c.String("trace")
	if name == "" {
		shape := load.Shape{
			Seed: c.Uint64("seed"), Requests: c.Int("requests"), Turns: c.Int("turns"), Systems: c.Int("systems"), System: c.Int("system-words"),
			User: c.Int("turn-words"), MaxTokens: c.Int("max-tokens"), Think: think,
		}
		if err := shape.Check(); err != nil {
			return nil, err
		}
		return load.Generate(shape), nil
	}
	for _, f := range []string{"requests", "turns", "system-words", "systems", "turn-words", "max-tokens"} {
		if c.IsSet(f) {
			return nil, fmt.Errorf("--%s shapes conversations that are made up; those of --trace are what the file says", f)
		}
	}
	in := con.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--trace: %w", err)
		}
		defer f.Close()
		in = f
	}
	t, err := load.ReadTrace(in)
	if err != nil {
		return nil, fmt.Errorf("--trace %s: %w", name, err)
	}
	return t, nil
}

func writeRecords(f *os.File, records []load.Record) error {
	w := bufio.NewWriter(f)
	e := json.NewEncoder(w)
	for i := range records {
		if err := e.Encode(&records[i]); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
