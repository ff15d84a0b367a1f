package residency

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Map maps the first size bytes of f for reading. huge asks for huge pages: the address is then a multiple of theirs,
// since only so can a huge page of the page cache be entered in the page tables as one.
func Map(f *os.File, size int, huge bool) ([]byte, error) {
	var at unsafe.Pointer
	flags := unix.MAP_SHARED
	if huge && size >= HugePage {
		room, err := unix.MmapPtr(-1, 0, nil, uintptr(size)+HugePage, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return nil, err
		}
		before := -uintptr(room) % HugePage
		at = unsafe.Add(room, before)
		// The ends go back; the middle is replaced by the file.
		end := (before + uintptr(size) + uintptr(pageSize) - 1) / uintptr(pageSize) * uintptr(pageSize)
		if before > 0 {
			_ = unix.MunmapPtr(room, before)
		}
		if rest := uintptr(size) + HugePage; end < rest {
			_ = unix.MunmapPtr(unsafe.Add(room, end), rest-end)
		}
		flags |= unix.MAP_FIXED
	}
	p, err := unix.MmapPtr(int(f.Fd()), 0, at, uintptr(size), unix.PROT_READ, flags)
	if err != nil {
		if at != nil {
			_ = unix.MunmapPtr(at, uintptr(size))
		}
		return nil, err
	}
	b := unsafe.Slice((*byte)(p), size)
	if huge {
		ReadHuge(b)
	}
	return b, nil
}

// Unmap undoes Map.
func Unmap(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}
