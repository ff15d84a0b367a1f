package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheTextHasTheSchemaThatWasGiven(t *testing.T) {
	name := filepath.Join(t.TempDir(), "schema.json")
	schema := `{"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "minimum": 18, "maximum": 99}}, "required": ["name", "age"], "additionalProperties": false}`
	if err := os.WriteFile(name, []byte(schema), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--raw=false"}, {"--raw=false", "--thinking", "--logit-bias", "2528=100"}} { // 2528 is </think>
		o := generated(t, "", append([]string{"-p", "Who?", "--json-schema", name, "--temperature", "1.5", "--seed", "3"}, args...)...)
		var v struct {
			Name *string
			Age  *int
		}
		d := json.NewDecoder(strings.NewReader(o.Text))
		d.DisallowUnknownFields()
		if err := d.Decode(&v); err != nil || v.Name == nil || v.Age == nil || *v.Age < 18 || *v.Age > 99 || len([]rune(*v.Name)) > 6 || o.Finish != "stop" {
			t.Errorf("%v: %q (%s, %v)", args, o.Text, o.Finish, err)
		}
	}
}

func TestASchemaThatCannotBeUsed(t *testing.T) {
	for schema, want := range map[string]string{
		`{"not": {}}`: `--json-schema -: at #/not: the keyword "not" is not supported`,
		`{"type"`:     "is not valid JSON",
		``:            "is not valid JSON",
		`false`:       "no value matches",
	} {
		r := cedrun(t, schema, "generate", "-p", "x", "--json-schema", "-")
		if r.status != exitError || r.out != "" || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: status %d, stderr %q; want %q", schema, r.status, r.err, want)
		}
	}
	if r := cedrun(t, "", "generate", "-p", "x", "--json-schema", "no/such"); r.status != exitError || !strings.Contains(r.err, "no/such") {
		t.Errorf("%q", r.err)
	}
}
