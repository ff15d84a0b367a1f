// Restore measures what a long prefix costs when it comes back from disk: one server reads the prompt and ends, the page
// cache is dropped, and a second server answers the same prompt. It prints both times to the first token.
//
//	go run ./bench/restore -cedrun bin/cedrun -m DIR [-tokens 65536] [-mode snapshot,replay] [-- FLAGS OF SERVE]
//
// The prompt is random tokens. Dropping the page cache needs root; without, the table says that the pages came from memory.
// Processor time is the server's for the whole request: on a machine that others use, it says more than the clock.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

func main() {
	b := bench{out: os.Stdout}
	flag.StringVar(&b.program, "cedrun", "bin/cedrun", "program to run")
	flag.StringVar(&b.model, "m", "", "directory of the checkpoint")
	flag.IntVar(&b.tokens, "tokens", 65536, "tokens of the prefix")
	flag.IntVar(&b.vocabulary, "vocabulary", 32000, "its token ids are below")
	modes := flag.String("mode", "snapshot,replay", "cache modes to restore in")
	flag.StringVar(&b.dir, "kv-dir", "", "directory for the pages; default: a new one, removed at the end")
	flag.Parse()
	b.flags = flag.Args()
	if err := b.run(strings.Split(*modes, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "restore:", err)
		os.Exit(1)
	}
}

type bench struct {
	out                 io.Writer
	program, model, dir string
	tokens, vocabulary  int
	flags               []string
	prompt, warm        []int
	dropped             bool
}

// tail are tokens after the prefix, and text is how many are written.
const (
	tail = 32
	text = 8
)

func (b *bench) run(modes []string) error {
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "cedrun-restore-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		b.dir = dir
	}
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []int {
		ids := make([]int, n)
		for i := range ids {
			ids[i] = 16 + r.IntN(b.vocabulary-16)
		}
		return ids
	}
	b.prompt, b.warm = random(b.tokens+tail), random(300)
	cold, err := b.measure("snapshot")
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(b.out, "%-10s %12s %8s %12s %8s %8s %10s %10s  %s\n", "", "first token", "of cold", "processor", "of cold", "hit",
		"run again", "restore", "text")
	b.row("cold", cold, cold)
	for _, mode := range modes {
		warm, err := b.measure(mode)
		if err != nil {
			return err
		}
		b.row(mode, warm, cold)
		if mode == "snapshot" && warm.text != cold.text {
			return fmt.Errorf("the text after a restart is %q, cold it was %q", warm.text, cold.text)
		}
	}
	if !b.dropped {
		_, _ = fmt.Fprintln(b.out, "the page cache could not be dropped: pages came from memory, not from the disk")
	}
	return nil
}

func (b *bench) row(name string, a, cold answer) {
	_, _ = fmt.Fprintf(b.out, "%-10s %10.3f s %7.2f%% %10.2f s %7.2f%% %8d %10d %10s  %.40q\n", name, a.first.Seconds(),
		100*a.first.Seconds()/cold.first.Seconds(), a.processor, 100*a.processor/cold.processor, a.reuse.Hit, a.reuse.Rerun, a.reuse.Restore, a.text)
}

// answer is what one server gave.
type answer struct {
	first     time.Duration
	processor float64 // seconds
	text      string
	reuse     struct {
		Hit     int    `json:"hit_tokens"`
		Rerun   int    `json:"replayed_tokens"`
		Restore string `json:"restore"`
	}
}

// measure starts a server with nothing in memory, asks for the prompt, and ends it.
func (b *bench) measure(mode string) (a answer, err error) {
	if out, err := exec.Command("sync").CombinedOutput(); err != nil {
		return a, fmt.Errorf("sync: %w: %s", err, out)
	}
	b.dropped = os.WriteFile("/proc/sys/vm/drop_caches", []byte("3\n"), 0) == nil
	args := append([]string{
		"serve", "-m", b.model, "--port", "0", "--context", fmt.Sprint(b.tokens + 1024), "--max-batch", "1",
		"--kv-dir", b.dir, "--kv-disk", "8GiB", "--log-level", "warn",
	}, b.flags...)
	cmd := exec.Command(b.program, args...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return a, err
	}
	if err := cmd.Start(); err != nil {
		return a, fmt.Errorf("start a server: %w", err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, stdout)
		if e := cmd.Wait(); e != nil && err == nil {
			err = fmt.Errorf("the server: %w", e)
		}
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return a, fmt.Errorf("the server did not start: %w", err)
	}
	at := strings.Fields(line)
	url := at[len(at)-1] + "/v1/completions"
	if _, err := ask(url, b.warm, "off"); err != nil { // weights come from the disk too
		return a, err
	}
	before, err := processor(cmd.Process.Pid)
	if err != nil {
		return a, err
	}
	if a, err = ask(url, b.prompt, mode); err != nil {
		return a, err
	}
	after, err := processor(cmd.Process.Pid)
	a.processor = after - before
	return a, err
}

// processor is the time that a process has had, in seconds.
func processor(pid int) (float64, error) {
	const ticks = 100 // a second, on Linux
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	var user, system float64
	if f := strings.Fields(rest); len(f) > 12 {
		_, err = fmt.Sscan(f[11]+" "+f[12], &user, &system)
	}
	return (user + system) / ticks, err
}

// ask sends a prompt and times the first event of the stream that has text.
func ask(url string, prompt []int, mode string) (a answer, err error) {
	body, err := json.Marshal(map[string]any{
		"prompt": prompt, "max_tokens": text, "temperature": 0, "stream": true, "cache": mode, "ignore_eos": true,
	})
	if err != nil {
		return a, err
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Cedrun-Debug", "cache")
	start := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return a, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		what, _ := io.ReadAll(response.Body)
		return a, fmt.Errorf("%s: %s", response.Status, what)
	}
	events := bufio.NewScanner(response.Body)
	events.Buffer(nil, 1<<24)
	for events.Scan() {
		data, ok := strings.CutPrefix(events.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var e struct {
			Choices []struct {
				Text   string  `json:"text"`
				Finish *string `json:"finish_reason"`
			} `json:"choices"`
			Cedrun *struct {
				Cache []json.RawMessage `json:"cache"`
			} `json:"cedrun"`
			Error json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return a, fmt.Errorf("event %.100q: %w", data, err)
		}
		if e.Error != nil {
			return a, fmt.Errorf("the server answers %s", e.Error)
		}
		if len(e.Choices) > 0 && (e.Choices[0].Text != "" || e.Choices[0].Finish != nil) {
			if a.text += e.Choices[0].Text; a.first == 0 {
				a.first = time.Since(start)
			}
		}
		if e.Cedrun != nil && len(e.Cedrun.Cache) > 0 {
			if err := json.Unmarshal(e.Cedrun.Cache[0], &a.reuse); err != nil {
				return a, err
			}
		}
	}
	return a, events.Err()
}
