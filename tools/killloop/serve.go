package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	prompts = 16
	callers = 4
)

// serveRounds kills a server of the demo model n times under load, half of the time with so little room on disk that it
// evicts. Every answer must be the one that a server without a cache gives.
func serveRounds(out io.Writer, program, dir string, seed uint64, n int) error {
	l := server{program: program}
	for i := range prompts {
		l.prompts = append(l.prompts, prompt(i))
	}
	if err := l.lone(); err != nil {
		return fmt.Errorf("answers without a cache: %w", err)
	}
	for _, part := range []struct {
		name, disk string
		rounds     int
	}{{"room for all", "64MiB", n / 2}, {"evicting", "128KiB", n - n/2}} {
		l.count = count{}
		l.flags = []string{"--kv-dir", filepath.Join(dir, strings.ReplaceAll(part.name, " ", "-")), "--kv-disk", part.disk}
		for round := range part.rounds {
			if err := l.round(rand.New(rand.NewPCG(seed, uint64(round)))); err != nil {
				return fmt.Errorf("%s, round %d: %w", part.name, round+1, err)
			}
		}
		say(out, "%s: %d kills under load; %d answers right, %d of them the first after a start, which took %d tokens from disk\n",
			part.name, part.rounds, l.answers, l.first, l.restored)
		if part.rounds > 5 && l.restored == 0 {
			return errors.New("nothing ever came back from disk")
		}
		seed++
	}
	return nil
}

// prompt is one of the prompts; some begin alike.
func prompt(i int) []int {
	r := rand.New(rand.NewPCG(7, uint64(i%4)))
	ids := make([]int, 70+i*9)
	for at := range ids {
		if at == 66 {
			r = rand.New(rand.NewPCG(8, uint64(i)))
		}
		ids[at] = 20 + r.IntN(400)
	}
	return ids
}

type server struct {
	program string
	flags   []string
	prompts [][]int
	want    []string
	count
}

type count struct{ answers, first, restored int }

// start runs a server and waits for its address.
func (l *server) start(flags ...string) (cmd *exec.Cmd, url string, err error) {
	cmd = exec.Command(l.program, append([]string{"serve", "--port", "0", "--context", "256", "--log-level", "error"}, flags...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, "", fmt.Errorf("the server did not start: %w", errors.Join(err, cmd.Wait()))
	}
	words := strings.Fields(line)
	return cmd, words[len(words)-1] + "/v1/completions", nil
}

func (l *server) lone() error {
	cmd, url, err := l.start()
	if err != nil {
		return err
	}
	for _, p := range l.prompts {
		text, _, err := ask(url, p, "off")
		if err != nil {
			return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
		l.want = append(l.want, text)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return nil
}

// round starts a server on what the last one left, puts load on it and kills it.
func (l *server) round(r *rand.Rand) error {
	cmd, url, err := l.start(l.flags...)
	if err != nil {
		return err
	}
	kill := sync.OnceFunc(func() { _ = cmd.Process.Kill() })
	defer func() {
		kill()
		_ = cmd.Wait()
	}()
	i := r.IntN(prompts) // alone: what it finds is from the disk
	text, hit, err := ask(url, l.prompts[i], "snapshot")
	if err != nil {
		return err
	}
	if text != l.want[i] {
		return fmt.Errorf("after a restart prompt %d, %d tokens of it cached, is answered with %q, alone with %q", i, hit, text, l.want[i])
	}
	l.first++
	l.answers++
	l.restored += hit
	last := l.answers + r.IntN(callers*prompts/2) // the kill comes some time after this answer
	wait := time.Duration(r.IntN(60_000)) * time.Microsecond
	if last == l.answers {
		time.AfterFunc(wait, kill)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range callers {
		order := r.Perm(prompts)
		wg.Go(func() {
			for _, i := range order {
				text, hit, e := ask(url, l.prompts[i], "snapshot")
				mu.Lock()
				switch {
				case e != nil: // killed
				case text != l.want[i]:
					err = fmt.Errorf("prompt %d, %d tokens of it cached, is answered with %q, alone with %q", i, hit, text, l.want[i])
				default:
					if l.answers++; l.answers == last {
						time.AfterFunc(wait, kill)
					}
				}
				mu.Unlock()
				if e != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return err
}

// ask gets a completion and how many tokens of the prompt were cached.
func ask(url string, prompt []int, mode string) (text string, hit int, err error) {
	body, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": 12, "temperature": 0, "cache": mode, "ignore_eos": true})
	if err != nil {
		return "", 0, err
	}
	response, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Choices []struct {
			Text string `json:"text"`
		} `json:"choices"`
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", 0, err
	}
	if len(answer.Choices) != 1 {
		return "", 0, fmt.Errorf("%s: %s", response.Status, answer.Error)
	}
	return answer.Choices[0].Text, answer.Usage.Details.Cached, nil
}
