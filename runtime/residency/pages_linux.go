package residency

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inCore asks about the pages of b; state has a byte for each.
func inCore(b, state []byte) bool {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(unsafe.Pointer(unsafe.SliceData(state))))
	if errno != 0 {
		return true // what cannot be asked about is left alone
	}
	for _, s := range state[:len(b)/pageSize] {
		if s&1 == 0 {
			return false
		}
	}
	return true
}

func willNeed(b []byte) { _ = unix.Madvise(b, unix.MADV_WILLNEED) }

func populate(b []byte) error {
	for {
		switch err := unix.Madvise(b, unix.MADV_POPULATE_READ); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.EINVAL): // before Linux 5.14
			touch(b)
			return nil
		default:
			return fmt.Errorf("read %d bytes into memory: %w", len(b), err)
		}
	}
}

// Lock keeps the pages of b in memory, reading those that are not.
func Lock(b []byte) error {
	p := pages(b)
	if len(p) == 0 {
		return nil
	}
	return unix.Mlock(p)
}

// LockLimit is how many bytes this process may lock; -1 = any number.
func LockLimit() int64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil || l.Cur >= 1<<62 {
		return -1
	}
	return int64(l.Cur)
}

// HugePages asks for huge pages behind the whole huge pages within n bytes at addr, which must be anonymous memory.
func HugePages(addr uintptr, n int) error {
	first := (addr + HugePage - 1) / HugePage * HugePage
	end := (addr + uintptr(n)) / HugePage * HugePage
	if end <= first {
		return nil
	}
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, first, end-first, unix.MADV_HUGEPAGE); errno != 0 {
		return errno
	}
	return nil
}

// ReadHuge asks for mapped files to be read in huge pages. What is in memory in small ones stays so.
func ReadHuge(b []byte) { _ = unix.Madvise(pages(b), unix.MADV_HUGEPAGE) }

// ReadRows says that b, of a mapped file, is read by rows: the kernel would otherwise read 128 KiB, or with huge pages
// some MiB, for a row of 256 bytes.
func ReadRows(b []byte) {
	if p := pages(b); len(p) > 0 {
		_ = unix.Madvise(p, unix.MADV_NOHUGEPAGE)
		_ = unix.Madvise(p, unix.MADV_RANDOM)
	}
}

// HugePagesOff says why the system gives no huge pages on request; empty if it does. root is the system's "/".
func HugePagesOff(root fs.FS) string {
	const name = "sys/kernel/mm/transparent_hugepage/enabled"
	b, err := fs.ReadFile(root, name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "this kernel has no transparent huge pages"
	case err != nil:
		return err.Error()
	case strings.Contains(string(b), "[never]"):
		return "/" + name + " says never"
	}
	return ""
}
