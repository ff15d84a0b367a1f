package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
)

// resident is the memory of this process that is in RAM: its own, and mapped files.
type resident struct{ anonymous, file int64 }

// readResident reads Linux's account; zero elsewhere.
func readResident() (r resident) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return r
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var kb int64
		if n, _ := fmt.Sscanf(s.Text(), "RssAnon: %d kB", &kb); n == 1 {
			r.anonymous = kb << 10
		}
		if n, _ := fmt.Sscanf(s.Text(), "RssFile: %d kB", &kb); n == 1 {
			r.file = kb << 10
		}
	}
	return r
}
