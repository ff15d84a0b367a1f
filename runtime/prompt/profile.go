package prompt

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
)

// ScriptPath is where a checkpoint ships the script that defines its prompts.
const ScriptPath = "encoding/encoding.py"

// Profile says which revision of the prompt encoding a checkpoint was released with. Model type and tokenizer are the
// same for all of them. This package writes the newest one whatever the profile is.
type Profile struct {
	Name    string
	Warning string // empty: prompts are those of the checkpoint
}

var effortConstant = regexp.MustCompile(`(?i)["']?\bhigh\b["']?\s*[:=]\s*(\d+)`)

// DetectProfile recognises the revision of an encoding script by the constants in it; nil means that none is shipped.
func DetectProfile(script []byte) Profile {
	has := func(text string) bool { return bytes.Contains(script, []byte(text)) }
	effort := effortConstant.FindSubmatch(script)
	switch {
	case script == nil:
		return Profile{Name: "deepseek_v41, assumed"}
	case !has("the higher the value, the more thorough the reasoning"):
		return Profile{"unknown", ScriptPath + " does not write the reasoning effort of deepseek_v41: it defines other prompts than the ones used here"}
	case effort != nil && string(effort[1]) != strconv.Itoa(EffortHigh):
		return Profile{"deepseek_v41, pre-release", fmt.Sprintf("%s maps effort high to %s, the release and this program to %d: give --effort as a number", ScriptPath, effort[1], EffortHigh)}
	case has("namespace"):
		return Profile{Name: "deepseek_v41 with namespaces"}
	}
	return Profile{Name: "deepseek_v41 without namespaces"}
}
