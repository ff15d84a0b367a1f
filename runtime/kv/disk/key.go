package disk

import (
	"crypto/sha256"
	"encoding/binary"

	"cedrun/runtime/kv"
)

// Hash names a page.
type Hash [sha256.Size]byte

// Page is a page's identity: kv.PageTokens tokens after those of its parent.
type Page struct {
	Hash, Parent Hash
	At           int32                // pages before it
	Tokens       [kv.PageTokens]int32 // token ids; -1 in a picture
	Pictures     Hash                 // over the pictures' digests at those positions; zero without any
	Exact        bool                 // Write: the rows have the bits of a cold run. Read: no others will do
}

// First names the first page of a sequence. Salts keep callers apart and may hold secrets: only a hash is stored. A
// negative key is a position of a picture, of which digest, not needed otherwise, tells the content.
func First(salt string, keys *[kv.PageTokens]int32, digest func(key int32) [32]byte) Page {
	return newPage(sha256.Sum256([]byte("cedrun kv root\x00"+salt)), 0, keys, digest)
}

// Next names the page after p.
func (p *Page) Next(keys *[kv.PageTokens]int32, digest func(key int32) [32]byte) Page {
	return newPage(p.Hash, p.At+1, keys, digest)
}

// Chain names the full pages of a sequence, first to last.
func Chain(salt string, keys []int32, digest func(key int32) [32]byte) []Page {
	pages := make([]Page, 0, len(keys)/kv.PageTokens)
	for ; len(keys) >= kv.PageTokens; keys = keys[kv.PageTokens:] {
		next := (*[kv.PageTokens]int32)(keys)
		if n := len(pages); n > 0 {
			pages = append(pages, pages[n-1].Next(next, digest))
		} else {
			pages = append(pages, First(salt, next, digest))
		}
	}
	return pages
}

func newPage(parent Hash, at int32, keys *[kv.PageTokens]int32, digest func(key int32) [32]byte) Page {
	p := Page{Parent: parent, At: at, Tokens: *keys}
	pictures := sha256.New()
	some := false
	for i, k := range keys {
		if k < 0 {
			d := digest(k)
			pictures.Write(d[:])
			p.Tokens[i], some = -1, true
		}
	}
	if some {
		pictures.Sum(p.Pictures[:0])
	}
	p.Hash = p.name()
	return p
}

// name is the hash of all that comes up to the page's end; provenance is not part of it.
func (p *Page) name() Hash {
	b := make([]byte, 0, 2*len(Hash{})+4+4*kv.PageTokens)
	b = append(b, p.Parent[:]...)
	b = append(b, p.Pictures[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(p.At))
	for _, id := range p.Tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return sha256.Sum256(b)
}

// same says whether two pages hold rows of the same tokens.
func (p *Page) same(o *Page) bool {
	return p.Hash == o.Hash && p.Parent == o.Parent && p.At == o.At && p.Tokens == o.Tokens && p.Pictures == o.Pictures
}
