package checkpoint

import (
	"fmt"
	"strings"
)

// DType is a safetensors element type.
type DType uint8

// Types in the order in which the safetensors library ranks them: a writer that follows it sorts
// tensors by descending rank and then by name, which keeps every tensor aligned.
const (
	I8     DType = iota // packed FP4 in this model: two codes a byte, low nibble first
	U8                  //
	F8E4M3              // OCP e4m3fn
	F8E8M0              // power-of-two scale, 2^(byte-127)
	F16                 //
	BF16                //
	I32                 //
	F32                 //
	F64                 //
	I64                 //
	numDTypes
)

var dtypes = [numDTypes]struct {
	name string
	size int64
}{
	I8: {"I8", 1}, U8: {"U8", 1}, F8E4M3: {"F8_E4M3", 1}, F8E8M0: {"F8_E8M0", 1}, F16: {"F16", 2},
	BF16: {"BF16", 2}, I32: {"I32", 4}, F32: {"F32", 4}, F64: {"F64", 8}, I64: {"I64", 8},
}

// String returns the name used in safetensors headers.
func (d DType) String() string {
	if d >= numDTypes {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Size is the number of bytes of an element.
func (d DType) Size() int64 { return dtypes[d].size }

func parseDType(name []byte) (DType, bool) {
	for d := range dtypes {
		if string(name) == dtypes[d].name {
			return DType(d), true
		}
	}
	return 0, false
}

// DTypes is a set of element types.
type DTypes uint16

func setOf(ds ...DType) DTypes {
	var s DTypes
	for _, d := range ds {
		s |= 1 << d
	}
	return s
}

// Has reports whether d is in the set.
func (s DTypes) Has(d DType) bool { return s>>d&1 != 0 }

func (s DTypes) String() string {
	var names []string
	for d := range numDTypes {
		if s.Has(d) {
			names = append(names, d.String())
		}
	}
	return strings.Join(names, " or ")
}
