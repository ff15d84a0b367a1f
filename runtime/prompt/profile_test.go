package prompt

import (
	"strings"
	"testing"
)

func TestProfileComesFromTheShippedScript(t *testing.T) {
	const effort = "f\"Reasoning Effort: {n} (range 1-100, the higher the value, the more thorough the reasoning)\\n\\n\"\n"
	for _, c := range []struct{ name, script, want, warns string }{
		{"release", `EFFORT = {"low": 50, "high": 75, "max": 100}` + "\n" + effort, "deepseek_v41 without namespaces", ""},
		{"newer revision", "HIGH = 75\n" + effort + `tool.get("namespace")`, "deepseek_v41 with namespaces", ""},
		{"pre-release", `EFFORT = {'high': 50}` + "\n" + effort, "deepseek_v41, pre-release", "maps effort high to 50"},
		{"another family", `"<think>" if thinking else "</think>"`, "unknown", "defines other prompts"},
		{"empty", "", "unknown", "defines other prompts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := DetectProfile([]byte(c.script))
			if p.Name != c.want || (p.Warning == "") != (c.warns == "") || !strings.Contains(p.Warning, c.warns) {
				t.Errorf("%+v", p)
			}
		})
	}
	if p := DetectProfile(nil); p.Name != "deepseek_v41, assumed" || p.Warning != "" {
		t.Errorf("no script: %+v", p)
	}
}
