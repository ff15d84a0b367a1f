package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/plan"
	"cedrun/runtime/serve/job"
)

// groupCache are the flags of the KV cache.
const groupCache = "KV cache"

func kvFlags() []cli.Flag {
	return []cli.Flag{
		stringFlag(groupCache, "cache", string(job.CacheSnapshot), "begin prompts on what earlier ones left, as `MODE` says: snapshot (with the text of a cold run), replay (runs the last window again: faster, and the text may depend on what was cached) or off"),
		withDefault(stringFlag(groupCache, "kv-device", "", "`SIZE` of KV pages in the back end's memory, as in 4GiB"), "room for --max-batch x --context; on a GPU 1/16 of its free memory more, at most 4GiB"),
		withDefault(stringFlag(groupCache, "kv-host", "", "`SIZE` of the cache in host memory: one half for snapshots, the other for pages; with a GPU all for snapshots"), "1/16 of free memory, at most 4GiB"),
		durationFlag(groupCache, "snapshot-time", time.Hour, "", "drop snapshots that were not used for `TIME`; 0 = only when others need the room"),
		withDefault(stringFlag(groupCache, "kv-disk", "", "keep pages of up to `SIZE` on disk too, for later and for after a restart; 0 = none"), "none; 16GiB with --kv-dir"),
		withDefault(stringFlag(groupCache, "kv-dir", "", "keep pages on disk in `DIR`, which one server uses at a time"), "cedrun/kv in the user's cache directory"),
	}
}

// checkKV refuses sizes that are none before a model is read.
func checkKV(c *cli.Context) error {
	for _, name := range []string{"kv-device", "kv-host", "kv-disk"} {
		if _, err := sizeFlag(c, name, 0); err != nil {
			return err
		}
	}
	return nil
}

// sizeFlag is the number of bytes that a flag says; 0 is a size here.
func sizeFlag(c *cli.Context, name string, unset int64) (int64, error) {
	switch text := c.String(name); text {
	case "":
		return unset, nil
	case "0":
		return 0, nil
	default:
		n, err := plan.ParseSize(text)
		if err != nil {
			return 0, fmt.Errorf("--%s: %w", name, err)
		}
		return n, nil
	}
}

// readKV fills in how large the parts of the KV cache are. The memory of the CPU back end is the host's, so that pages of
// both tiers lie together there; a device has all pages, and the host snapshots only.
func (s *server) readKV(f *engine.Files) error {
	s.setup.NoGraphs = s.noGraphs
	s.setup = s.placed(f, s.setup)
	host, err := sizeFlag(s.c, "kv-host", s.unasked(plan.DefaultCache(plan.Available(os.DirFS("/")))))
	if err != nil {
		return err
	}
	cache := plan.HostCache(host, s.c.IsSet("kv-host"))
	if s.setup.Backend == ced.CUDA {
		d, err := ced.DeviceInfo(s.device)
		if err != nil {
			return err
		}
		cache = plan.DeviceCache(host, s.unasked(d.Free), s.c.IsSet("kv-host"))
		if s.c.IsSet("kv-device") {
			cache.Pages = 0
		}
	}
	tokens := plan.TextTokens(s.setup.Slots, s.setup.Context)
	if s.c.IsSet("kv-device") && plan.KVGrows(f.Config) {
		device, err := sizeFlag(s.c, "kv-device", 0)
		if err != nil {
			return err
		}
		tokens = plan.TokensIn(f.Config, device)
		if least := s.setup.Context; tokens < least {
			return fmt.Errorf("--kv-device %s holds %d tokens, less than the context of %d: give %s or more, or a smaller --context",
				s.c.String("kv-device"), tokens, least, plan.GB(plan.TokenBytes(f.Config, least)))
		}
	}
	with := func(x plan.Cache) engine.Setup {
		setup := s.setup
		setup.KVTokens, setup.Snapshots = tokens+plan.TokensIn(f.Config, x.Pages), int(x.Snapshots)
		return setup
	}
	fits := func(held func(engine.Setup) bool) func(plan.Cache) bool {
		return func(x plan.Cache) bool {
			setup := with(x)
			setup.Device, setup.ExpertBytes, setup.HostExperts = s.device, int(s.expertMemory), s.hostExperts
			return held(setup)
		}
	}
	s.setup = with(cache.Shrink(fits(f.FitsDevice), fits(f.FitsHost)))
	s.setup.SnapshotTTL = s.c.Duration("snapshot-time")
	return s.readDisk()
}

// unasked is what free memory counts for a cache that no flag asks for.
func (s *server) unasked(free int64) int64 {
	if s.defaults.Cache == job.CacheOff {
		return 0
	}
	return free
}

// readDisk reads where pages are kept on disk.
func (s *server) readDisk() error {
	dir, size := s.c.String("kv-dir"), s.c.String("kv-disk")
	if size == "0" || dir == "" && size == "" || s.defaults.Cache == job.CacheOff && size == "" {
		return nil
	}
	s.setup.KVDisk = 16 << 30
	if size != "" {
		var err error
		if s.setup.KVDisk, err = plan.ParseSize(size); err != nil {
			return fmt.Errorf("--kv-disk: %w", err)
		}
	}
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("--kv-disk: there is no cache directory for this user (%w): give --kv-dir", err)
		}
		dir = filepath.Join(user, "cedrun", "kv")
	}
	s.setup.KVDir = dir
	s.setup.Warn = func(text string) { s.log.Warn().Msg(text) }
	return nil
}
