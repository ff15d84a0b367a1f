package verify

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Digests are the SHA-256 that files must have, by name below the checkpoint's directory.
type Digests struct {
	source string
	names  []string // in order of appearance
	hex    map[string]string
}

var (
	gnuLine  = regexp.MustCompile(`^([0-9A-Fa-f]{64}) [ *](.+)$`)
	bsdLine  = regexp.MustCompile(`^SHA256 \((.+)\) = ([0-9A-Fa-f]{64})$`)
	bareLine = regexp.MustCompile(`^[0-9A-Fa-f]{64}$`)
)

// ParseDigests reads a list in the format of sha256sum, plain or --tag, or, from a file NAME.sha256, the digest of NAME
// alone. source is the list's file name.
func ParseDigests(source string, data []byte) (*Digests, error) {
	d := &Digests{source: source, hex: map[string]string{}}
	number := 0
	for text := range bytes.Lines(data) {
		number++
		line := strings.TrimRight(string(text), "\r\n")
		var name, sum string
		if m := gnuLine.FindStringSubmatch(line); m != nil {
			sum, name = m[1], m[2]
		} else if m := bsdLine.FindStringSubmatch(line); m != nil {
			name, sum = m[1], m[2]
		} else if base, ok := strings.CutSuffix(filepath.Base(source), ".sha256"); ok && bareLine.MatchString(line) {
			name, sum = base, line
		} else if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		} else {
			return nil, fmt.Errorf("%s, line %d: expected 64 hexadecimal digits, two spaces and a file name, as sha256sum writes them", source, number)
		}
		name = path.Clean(name)
		if !filepath.IsLocal(name) || name == "." {
			return nil, fmt.Errorf("%s, line %d: %q lies outside the checkpoint's directory", source, number, name)
		}
		if err := d.add(name, sum); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", source, number, err)
		}
	}
	if len(d.names) == 0 {
		return nil, fmt.Errorf("%s lists no digest", source)
	}
	return d, nil
}

func (d *Digests) add(name, sum string) error {
	sum = strings.ToLower(sum)
	if have, ok := d.hex[name]; ok {
		if have != sum {
			return fmt.Errorf("a second, different digest of %s", name)
		}
		return nil
	}
	d.names = append(d.names, name)
	d.hex[name] = sum
	return nil
}

func (d *Digests) has(name string) bool {
	return d != nil && d.hex[name] != ""
}

// noted gathers what the Hugging Face client wrote beside files that it downloaded to this directory: the commit, the
// ETag, which is the SHA-256 of large files, and the time. nil if there is nothing.
func noted(fsys fs.FS, names []string) *Digests {
	d := &Digests{source: "the download's own record", hex: map[string]string{}}
	for _, name := range names {
		data, err := fs.ReadFile(fsys, ".cache/huggingface/download/"+name+".metadata")
		if err != nil {
			continue
		}
		lines := strings.Split(string(data), "\n")
		if len(lines) < 2 {
			continue
		}
		etag := strings.TrimSpace(lines[1])
		if raw, err := hex.DecodeString(etag); err == nil && len(raw) == 32 {
			_ = d.add(name, etag) // names differ
		}
	}
	if len(d.names) == 0 {
		return nil
	}
	return d
}
