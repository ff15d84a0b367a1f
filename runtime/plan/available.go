package plan

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Available is the memory that this process can have without swapping: MemAvailable, or what the tightest control
// group (v1 or v2) above the process leaves, caches of files counted as free. 0 = unknown. root is the system's "/".
func Available(root fs.FS) int64 {
	least := memAvailable(root)
	for _, g := range groups(root) {
		if room, limited := g.room(root); limited && (least == 0 || room < least) {
			least = max(room, 1)
		}
	}
	return least
}

func memAvailable(root fs.FS) int64 {
	b, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var kb int64
		if n, _ := fmt.Sscanf(s.Text(), "MemAvailable: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	return 0
}

// ControlGroup is a directory below root's control group file system. V2 tells which version names its files.
type ControlGroup struct {
	Dir string
	V2  bool
}

// ControlGroups lists the groups of this process that limit a resource ("memory", "cpu", "pids"), each with its parents.
// In a container the path of the host may not exist below the mount: then only the mount itself does.
func ControlGroups(root fs.FS, resource string) (out []ControlGroup) {
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		part := strings.SplitN(s.Text(), ":", 3)
		if len(part) != 3 {
			continue
		}
		v2, mounts := part[1] == "" && part[0] == "0", []string{}
		switch {
		case v2:
			mounts = []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}
		case strings.Contains(","+part[1]+",", ","+resource+","):
			mounts = []string{"sys/fs/cgroup/" + resource}
		}
		for _, mount := range mounts {
			for below := path.Clean("/" + part[2]); ; below = path.Dir(below) {
				out = append(out, ControlGroup{path.Join(mount, below), v2})
				if below == "/" {
					break
				}
			}
		}
	}
	return out
}

// group is one that limits memory, with the names that its version gives its files.
type group struct{ dir, limit, usage, cache string }

func groups(root fs.FS) (out []group) {
	for _, g := range ControlGroups(root, "memory") {
		if g.V2 {
			out = append(out, group{g.Dir, "memory.max", "memory.current", "inactive_file"})
		} else {
			out = append(out, group{g.Dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"})
		}
	}
	return out
}

// room is what the group leaves of its limit; limited is false without one.
func (g group) room(root fs.FS) (room int64, limited bool) {
	limit, ok := number(root, path.Join(g.dir, g.limit))
	if !ok || limit >= 1<<60 { // "max", or the largest page count of v1
		return 0, false
	}
	used, ok := number(root, path.Join(g.dir, g.usage))
	if !ok {
		return 0, false
	}
	return limit - used + g.cached(root), true
}

// cached is file cache that the group would give back.
func (g group) cached(root fs.FS) (sum int64) {
	b, err := fs.ReadFile(root, path.Join(g.dir, "memory.stat"))
	if err != nil {
		return 0
	}
	active := strings.Replace(g.cache, "inactive", "active", 1)
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		if name == g.cache || name == active {
			n, _ := strconv.ParseInt(value, 10, 64)
			sum += n
		}
	}
	return sum
}

func number(root fs.FS, name string) (int64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}
