package anthropic

import (
	"time"

	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/wire"
)

// modelInfo is a model as this dialect lists it. Its capabilities are null, as their members grow with every release of the
// clients; the list that other clients get has them in cedrun's own words.
type modelInfo struct {
	ID           string   `json:"id"`
	Type         string   `json:"type"`
	DisplayName  string   `json:"display_name"`
	CreatedAt    string   `json:"created_at"`
	Lifecycle    string   `json:"lifecycle"`
	MaxInput     int      `json:"max_input_tokens"`
	MaxTokens    int      `json:"max_tokens"`
	Capabilities nothing  `json:"capabilities"`
	Degraded     []string `json:"degraded"` // not in the dialect: what the checkpoint or this build leaves out
}

func newModelInfo(m *job.Model) modelInfo {
	return modelInfo{
		ID: m.ID(), Type: "model", DisplayName: m.ID(), CreatedAt: m.Created.UTC().Format(time.RFC3339), Lifecycle: "active",
		MaxInput: m.Context, MaxTokens: m.Context, Degraded: append([]string{}, m.Degraded...),
	}
}

// Models answers GET /v1/models to clients of this dialect.
func (a *API) Models(c *wire.Call) error {
	m := newModelInfo(a.Runner.Model)
	return c.JSON(struct {
		Data    []modelInfo `json:"data"`
		HasMore bool        `json:"has_more"`
		First   string      `json:"first_id"`
		Last    string      `json:"last_id"`
	}{[]modelInfo{m}, false, m.ID, m.ID})
}

// Model answers GET /v1/models/NAME.
func (a *API) Model(c *wire.Call, name string) error {
	if err := a.Runner.Model.Check(name); err != nil && !claude(name) {
		return err
	}
	return c.JSON(newModelInfo(a.Runner.Model))
}
