package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
)

func TestBothPhasesAreMeasured(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), strings.Fields("--model ../../testdata/mini/calm --prompt 90 --streams 2 --alone 100ms --chunk 8 --json"), &out); err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Alone.Tokens == 0 || r.Beside.Tokens == 0 || r.Lone <= 0 || r.Mixed <= 0 {
		t.Errorf("something was not measured: %+v", r)
	}
}

func TestBadFlagsAreOneSentence(t *testing.T) {
	for args, want := range map[string]string{
		"":                         "--model is missing",
		"--model x --streams 0":    "must be positive",
		"--model x --prefill none": "none",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
