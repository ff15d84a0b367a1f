package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var units = map[string]float64{
	"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// ParseSize reads a number of bytes: 17179869184, 24GiB, 1.5 GB.
func ParseSize(text string) (int64, error) {
	end := strings.LastIndexAny(text, "0123456789.") + 1
	n, err := strconv.ParseFloat(strings.TrimSpace(text[:end]), 64)
	unit, known := units[strings.ToLower(strings.TrimSpace(text[end:]))]
	if err != nil || !known {
		return 0, fmt.Errorf("size %q: give bytes, or a number and a unit such as 24GiB or 24GB", text)
	}
	if n*unit < 1 || n*unit >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q: give at least one byte, and less than 8388608TiB", text)
	}
	return int64(n * unit), nil
}
