// Command sparse writes a checkpoint of the released geometry and byte counts that takes little disk: small
// tensors hold random values of realistic size, large ones are holes in the file (zero weights with
// scale 2^-127). It serves to test opening, memory use and the shapes of a model that is larger than
// the machine.
//
//	go run ./tools/sparse --out DIR
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sparse:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("out", "", "`directory` to write, created if absent (required)")
	cfgPath := flag.String("config", "testdata/release/config.json", "config.json of the geometry")
	tokenizer := flag.String("tokenizer", "testdata/tokenizer/tokenizer.json", "tokenizer.json to copy, if it exists")
	seed := flag.Uint64("seed", 1, "seed of the small tensors")
	rows := flag.Int64("embed-rows", 1024, "rows of embed.weight with values; the rest is a hole")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		return fmt.Errorf("usage: sparse --out DIR [--config FILE] [--tokenizer FILE] [--seed N] [--embed-rows N]")
	}
	begin := time.Now()
	cfg, err := config.Load(*cfgPath)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	w := writer{dir: *out, seed: *seed, embedRows: *rows}
	shards, err := checkpoint.Layout(cfg)
	if err != nil {
		return err
	}
	tensors := 0
	for _, s := range shards {
		if err := w.shard(s); err != nil {
			return fmt.Errorf("write %s: %w", s.Name, err)
		}
		tensors += len(s.Tensors)
	}
	if err := checkpoint.WriteIndex(*out, shards); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(*out, "config.json"), *cfgPath); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(*out, "tokenizer.json"), *tokenizer); os.IsNotExist(err) {
		fmt.Printf("no %s: the checkpoint has no tokenizer\n", *tokenizer)
	} else if err != nil {
		return err
	}
	written := time.Since(begin)
	used, err := diskUse(*out)
	if err != nil {
		return err
	}
	fmt.Printf("%d shards, %d tensors, %d bytes apparent, %d bytes on disk, %.1f s\n",
		len(shards), tensors, w.apparent, used, written.Seconds())

	begin = time.Now()
	ck, err := checkpoint.Open(*out, checkpoint.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	report, err := ck.Check(cfg)
	if err != nil {
		return err
	}
	fmt.Printf("%s\nopened and checked in %.2f s\n", report, time.Since(begin).Seconds())
	return nil
}

func copyFile(dst, src string) error {
	data, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	return os.WriteFile(dst, data, 0o644)
}
