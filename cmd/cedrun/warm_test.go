package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// warmRun runs a command line and returns its exit status and what it said on stderr.
func warmRun(t *testing.T, args ...string) (int, string) {
	t.Helper()
	var out, errs bytes.Buffer
	rc := run(context.Background(), append([]string{"cedrun"}, args...), strings.NewReader(""), &out, &errs)
	return rc, errs.String()
}

func TestWeightsAreReadFirstAsFlagsSay(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(config, []byte("warm = \"off\"\nhuge-pages = \"off\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	logits := func(more ...string) []string {
		return append([]string{"logits", "-m", "../../testdata/mini/calm", "--ids", "1,2", "--out", filepath.Join(t.TempDir(), "o"), "--log-level", "info"}, more...)
	}
	for _, tc := range []struct {
		name string
		args []string
		want []string
	}{
		{"by default", logits(), []string{`"mode":"auto"`, `"experts":true`}},
		{"off", logits("--warm", "off"), []string{`"mode":"off","read":0`, `"experts":false`}},
		{"populate", logits("--warm=populate", "--huge-pages=off"), []string{`"mode":"populate"`, `"experts":true`}},
		{"config file", logits("--config", config), []string{`"mode":"off","read":0`}},
		{"not mapped", logits("--no-map", "--huge-pages", "on"), []string{`"mode":"auto"`, `"experts":true`}},
	} {
		rc, said := warmRun(t, tc.args...)
		if rc != 0 {
			t.Errorf("%s: exit status %d: %s", tc.name, rc, said)
		}
		for _, part := range tc.want {
			if !strings.Contains(said, part) {
				t.Errorf("%s: %q is not in %s", tc.name, part, said)
			}
		}
	}
	if rc, said := warmRun(t, logits("--huge-pages", "2M")...); rc != 1 || said != "cedrun: --huge-pages \"2M\": use auto, on or off\n" {
		t.Errorf("exit status %d, %q", rc, said)
	}
	if rc, said := warmRun(t, logits("--warm", "hot")...); rc != 1 || said != "cedrun: --warm \"hot\": use auto, off or populate\n" {
		t.Errorf("exit status %d, %q", rc, said)
	}
}
