package plan

import "cedrun/runtime/config"

// Bucket rounds rows up to a power of two or to one and a half of one, but not above most: so few that a device can keep a
// captured step for each.
func Bucket(rows, most int) uint32 {
	b := 1
	for b < rows {
		if b >= 2 && b+b/2 >= rows {
			b += b / 2
			break
		}
		b *= 2
	}
	return uint32(min(b, most))
}

// DecodeRows are the batch sizes that stand for all up to most in captured decode steps, ascending: each is the largest of
// its bucket in steps of so many rows.
func DecodeRows(most, rows int) (sizes []int) {
	for n := 1; n <= most; n++ {
		if n == most || Bucket(n+1, rows) != Bucket(n, rows) {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// nodeBytes is what a captured kernel call is taken to need of device memory: believed, not measured.
const nodeBytes = 8 << 10

// captured is how many decode steps of a filled setup are captured, and what they are believed to take of a device.
func captured(c *config.Config, s Setup) (steps int, bytes int64) {
	if s.NoGraphs {
		return 0, 0
	}
	calls := 0.
	Decode(c, 1, 0, func(k Call, times float64) {
		if k.Kernel != Sample && k.Kernel != Layer { // the host's
			calls += times
		}
	})
	steps = len(DecodeRows(s.Slots, s.rows()))
	return steps, int64(steps) * int64(calls) * nodeBytes
}
