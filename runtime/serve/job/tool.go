package job

import (
	"encoding/json"

	"cedrun/runtime/serve/wire"
)

// FunctionTool is a tool as the model's prompts have it.
func FunctionTool(name, description string, parameters json.RawMessage) (json.RawMessage, error) {
	if parameters == nil {
		parameters = json.RawMessage(`{"type": "object", "properties": {}}`)
	}
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	return wire.Marshal(struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{name, description, parameters}})
}
