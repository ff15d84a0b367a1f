package gpu

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// systemMemory is the account of /proc/meminfo; nil where there is none.
func systemMemory(root fs.FS) *Memory {
	b, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return nil
	}
	var total, available uint64
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var kb uint64
		if n, _ := fmt.Sscanf(s.Text(), "MemTotal: %d kB", &kb); n == 1 {
			total = kb << 10
		}
		if n, _ := fmt.Sscanf(s.Text(), "MemAvailable: %d kB", &kb); n == 1 {
			available = kb << 10
		}
	}
	if total == 0 {
		return nil
	}
	return &Memory{Total: total, Used: total - min(available, total)}
}

// names maps process ids to what is run. The driver knows processes by their ids of the outermost namespace, so inside
// another one nothing can be said.
func names(root fs.FS) map[int]string {
	out := map[int]string{}
	if ns, err := fs.ReadLink(root, "proc/self/ns/pid"); err == nil && ns != "pid:[4026531836]" { // PROC_PID_INIT_INO
		return out
	}
	dirs, err := fs.ReadDir(root, "proc")
	if err != nil {
		return out
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		if b, err := fs.ReadFile(root, "proc/"+d.Name()+"/comm"); err == nil { // else it ended meanwhile
			out[pid] = strings.TrimSpace(string(b))
		}
	}
	return out
}
