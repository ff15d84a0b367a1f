//go:build !linux

package residency

import (
	"errors"
	"io/fs"
)

func inCore(_, _ []byte) bool { return true }

func willNeed([]byte) {}

func populate(b []byte) error {
	touch(b)
	return nil
}

// Lock keeps the pages of b in memory, reading those that are not.
func Lock([]byte) error { return errors.ErrUnsupported }

// LockLimit is how many bytes this process may lock; -1 = any number.
func LockLimit() int64 { return -1 }

// HugePages asks for huge pages behind the whole huge pages within n bytes at addr, which must be anonymous memory.
func HugePages(uintptr, int) error { return errors.ErrUnsupported }

// ReadHuge asks for mapped files to be read in huge pages. What is in memory in small ones stays so.
func ReadHuge([]byte) {}

// ReadRows says that b, of a mapped file, is read by rows.
func ReadRows([]byte) {}

// HugePagesOff says why the system gives no huge pages on request; empty if it does. root is the system's "/".
func HugePagesOff(fs.FS) string { return "this system has no advice for them" }
