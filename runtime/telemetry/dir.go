package telemetry

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Dir is where the sockets of this user lie: cedrun in $XDG_RUNTIME_DIR, or cedrun-UID in the directory for temporary
// files.
func Dir() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "cedrun")
	}
	return filepath.Join(os.TempDir(), "cedrun-"+strconv.Itoa(os.Getuid()))
}

const suffix = ".sock"

// Path is the socket of a process.
func Path(dir string, pid int) string { return filepath.Join(dir, strconv.Itoa(pid)+suffix) }

// short refuses a path that a socket cannot have.
func short(path string) error {
	if most := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > most {
		return fmt.Errorf("%s has %d bytes and a socket's path may have %d: set XDG_RUNTIME_DIR to a shorter one", path, len(path), most)
	}
	return nil
}

// Endpoint is a socket on which a process listens.
type Endpoint struct {
	PID  int    `json:"pid"`
	Path string `json:"socket"`
}

// Find lists the processes that publish in dir, youngest first, and removes the sockets of those that are gone.
func Find(dir string) ([]Endpoint, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("telemetry: list %s: %w", dir, err)
	}
	type found struct {
		Endpoint
		at time.Time
	}
	var all []found
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		name, _, _ = strings.Cut(name, ".")
		pid, err := strconv.Atoi(name)
		if !ok || err != nil || pid <= 0 {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || info.Mode().Type() != fs.ModeSocket {
			continue
		}
		c, err := net.DialTimeout("unix", path, time.Second)
		if err != nil {
			if stale(err, pid, info.ModTime()) {
				_ = os.Remove(path)
			}
			continue
		}
		_ = c.Close()
		all = append(all, found{Endpoint{pid, path}, info.ModTime()})
	}
	slices.SortFunc(all, func(a, b found) int { return b.at.Compare(a.at) })
	out := make([]Endpoint, len(all))
	for i, f := range all {
		out[i] = f.Endpoint
	}
	return out, nil
}

// stale reports whether nobody will listen on a socket any more. Between its birth and its first listen it refuses too.
func stale(err error, pid int, born time.Time) bool {
	return errors.Is(err, syscall.ECONNREFUSED) &&
		(errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || time.Since(born) > 10*time.Second)
}

// prepare makes dir, or insists that what is there is the user's own and closed to others.
func prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a directory of this user: remove it, or set XDG_RUNTIME_DIR", dir)
	}
	if info.Mode().Perm() != 0o700 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}
