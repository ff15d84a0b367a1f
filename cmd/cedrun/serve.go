package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"cedrun/runtime/engine"
	"cedrun/runtime/kv/disk"
	"cedrun/runtime/model"
	"cedrun/runtime/serve"
	"cedrun/runtime/serve/job"
)

// groupServe are the flags of the server itself.
const groupServe = "Server"

// apiKeyVariable holds one API key. There is no flag: a command line can be read by others.
const apiKeyVariable = "CEDRUN_API_KEY"

func serveCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "answer requests over HTTP, as the APIs of OpenAI and Anthropic do",
		Description: "POST /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /tokenize, /detokenize; GET /v1/models,\n" +
			"/health, /ready, /metrics, /version. docs/serving.md describes them. The first line on stdout is the address, once the\n" +
			"model is loaded; SIGTERM and Ctrl-C finish what runs and refuse what comes.\n\n" +
			"API keys come from --api-key-file, one a line, or from " + apiKeyVariable + " in the environment.\n\n" +
			"Examples:\n" +
			"  cedrun serve\n" +
			"  cedrun serve -m DIR --context 65536 --max-batch 16\n" +
			"  cedrun serve -m DIR --host 0.0.0.0 --api-key-file keys.txt --tls-cert cert.pem --tls-key key.pem",
		Flags: flags(modelFlags(), []cli.Flag{
			stringFlag(groupServe, "host", "127.0.0.1", "listen on this `ADDRESS`; 0.0.0.0 is every one of this machine"),
			intFlag(groupServe, "port", 8080, 0, "", "listen on port `N`; 0 = any that is free"),
			stringFlag(groupServe, "api-key-file", "", "only callers with a key of `FILE`, one a line, are answered"),
			stringFlag(groupServe, "tls-cert", "", "serve HTTPS with the certificate chain in `FILE.pem`"),
			stringFlag(groupServe, "tls-key", "", "and the private key in `FILE.pem`"),
			&cli.StringSliceFlag{Category: groupServe, Name: "cors-origin", Usage: "let web pages of `ORIGIN` call; * = all; repeatable", EnvVars: env("cors-origin")},
			&cli.StringSliceFlag{Category: groupServe, Name: "served-name", Usage: "the model's `NAME` in requests; the first is the one in responses, * is any; repeatable (default: the directory's name)", EnvVars: env("served-name")},
			&cli.StringFlag{
				Category: groupServe, Name: "metrics-names", EnvVars: env("metrics-names"), Usage: "show /metrics under the `NAMES` that gateways look for, too: vllm",
				Action: func(_ *cli.Context, names string) error {
					if names != "vllm" && names != "" {
						return fmt.Errorf("--metrics-names %s: use vllm, or leave it out", names)
					}
					return nil
				},
			},
			boolFlag(groupServe, "metrics-open", "answer /metrics to callers without a key, as scrapers are"),
			boolFlag(groupServe, "strict", "refuse request fields that have no meaning here, instead of ignoring them"),
			intFlag(groupServe, "max-batch", 8, 1, "", "write up to `N` texts at a time"),
			intFlag(groupServe, "max-queue", 64, 0, "", "let up to `N` more texts wait; further requests get 503 and Retry-After"),
			intFlag(groupServe, "max-per-key", 0, 0, "no bound of its own", "let one API key have up to `N` texts that run or wait; beyond that 429 and Retry-After"),
			intFlag(groupServe, "max-body", 32<<20, 1024, "", "refuse requests of more than `N` bytes"),
			floatFlag(groupServe, "decode-slowdown", 1.75, "while prompts are read, texts may take `X` times as long a token; 0 gives prompts whole chunks"),
			durationFlag(groupServe, "timeout", 0, "none", "end a request after `TIME`, as in 90s or 10m"),
			durationFlag(groupServe, "drain-time", 30*time.Second, "", "at the end, let requests that run go on for up to `TIME`"),
			durationFlag(groupServe, "keep-alive", 10*time.Second, "", "send a comment on a stream that was silent for `TIME`"),
			&cli.BoolFlag{
				Category: groupInput, Name: "thinking", EnvVars: env("thinking"), DefaultText: "on; off for the embedded demo model",
				Usage: "reason before the answer where a request does not say; --thinking=false does not",
			},
			boolFlag(groupInput, "keep-reasoning", "leave earlier reasoning in prompts; without it the template drops it"),
			intFlag(groupSample, "max-tokens", 0, 1, "what the context leaves", "write at most `N` tokens where a request does not say"),
			floatFlag(groupSample, "temperature", 1, "`T` where a request does not say"),
			floatFlag(groupSample, "top-p", 0.95, "`P` where a request does not say"),
			intFlag(groupCompute, "context", 0, 1, "8192, or what the model takes", "room for `N` tokens of prompt and text together, for each text"),
			prefillFlag(model.Cone.String(), "cone"),
		}, kvFlags(), engineFlags(), []cli.Flag{
			stringFlag(groupOutput, "log-level", "info", "messages on stderr from `LEVEL` on: trace, debug, info, warn, error or disabled"),
		}),
		Action: con.action(0, con.serve),
	}
}

func durationFlag(group, name string, value time.Duration, auto, usage string) *cli.DurationFlag {
	return &cli.DurationFlag{
		Category: group, Name: name, Value: value, DefaultText: auto, Usage: usage, EnvVars: env(name),
		Action: func(_ *cli.Context, d time.Duration) error {
			if d < 0 {
				return fmt.Errorf("--%s %v: use 0 or more", name, d)
			}
			return nil
		},
	}
}

// server is what the command runs.
type server struct {
	*console
	c        *cli.Context
	http     *serve.Server
	defaults job.Model
	setup    engine.Setup
	limits   job.Limits
}

func (con *console) serve(c *cli.Context) error {
	s := &server{console: con, c: c}
	keys, err := s.read()
	if err != nil {
		return err
	}
	secure, err := certificate(c)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(c.String("host"), strconv.Itoa(c.Int("port"))))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w: give another --port, or 0 for any that is free", err)
		}
		return fmt.Errorf("--host and --port: %w", err)
	}
	loopback := serve.Loopback(ln.Addr())
	if !loopback && len(keys) == 0 {
		con.log.Warn().Stringer("address", ln.Addr()).Msg("anyone who reaches this address can use the model: give --api-key-file, or --host 127.0.0.1")
	}
	if !loopback && len(keys) > 0 && secure == nil {
		con.log.Warn().Msg("API keys and texts go over the network as they are: give --tls-cert and --tls-key, or put a proxy with TLS in front")
	}
	s.http = serve.New(serve.Options{
		Keys: keys, Origins: c.StringSlice("cors-origin"), Strict: c.Bool("strict"), Version: strings.TrimSuffix(version(), " "+runtime.Version()), Log: con.log,
		VLLMNames: c.String("metrics-names") != "", OpenMetrics: c.Bool("metrics-open"),
		MaxBody: int64(c.Int("max-body")), KeepAlive: c.Duration("keep-alive"), Local: loopback && len(keys) == 0,
	})
	url := "http://" + ln.Addr().String()
	if secure != nil {
		ln, url = tls.NewListener(ln, secure), "https://"+ln.Addr().String()
	}
	return s.run(ln, url)
}

// leastKeepAlive is the shortest time between comments on a stream: shorter ones would be most of it.
const leastKeepAlive = 10 * time.Millisecond

// read reads the flags that need no model.
func (s *server) read() (keys []string, err error) {
	c := s.c
	m := &s.defaults
	m.Sampling.Temperature, m.Sampling.TopP = c.Float64("temperature"), c.Float64("top-p")
	if err := m.Sampling.Validate(); err != nil {
		return nil, err
	}
	if m.Prefill, err = model.ParsePrefill(c.String("prefill")); err != nil {
		return nil, err
	}
	if m.Cache, err = job.ParseCache(c.String("cache")); err != nil {
		return nil, fmt.Errorf("--cache: %w", err)
	}
	m.MaxTokens, m.Keep = c.Int("max-tokens"), c.Bool("keep-reasoning")
	m.Thinking = c.String("model") != ""
	if c.IsSet("thinking") {
		m.Thinking = c.Bool("thinking")
	}
	s.setup = engine.Setup{Threads: c.Int("threads"), Pin: c.Bool("pin"), Slots: c.Int("max-batch"), Context: c.Int("context"), Slowdown: c.Float64("decode-slowdown")}
	if x := s.setup.Slowdown; x != 0 && !(x > 1 && x <= 1000) {
		return nil, fmt.Errorf("--decode-slowdown %v: use a factor above 1, or 0 for whole chunks", x)
	}
	if d := c.Duration("keep-alive"); d != 0 && d < leastKeepAlive {
		return nil, fmt.Errorf("--keep-alive %v: use %v or more", d, leastKeepAlive)
	}
	if err := checkKV(c); err != nil {
		return nil, err
	}
	if s.setup.Backend, err = s.backend(c); err != nil {
		return nil, err
	}
	s.limits = job.Limits{Slots: s.setup.Slots, Queue: c.Int("max-queue"), PerKey: c.Int("max-per-key"), Timeout: c.Duration("timeout")}
	return readKeys(c)
}

// readKeys reads the API keys.
func readKeys(c *cli.Context) ([]string, error) {
	keys, err := serve.ReadKeys(os.Getenv(apiKeyVariable))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", apiKeyVariable, err)
	}
	name := c.String("api-key-file")
	if name == "" {
		return keys, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--api-key-file: %w", err)
	}
	more, err := serve.ReadKeys(string(data))
	if err != nil {
		return nil, fmt.Errorf("--api-key-file %s: %w", name, err)
	}
	if len(more) == 0 {
		return nil, fmt.Errorf("--api-key-file %s holds no key", name)
	}
	return append(keys, more...), nil
}

// certificate reads --tls-cert and --tls-key; nil without them.
func certificate(c *cli.Context) (*tls.Config, error) {
	cert, key := c.String("tls-cert"), c.String("tls-key")
	if cert == "" && key == "" {
		return nil, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("--tls-cert and --tls-key: give both of them")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, nil
}

// run answers from now on, loads the model, and ends when the context does.
func (s *server) run(ln net.Listener, url string) error {
	h := s.http.HTTP()
	defer h.Close()
	pub := s.publish("serve", &s.setup)
	defer pub.Close()
	pub.Address(url)
	failed := make(chan error, 2)
	go func() { failed <- h.Serve(ln) }()
	s.log.Info().Str("url", url).Msg("listening; the model is being loaded")
	loaded := make(chan *engine.Instance, 1)
	go func() {
		inst, err := s.load()
		if err != nil {
			failed <- err
			return
		}
		loaded <- inst
	}()
	var inst *engine.Instance
	select {
	case err := <-failed:
		return err
	case <-s.c.Context.Done():
		return errInterrupted // what loads ends with the process
	case inst = <-loaded:
	}
	shown := pub.Show(inst)
	s.log.Info().Str("url", url).Str("model", s.defaults.ID()).Int("context", s.defaults.Context).Int("max_batch", s.limits.Slots).Msg("ready")
	if _, err := fmt.Fprintln(s.out, url); err != nil {
		return closing(shown, fmt.Errorf("write the address: %w", err))
	}
	select {
	case err := <-failed:
		return closing(shown, err)
	case <-inst.Done(): // its device failed; who waits for an answer is told
		s.shut(h)
		return closing(shown, inst.Err())
	case <-s.c.Context.Done():
	}
	return closing(shown, s.end(h))
}

// end lets what runs finish.
func (s *server) end(h *http.Server) error {
	s.log.Info().Msg("draining")
	ctx, cancel := context.WithTimeout(context.Background(), s.c.Duration("drain-time"))
	defer cancel()
	if err := s.http.Drain(ctx); err != nil {
		s.log.Warn().Msg("requests were cut off: a longer --drain-time lets them finish")
	}
	if err := s.shut(h); err != nil {
		return err
	}
	s.log.Info().Msg("ended")
	return nil
}

// shut gives answers on their way some seconds.
func (s *server) shut(h *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := h.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// load opens the checkpoint, starts the engine and makes the server ready.
func (s *server) load() (*engine.Instance, error) {
	began := time.Now()
	f, err := s.openFiles(s.c)
	if err != nil {
		return nil, err
	}
	if err := needTokenizer(f); err != nil {
		return nil, closing(f, err)
	}
	if s.setup.Context > f.Config.MaxPositions {
		return nil, closing(f, fmt.Errorf("--context %d: this model takes at most %d tokens", s.setup.Context, f.Config.MaxPositions))
	}
	if s.setup.Context == 0 {
		s.setup.Context = min(defaultContext, f.Config.MaxPositions)
	}
	s.setup.Outputs = min(promptChunk, s.setup.Context) + s.setup.Slots // logits of any row of a usual step, to score prompts
	if err := s.readKV(f); err != nil {
		return nil, closing(f, err)
	}
	inst, err := s.start(f, s.setup)
	if err != nil {
		return nil, closing(f, err)
	}
	if d := inst.Engine.Load().Disk; d.State != disk.StateOff {
		s.log.Info().Str("dir", s.setup.KVDir).Int("pages", d.Pages).Int64("bytes", d.Bytes).Int64("at_most", d.MaxBytes).Msg("the KV cache is kept on disk")
	}
	m := &s.defaults
	m.Names = s.names(f)
	m.Tokenizer, m.BOS, m.EOS, m.Banned = f.Tokenizer, int32(f.Config.BOS), int32(f.Config.EOS), f.Banned()
	m.Context, m.Created, m.Degraded = s.setup.Context, began, degraded(inst)
	for _, what := range m.Degraded {
		s.log.Warn().Str("without", what).Msg("the model is served without a feature that its config or this build would have")
	}
	m.Scoring = inst.Setup.Outputs >= inst.Setup.Chunk+inst.Setup.Slots
	sum := sha256.Sum256(fmt.Append(nil, version(), f.Source.Name(), f.Report, s.setup.Backend, m.Prefill))
	m.Fingerprint = fmt.Sprintf("fp_%x", sum[:5])
	s.http.Ready(m, job.Of(inst.Engine), s.limits)
	return inst, nil
}

func (s *server) names(f *engine.Files) []string {
	if names := s.c.StringSlice("served-name"); len(names) > 0 && names[0] != "*" {
		return names
	}
	name := "cedrun-demo"
	if f.Source.FS == nil {
		name = f.Source.Dir
		if abs, err := filepath.Abs(name); err == nil {
			name = abs
		}
		name = filepath.Base(name)
	}
	return append([]string{name}, s.c.StringSlice("served-name")...)
}

// degraded names what the model or this build leaves out.
func degraded(i *engine.Instance) []string {
	out := append([]string{}, i.Report.Absent...)
	if i.Config.Vision != nil {
		out = append(out, "images: this build reads text only")
	}
	for _, w := range []string{i.SelfTest.Warning, i.Profile.Warning} {
		if w != "" {
			out = append(out, w)
		}
	}
	if err := i.Checkpoint.MapRefused(); err != nil {
		out = append(out, "mapping: "+strings.TrimSpace(err.Error()))
	}
	return out
}
