package disk

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// formatVersion changes with the layout of files and with what a Hash covers.
const formatVersion = 1

const (
	segmentHeader = 4096
	recordHeader  = 512
	recordSummed  = 504 // bytes 8..504 of a record header are under its checksum; its time of use comes after them
	minSlots      = 16  // of a segment
	maxSlots      = 1 << 16
	maxPageBytes  = 1 << 28
)

const (
	segmentMagic = 0x73766b646563 // "cedkvs"
	recordMagic  = 0x70766b63     // "ckvp"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// record is the header of a page on disk.
type record struct {
	Page
	seq     uint64 // when it was written; grows
	used    uint64 // when it was last used; on the same scale
	payload uint32 // checksum
}

var errEmpty = errors.New("no record")

// encode writes the header into b, of recordHeader bytes.
func (r *record) encode(b []byte) {
	clear(b)
	le := binary.LittleEndian
	le.PutUint32(b, recordMagic)
	copy(b[8:], r.Hash[:])
	copy(b[40:], r.Parent[:])
	copy(b[72:], r.Pictures[:])
	for i, id := range r.Tokens {
		le.PutUint32(b[104+4*i:], uint32(id))
	}
	le.PutUint64(b[360:], r.seq)
	le.PutUint32(b[368:], r.payload)
	if r.Exact {
		b[372] = 1
	}
	le.PutUint32(b[376:], uint32(r.At))
	le.PutUint32(b[4:], checksum(b[8:recordSummed]))
	le.PutUint64(b[recordSummed:], r.used)
}

// decode reads what encode wrote: errEmpty for a blank header, another error for one that cannot be right.
func (r *record) decode(b []byte) error {
	if len(b) != recordHeader {
		return fmt.Errorf("record header has %d bytes, not %d", len(b), recordHeader)
	}
	le := binary.LittleEndian
	if le.Uint32(b) == 0 && le.Uint32(b[4:]) == 0 {
		return errEmpty
	}
	if le.Uint32(b) != recordMagic || le.Uint32(b[4:]) != checksum(b[8:recordSummed]) {
		return errors.New("record header fails its checksum")
	}
	copy(r.Hash[:], b[8:])
	copy(r.Parent[:], b[40:])
	copy(r.Pictures[:], b[72:])
	for i := range r.Tokens {
		r.Tokens[i] = int32(le.Uint32(b[104+4*i:]))
	}
	r.seq = le.Uint64(b[360:])
	r.payload = le.Uint32(b[368:])
	r.Exact = b[372] == 1
	r.At = int32(le.Uint32(b[376:]))
	if b[372] > 1 {
		return fmt.Errorf("record has provenance %d", b[372])
	}
	if r.Hash != r.name() {
		return errors.New("record's name is not that of its tokens")
	}
	// A time of use is a hint; one that cannot be is the time of writing.
	if r.used = le.Uint64(b[recordSummed:]); r.used < r.seq || r.used > 1<<62 {
		r.used = r.seq
	}
	return nil
}

// Identity says whose pages a store holds; pages of another identity are never loaded.
type Identity struct {
	Model    string // digest of the weights
	Config   string // of the configuration that the forward pass follows
	Numerics string // profile under which two runs have the same bits
}

// geometry is what a segment's header says.
type geometry struct {
	identity  Hash
	pageBytes int
	slots     int
}

// sum is the identity of a store of pages of so many bytes.
func (id Identity) sum(pageBytes int) Hash {
	return sha256.Sum256(fmt.Appendf(nil, "cedrun kv store %d\x00%q %q %q %d", formatVersion, id.Model, id.Config, id.Numerics, pageBytes))
}

func (g *geometry) stride() int64 { return (int64(g.pageBytes) + 511) &^ 511 }

func (g *geometry) header(slot int) int64 { return segmentHeader + int64(slot)*recordHeader }

func (g *geometry) payload(slot int) int64 { return g.header(g.slots) + int64(slot)*g.stride() }

func (g *geometry) encode() []byte {
	b := make([]byte, segmentHeader)
	le := binary.LittleEndian
	le.PutUint64(b, segmentMagic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[16:], uint32(g.pageBytes))
	le.PutUint32(b[20:], uint32(g.slots))
	copy(b[24:], g.identity[:])
	le.PutUint32(b[12:], checksum(b[16:]))
	return b
}

var errForeign = errors.New("of another model, configuration, numeric profile or format")

// decode reads a segment's header: errForeign if it is not of the identity in g.
func (g *geometry) decode(b []byte) error {
	le := binary.LittleEndian
	switch {
	case len(b) != segmentHeader || le.Uint64(b) != segmentMagic:
		return errors.New("not a segment of KV pages")
	case le.Uint32(b[8:]) != formatVersion:
		return errForeign
	case le.Uint32(b[12:]) != checksum(b[16:]):
		return errors.New("segment header fails its checksum")
	case Hash(b[24:56]) != g.identity:
		return errForeign
	case int(le.Uint32(b[16:])) != g.pageBytes:
		return fmt.Errorf("segment has pages of %d bytes, not %d", le.Uint32(b[16:]), g.pageBytes)
	case le.Uint32(b[20:]) == 0 || le.Uint32(b[20:]) > maxSlots:
		return fmt.Errorf("segment has %d slots", le.Uint32(b[20:]))
	}
	g.slots = int(le.Uint32(b[20:]))
	return nil
}
