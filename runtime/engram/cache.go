package engram

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
)

// Cache keeps derived token maps in a directory, keyed by the digest of tokenizer.json. It only saves time: a file that
// cannot be read, written or trusted is passed over.
type Cache struct{ dir string }

// NewCache returns a cache in dir, which is created when something is first stored.
func NewCache(dir string) *Cache { return &Cache{dir: dir} }

// cacheRule changes whenever the rule behind DeriveTokenMap does.
const cacheRule = "cedrun engram token map 1\n"

// tokenMap returns the map of v, whose tokenizer.json has the digest key. A nil cache derives it each time.
func (c *Cache) tokenMap(key [sha256.Size]byte, v Vocabulary) []int32 {
	if c == nil {
		m, _ := DeriveTokenMap(v)
		return m
	}
	path := filepath.Join(c.dir, "engram-"+hex.EncodeToString(key[:])+".map")
	if b, err := os.ReadFile(path); err == nil {
		if m, ok := decodeMap(b, v.VocabSize()); ok {
			return m
		}
	}
	m, _ := DeriveTokenMap(v)
	store(path, encodeMap(m))
	return m
}

// encodeMap writes the rule, the ids as u32 little-endian, and a SHA-256 of both.
func encodeMap(m []int32) []byte {
	b := []byte(cacheRule)
	for _, c := range m {
		b = binary.LittleEndian.AppendUint32(b, uint32(c))
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func decodeMap(b []byte, size int) ([]int32, bool) {
	if len(b) != len(cacheRule)+4*size+sha256.Size || !bytes.HasPrefix(b, []byte(cacheRule)) {
		return nil, false
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if want := sha256.Sum256(body); !bytes.Equal(sum, want[:]) {
		return nil, false
	}
	m := make([]int32, size)
	for i := range m {
		m[i] = int32(binary.LittleEndian.Uint32(body[len(cacheRule)+4*i:]))
	}
	return m, true
}

// store replaces the file at path in one step, so that a reader never sees half of it.
func store(path string, b []byte) {
	if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".engram-*")
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
}
