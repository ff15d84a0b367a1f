package text

// A text that ends in the same few tokens over and over has got stuck.
const (
	loopTokens = 64 // that long, at least
	loopPeriod = 16 // repeating after at most so many
)

// Loop returns the period at which the end of ids repeats itself, or 0 if it does not.
func Loop(ids []int32) int {
	if len(ids) < loopTokens+loopPeriod {
		return 0
	}
	for period := 1; period <= loopPeriod; period++ {
		n := 0
		for i := len(ids) - 1; n < loopTokens && ids[i] == ids[i-period]; i-- {
			n++
		}
		if n == loopTokens {
			return period
		}
	}
	return 0
}
