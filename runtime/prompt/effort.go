package prompt

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Reasoning effort: 1 to 100, with three names (decision S1).
const (
	EffortLow     = 50
	EffortHigh    = 75
	EffortMax     = 100
	EffortDefault = EffortHigh
)

func effortByName(name string) (int, bool) {
	switch name {
	case "low":
		return EffortLow, true
	case "high":
		return EffortHigh, true
	case "max":
		return EffortMax, true
	}
	return 0, false
}

// ParseEffort reads an effort from a command line: low, high, max, or an integer from 1 to 100.
func ParseEffort(s string) (int, error) {
	if n, ok := effortByName(s); ok {
		return n, nil
	}
	if n, err := strconv.Atoi(s); err == nil && strconv.Itoa(n) == s && n >= 1 && n <= 100 {
		return n, nil
	}
	return 0, effortError(s)
}

// EffortFromJSON reads an effort from a request: null, "low", "high", "max", or an integer from 1 to
// 100. As in the official script, 50.0, true and "75" are errors.
func EffortFromJSON(raw json.RawMessage) (int, error) {
	if isNull(raw) {
		return EffortDefault, nil
	}
	var name string
	if json.Unmarshal(raw, &name) == nil {
		if n, ok := effortByName(name); ok {
			return n, nil
		}
	} else if n, err := strconv.Atoi(string(raw)); err == nil && n >= 1 && n <= 100 {
		return n, nil
	}
	return 0, effortError(string(raw))
}

func effortError(given string) error {
	return fmt.Errorf("effort must be low, high, max or an integer from 1 to 100, not %s", clip(given))
}
