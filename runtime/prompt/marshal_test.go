package prompt

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAConversationIsWrittenAsItIsRead(t *testing.T) {
	for name, file := range map[string]string{
		"plain":     `[{"role":"user","content":"a \"quoted\" <b> & \u2028"},{"role":"assistant","content":""}]`,
		"options":   `{"messages":[{"role":"user","content":"a"}],"thinking":true,"effort":7,"response_format":{"type":"json_object"}}`,
		"off":       `{"messages":[{"role":"user","content":"a"}],"thinking":false}`,
		"reasoning": `[{"role":"user","content":"a"},{"role":"assistant","reasoning_content":"hm","content":"b"}]`,
		"no text":   `[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"c0","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}}]}]`,
		"tools": `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"function":{"namespace":"n","name":"f","arguments":{"x":[1]}}}]},
			{"role":"tool","tool_call_id":"c0","content":"12"}],"tools":[{"type":"function","function":{"name":"f"}}]}`,
		"blocks": `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}},{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}]}]`,
		"empty":  `[{"role":"user","content":[]},{"role":"user","task":"title","name":"n","content":"x"},{"role":"assistant","content":"b","prefix":true}]`,
	} {
		t.Run(name, func(t *testing.T) {
			want, err := ParseMessages([]byte(file))
			if err != nil {
				t.Fatal(err)
			}
			data, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ParseMessages(data)
			if err != nil {
				t.Fatalf("%v in %s", err, data)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s\n%s", data, d)
			}
		})
	}
}
