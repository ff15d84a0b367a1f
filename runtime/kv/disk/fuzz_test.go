package disk

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func FuzzRecord(f *testing.F) {
	for _, p := range chain("a", 2) {
		b := make([]byte, recordHeader)
		(&record{Page: p, seq: 1, used: 2, payload: 3}).encode(b)
		f.Add(b, true)
		p.Exact = false
		(&record{Page: p, seq: 1 << 62, used: 1 << 63}).encode(b)
		f.Add(bytes.Clone(b), false)
	}
	f.Add(make([]byte, recordHeader), false)
	f.Add([]byte{1}, false)
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		b = bytes.Clone(b)
		if mend && len(b) == recordHeader {
			mendRecord(b)
		}
		var r, again record
		if r.decode(b) != nil {
			return
		}
		out := make([]byte, recordHeader)
		r.encode(out)
		if err := again.decode(out); err != nil || again != r {
			t.Fatalf("a record is not what was read: %v", err)
		}
		if r.used < r.seq {
			t.Fatal("used before it was written")
		}
	})
}

// mendRecord makes name and checksum right, so that a search comes past them.
func mendRecord(b []byte) {
	binary.LittleEndian.PutUint32(b, recordMagic)
	var r record
	copy(r.Parent[:], b[40:])
	copy(r.Pictures[:], b[72:])
	for i := range r.Tokens {
		r.Tokens[i] = int32(binary.LittleEndian.Uint32(b[104+4*i:]))
	}
	r.At = int32(binary.LittleEndian.Uint32(b[376:]))
	r.Hash = r.name()
	copy(b[8:], r.Hash[:])
	binary.LittleEndian.PutUint32(b[4:], checksum(b[8:recordSummed]))
}

// FuzzSegment gives a store a file of any bytes: what it serves from there was written, and it works on.
func FuzzSegment(f *testing.F) {
	d := open(f, 20)
	a := chain("a", 3)
	d.put(a...)
	_ = d.Close()
	name, data := d.segment()
	f.Add(data.b, false, uint8(20))
	f.Add(data.b[:len(data.b)-100], true, uint8(1))
	f.Add(data.b[:segmentHeader+recordHeader+20], true, uint8(3))
	f.Add(data.b[:100], true, uint8(3))
	f.Add([]byte{}, false, uint8(3))
	twice := bytes.Clone(data.b)
	copy(twice[segmentHeader+recordHeader:], twice[segmentHeader:segmentHeader+recordHeader])
	f.Add(twice, true, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, mend bool, budget uint8) {
		b = bytes.Clone(b)
		if mend {
			if len(b) >= segmentHeader {
				copy(b, data.b[:16])
				copy(b[24:56], data.b[24:56])
				binary.LittleEndian.PutUint32(b[12:], checksum(b[16:segmentHeader]))
			}
			for at := segmentHeader; at+recordHeader <= min(len(b), segmentHeader+minSlots*recordHeader); at += recordHeader {
				if b[at] != 0 {
					mendRecord(b[at : at+recordHeader])
				}
			}
		}
		d := open(t, 20)
		_ = d.Close()
		d.opt.MaxBytes = bytesFor(int(budget)%40 + 1)
		d.fs.files = map[string]*memData{name: {b}}
		d.open()
		if d.Stats().ForeignFiles == 0 {
			d.check()
		}
		for range 2 {
			d.there(a)
			d.Find(a, true).Release()
			d.Write(a[0], content(a[0]))
			d.Write(a[1], content(a[1]))
			if err := d.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d.get(a[0]) == nil {
				t.Fatalf("a page cannot be written: %+v %q", d.Stats(), d.said)
			}
			d.reopen()
		}
	})
}
