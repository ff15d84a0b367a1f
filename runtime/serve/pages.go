package serve

import (
	"net/http"
	"runtime"
	"strings"
	"time"

	"cedrun/runtime/engine"
	"cedrun/runtime/sample"
	"cedrun/runtime/serve/job"
	"cedrun/runtime/serve/metrics"
	"cedrun/runtime/serve/wire"
)

type status struct {
	Status string `json:"status"`
}

// health says that the process lives, whatever its model does.
func (s *Server) health(c *wire.Call) error { return c.JSON(status{"ok"}) }

// readiness is a 503 while requests are not taken on.
func (s *Server) readiness(c *wire.Call) error {
	r, err := s.ready()
	if err != nil {
		e := wire.AsError(err)
		e.Head(c.W.Header())
		c.W.Header().Set("Content-Type", "application/json")
		c.W.WriteHeader(e.Status)
		return c.JSON(status{e.Code})
	}
	running, waiting := r.Load()
	return c.JSON(struct {
		status
		Running int `json:"running"`
		Waiting int `json:"waiting"`
	}{status{"ready"}, running, waiting})
}

func (s *Server) version(c *wire.Call) error {
	return c.JSON(struct {
		Version string `json:"version"`
		Go      string `json:"go"`
	}{s.opt.Version, runtime.Version()})
}

func (s *Server) writeMetrics(c *wire.Call) error {
	c.W.Header().Set("Content-Type", metrics.ContentType)
	return s.metrics.Write(c.W)
}

// model is one of the models served, as both dialects show it.
type model struct {
	ID           string       `json:"id"`
	Object       string       `json:"object"`
	Type         string       `json:"type"`
	DisplayName  string       `json:"display_name"`
	Created      int64        `json:"created"`
	CreatedAt    string       `json:"created_at"`
	OwnedBy      string       `json:"owned_by"`
	Context      int          `json:"context_length"`
	MaxLength    int          `json:"max_model_len"`
	Fingerprint  string       `json:"system_fingerprint"`
	Aliases      []string     `json:"aliases"`
	Capabilities capabilities `json:"capabilities"`
	Degraded     []string     `json:"degraded"` // what the checkpoint or this build leaves out
}

type capabilities struct {
	Endpoints       []string `json:"endpoints"`
	Input           []string `json:"input_modalities"`
	Thinking        bool     `json:"thinking"`
	ThinkingDefault bool     `json:"thinking_default"`
	Tools           bool     `json:"tools"`
	ToolChoice      []string `json:"tool_choice"`
	FIM             bool     `json:"fim"`
	TopLogprobs     int      `json:"top_logprobs"`
	PromptLogprobs  bool     `json:"prompt_logprobs"`
	Stops           int      `json:"max_stops"`
	ResponseFormat  []string `json:"response_format"`
	Prefill         string   `json:"prefill"`
	Cache           string   `json:"cache"`
}

func newModel(m *job.Model) model {
	_, fim := m.Tokenizer.ID("<｜fim▁begin｜>")
	return model{
		ID: m.ID(), Object: "model", Type: "model", DisplayName: m.ID(), Created: m.Created.Unix(), CreatedAt: m.Created.UTC().Format(time.RFC3339),
		OwnedBy: "cedrun", Context: m.Context, MaxLength: m.Context, Fingerprint: m.Fingerprint,
		Aliases: append([]string{}, m.Names[1:]...), Degraded: append([]string{}, m.Degraded...),
		Capabilities: capabilities{
			Endpoints: []string{"chat.completions", "completions", "responses", "messages", "tokenize"}, Input: []string{"text"},
			Thinking: true, ThinkingDefault: m.Thinking, Tools: true, ToolChoice: []string{"auto", "none", "required", "named"},
			FIM: fim, TopLogprobs: engine.MaxTopLogprobs, PromptLogprobs: m.Scoring, Stops: sample.MaxStops, ResponseFormat: []string{"text", "json_object", "json_schema"},
			Prefill: m.Prefill.String(), Cache: string(m.Cache),
		},
	}
}

// ofAnthropic reports a client of that dialect, which lists models in its own way.
func ofAnthropic(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

func (s *Server) models(c *wire.Call) error {
	r, err := s.ready()
	if err != nil {
		return err
	}
	if ofAnthropic(c.R) {
		return s.messages.Models(c)
	}
	m := newModel(r.Model)
	return c.JSON(struct {
		Object  string  `json:"object"`
		Data    []model `json:"data"`
		HasMore bool    `json:"has_more"`
		First   string  `json:"first_id"`
		Last    string  `json:"last_id"`
	}{"list", []model{m}, false, m.ID, m.ID})
}

func (s *Server) model(c *wire.Call) error {
	r, err := s.ready()
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(c.R.URL.Path, "/v1/models/")
	if ofAnthropic(c.R) {
		return s.messages.Model(c, name)
	}
	if err := r.Model.Check(name); err != nil {
		return err
	}
	return c.JSON(newModel(r.Model))
}
