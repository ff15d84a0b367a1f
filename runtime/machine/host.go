package machine

import (
	"fmt"
	"unsafe"
)

// hostWork stands for what the forward pass does on the host for a layer: names, and the arguments of its calls.
func hostWork() error {
	n := 0
	for range 16 {
		n += len(fmt.Sprintf("L%d.%s", 7, "attn_out"))
	}
	if n == 0 {
		return fmt.Errorf("no names")
	}
	return nil
}

// bytesOf views plain data as bytes.
func bytesOf[T any](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), len(v)*int(unsafe.Sizeof(v[0])))
}
