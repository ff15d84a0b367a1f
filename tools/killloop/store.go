package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"cedrun/runtime/kv"
	"cedrun/runtime/kv/disk"
)

const (
	sequences = 24 // that writers choose from
	longest   = 40 // pages of one
)

var layout = kv.NewLayout(512, 128, []int{2, 8, 14, 20}, []int{2, 2, 2, 1})

// options are those of all processes of a loop.
func options(dir string, budget int64) disk.Options {
	return disk.Options{Dir: dir, MaxBytes: budget, PageBytes: layout.PageBytes, Identity: disk.Identity{Model: "killloop"}}
}

// sequence names the pages of one of the sequences; some begin alike.
func sequence(i int) []disk.Page {
	keys := make([]int32, longest*kv.PageTokens)
	for at := range keys {
		if keys[at] = int32(at + i%3); at > 10*kv.PageTokens {
			keys[at] += int32(1000 * i)
		}
	}
	return disk.Chain(fmt.Sprint(i%2), keys, nil)
}

// fill writes what a page must hold.
func fill(p *disk.Page, b []byte) {
	seed := [32]byte(p.Hash)
	if p.Exact {
		seed[0]++
	}
	_, _ = rand.NewChaCha8(seed).Read(b)
}

// writer writes pages until it is killed. On its output, after each flush: the pages that are on disk by now.
func writer(dir string, seed, round uint64, budget int64) error {
	ctx := context.Background()
	s, err := disk.Open(ctx, options(dir, budget))
	if err != nil {
		return err
	}
	fmt.Println("open")
	r := rand.New(rand.NewPCG(seed, round))
	b := make([]byte, layout.PageBytes)
	for {
		i := r.IntN(sequences)
		pages := sequence(i)[:1+r.IntN(longest)]
		exact := r.IntN(len(pages) + 1)
		for n := range pages {
			pages[n].Exact = n < exact
			fill(&pages[n], b)
			s.Write(pages[n], b)
		}
		if r.IntN(3) == 0 {
			s.Find(pages, false).Release()
		}
		if r.IntN(2) == 0 {
			if err := s.Flush(ctx); err != nil {
				return err
			}
			if st := s.Stats(); st.WriteErrors+st.ReadErrors+st.Corrupt > 0 {
				return fmt.Errorf("an error on a sound disk: %+v", st)
			}
			h := s.Find(pages, false)
			fmt.Println("has", i, h.Len())
			h.Release()
		}
	}
}

// storeRounds kills a writer n times, half of the time with a budget that makes it evict.
func storeRounds(out io.Writer, dir string, seed uint64, n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name   string
		budget int64
		rounds int
		whole  bool
	}{
		{"room for all", 1 << 30, n / 2, true},
		{"evicting", 300 * int64(layout.PageBytes), n - n/2, false},
	} {
		l := loop{self: self, dir: filepath.Join(dir, strings.ReplaceAll(part.name, " ", "-")), seed: seed, budget: part.budget, whole: part.whole}
		for round := range part.rounds {
			if err := l.round(uint64(round + 1)); err != nil {
				return fmt.Errorf("%s, round %d: %w", part.name, round+1, err)
			}
		}
		say(out, "%s: %d kills, %d of them after the store was open; %d pages read and right, %d reported before a kill and there, %d records torn\n",
			part.name, part.rounds, l.opened, l.read, l.kept, l.torn)
		if l.opened == 0 || l.kept == 0 {
			return errors.New("no writer came far enough to be killed while it wrote")
		}
		seed++
	}
	return nil
}

type loop struct {
	self, dir string
	seed      uint64
	budget    int64
	whole     bool // nothing is evicted, so nothing reported may be missing
	least     [sequences]int

	opened, read, kept, torn int
}

// round runs a writer, kills it, and looks at what it left.
func (l *loop) round(round uint64) error {
	reports, err := l.kill(round)
	if err != nil {
		return err
	}
	for _, line := range reports {
		var i, n int
		if _, err := fmt.Sscanf(line, "has %d %d", &i, &n); err == nil {
			l.least[i] = max(l.least[i], n)
		}
	}
	opt := options(l.dir, l.budget)
	var said []string
	opt.Warn = func(s string) { said = append(said, s) }
	s, err := disk.Open(context.Background(), opt)
	if err != nil {
		return fmt.Errorf("open what a killed writer left: %w", err)
	}
	err = l.look(s)
	st := s.Stats()
	l.torn += int(st.Corrupt)
	if err == nil && (st.Corrupt > 1 || st.ReadErrors > 0 || st.State != disk.StateOn) {
		err = fmt.Errorf("one kill did more than tear a record: %+v", st)
	}
	if err != nil {
		err = fmt.Errorf("%w; the store said %q", err, said)
	}
	return errors.Join(err, s.Close())
}

// kill runs a writer for a random time and gives the lines that it wrote whole.
func (l *loop) kill(round uint64) ([]string, error) {
	cmd := exec.Command(l.self, "-dir", l.dir, "-seed", fmt.Sprint(l.seed), "-write", fmt.Sprint(round), "-budget", fmt.Sprint(l.budget))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(l.seed, 1<<32+round))
	kill := func() { _ = cmd.Process.Kill() }
	wait := time.Duration(r.IntN(120_000)) * time.Microsecond
	starting := r.IntN(8) == 0
	if starting {
		defer time.AfterFunc(wait/4, kill).Stop()
	}
	var lines []string
	in := bufio.NewReader(stdout)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break // the line that was cut off is not one
		}
		if lines = append(lines, line); line == "open\n" {
			if l.opened++; !starting {
				defer time.AfterFunc(wait, kill).Stop()
			}
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.Exited() {
		return nil, fmt.Errorf("the writer ended by itself: %w\n%s", err, &stderr)
	}
	return lines, nil
}

// look reads every page there is.
func (l *loop) look(s *disk.Store) error {
	got, want := make([]byte, layout.PageBytes), make([]byte, layout.PageBytes)
	for i := range sequences {
		pages := sequence(i)
		h := s.Find(pages, false)
		n := h.Len()
		for _, p := range pages[:n] {
			exact, err := s.Read(context.Background(), p, got)
			if errors.Is(err, disk.ErrMissing) {
				n = min(n, int(p.At)) // torn: it must be the only one
				break
			} else if err != nil {
				return err
			}
			p.Exact = exact
			if fill(&p, want); !bytes.Equal(got, want) {
				return fmt.Errorf("page %d of sequence %d is not what was written", p.At, i)
			}
			l.read++
		}
		h.Release()
		if l.whole && n < l.least[i] {
			return fmt.Errorf("sequence %d has %d pages; %d were on disk before the kill", i, n, l.least[i])
		}
		l.kept += min(n, l.least[i])
	}
	return nil
}
