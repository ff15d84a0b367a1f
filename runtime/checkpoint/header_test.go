package checkpoint

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// file wraps a JSON header and n bytes of data as a safetensors file.
func file(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

func keep(name []byte) string { return string(name) }

func TestHeader(t *testing.T) {
	data := file(`{"__metadata__":{"format":"pt"}, "b": {"shape": [2, 3], "dtype": "BF16", "data_offsets": [4, 16]},
		"a\u0301\"": {"dtype":"F32","shape":[],"data_offsets":[0,4]}, "none":{"dtype":"I64","shape":[0,7],"data_offsets":[16,16]}}   `, 16)
	got, err := readHeader(bytes.NewReader(data), int64(len(data)), keep)
	if err != nil {
		t.Fatal(err)
	}
	start := int64(len(data)) - 16
	want := []Tensor{
		{Name: "a\u0301\"", DType: F32, Shape: []int64{}, Offset: start, Size: 4},
		{Name: "b", DType: BF16, Shape: []int64{2, 3}, Offset: start + 4, Size: 12},
		{Name: "none", DType: I64, Shape: []int64{0, 7}, Offset: start + 16},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b []int64) bool { return cmp.Equal(append([]int64{}, a...), append([]int64{}, b...)) })); diff != "" {
		t.Error(diff)
	}
}

func TestBadHeaderIsRefused(t *testing.T) {
	u8 := func(name, shape, offsets string) string {
		return `"` + name + `":{"dtype":"U8","shape":` + shape + `,"data_offsets":` + offsets + `}`
	}
	for _, tt := range []struct {
		name, header string
		data         int
		want         string
	}{
		{"unknown dtype", `{"w":{"dtype":"F4_E3M0","shape":[1],"data_offsets":[0,1]}}`, 1, `tensor w: dtype "F4_E3M0" is not supported`},
		{"size differs from shape", "{" + u8("w", "[3]", "[0,2]") + "}", 2, "tensor w: data_offsets [0,2] do not fit U8 [3], which takes 3 bytes"},
		{"offsets reversed", "{" + u8("w", "[2]", "[2,0]") + "}", 2, "tensor w: data_offsets [2,0]"},
		{"overlap", "{" + u8("a", "[4]", "[0,4]") + "," + u8("b", "[4]", "[2,6]") + "}", 6, "tensor b overlaps the one before it"},
		{"same range", "{" + u8("a", "[4]", "[0,4]") + "," + u8("b", "[4]", "[0,4]") + "}", 4, "tensor b overlaps the one before it"},
		{"hole", "{" + u8("a", "[4]", "[0,4]") + "," + u8("b", "[4]", "[5,9]") + "}", 9, "1 bytes before tensor b belong to no tensor"},
		{"hole at the start", "{" + u8("a", "[4]", "[1,5]") + "}", 5, "1 bytes before tensor a"},
		{"shape overflows", "{" + u8("w", "[4294967296,4294967296]", "[0,0]") + "}", 0, "overflows"},
		{"shape overflows to zero bytes", `{"w":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}}`, 0, "overflows"},
		{"number beyond 63 bits", "{" + u8("w", "[1]", "[0,99999999999999999999]") + "}", 1, "number does not fit 63 bits"},
		{"negative shape", "{" + u8("w", "[-1]", "[0,1]") + "}", 1, "expected a non-negative integer"},
		{"fractional shape", "{" + u8("w", "[1.0]", "[0,1]") + "}", 1, "expected an integer, not a fraction"},
		{"leading zero", "{" + u8("w", "[01]", "[0,1]") + "}", 1, "expected a non-negative integer"},
		{"too many dimensions", "{" + u8("w", "[1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", 1, "more than 8 dimensions"},
		{"one offset", "{" + u8("w", "[1]", "[0]") + "}", 1, "fewer than two data_offsets"},
		{"three offsets", "{" + u8("w", "[1]", "[0,1,2]") + "}", 1, "more than two data_offsets"},
		{"no dtype", `{"w":{"shape":[1],"data_offsets":[0,1]}}`, 1, "tensor w: dtype is missing"},
		{"no shape", `{"w":{"dtype":"U8","data_offsets":[0,1]}}`, 1, "tensor w: shape is missing"},
		{"no offsets", `{"w":{"dtype":"U8","shape":[1]}}`, 1, "tensor w: data_offsets is missing"},
		{"dtype twice", `{"w":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, 1, "dtype occurs twice"},
		{"unknown key", `{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}`, 1, `unknown key "x"`},
		{"metadata twice", `{"__metadata__":{},"__metadata__":{}}`, 0, "__metadata__ occurs twice"},
		{"deep metadata", `{"__metadata__":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + "}", 0, "nested too deep"},
		{"leading space", ` {}`, 0, "' ' instead of '{'"},
		{"array", `[]`, 0, "'[' instead of '{'"},
		{"cut off", `{"w":{"dtype":"U8"`, 0, "expected ',' or '}'"},
		{"trailing comma", `{` + u8("w", "[1]", "[0,1]") + `,}`, 1, `'}' instead of '"'`},
		{"data after the object", `{}{}`, 0, "data after the JSON object"},
		{"zero bytes after the object", "{}\x00\x00", 0, "data after the JSON object"},
		{"not UTF-8", "{\"\xff\":{}}", 0, "string is not UTF-8"},
		{"control character", "{\"\n\":{}}", 0, "control character"},
		{"unfinished string", `{"w`, 0, "JSON ends inside a string"},
		{"unfinished escape", `{"w\`, 0, "JSON ends inside a string"},
		{"bad escape", `{"\x":{}}`, 0, "bad escape"},
		{"data beyond any file", `{"w":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}}`, 0, "ends beyond any file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := file(tt.header, tt.data)
			_, err := readHeader(bytes.NewReader(data), int64(len(data)), keep)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not contain %q", err, tt.want)
			}
		})
	}
}

func TestHeaderLongerThanTheFormatAllowsIsRefusedUnread(t *testing.T) {
	data := binary.LittleEndian.AppendUint64(nil, maxHeader+1)
	_, err := readHeader(bytes.NewReader(data), 1<<40, keep)
	if err == nil || !strings.Contains(err.Error(), "header length 104857601 is outside") {
		t.Error(err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2))
	f.Add(file(`{"__metadata__":{"a":"b"},"x":{"dtype":"BF16","shape":[0,1],"data_offsets":[0,0]}} `, 0))
	f.Add([]byte("version https://git-lfs.github.com/spec/v1\n"))
	if data, err := os.ReadFile(filepath.Join(miniDir("base"), "golden_numpy.safetensors")); err == nil {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := readHeader(bytes.NewReader(data), int64(len(data)), keep)
		if err != nil {
			return
		}
		end := int64(8 + binary.LittleEndian.Uint64(data))
		for i := range tensors {
			x := &tensors[i]
			if size, ok := byteSize(x.DType, x.Shape); !ok || size != x.Size || x.Offset != end {
				t.Fatalf("tensor %+v after %d", x, end)
			}
			end += x.Size
		}
		if end != int64(len(data)) {
			t.Fatalf("tensors end at %d of %d", end, len(data))
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":12},"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"model.layers.0.mlp.w":"a"},"x":[1,{"y":null}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := parseIndex(data)
		if err != nil {
			return
		}
		if len(x.names) != len(x.shardOf) || len(x.names) != len(x.id) {
			t.Fatalf("%d names, %d shards, %d ids", len(x.names), len(x.shardOf), len(x.id))
		}
		for i, s := range x.shardOf {
			if int(s) >= len(x.shards) || x.id[x.names[i]] != int32(i) {
				t.Fatalf("name %d in shard %d of %d", i, s, len(x.shards))
			}
		}
		for _, s := range x.shards {
			if !filepath.IsLocal(s) || strings.ContainsAny(s, `/\`) {
				t.Fatalf("shard %q leaves the directory", s)
			}
		}
	})
}
