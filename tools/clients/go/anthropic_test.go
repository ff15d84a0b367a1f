package clients_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

func anthropicClient(url, key string, retries int) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(url), option.WithAPIKey(key), option.WithMaxRetries(retries))
}

func say(more func(*anthropic.MessageNewParams)) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{
		Model: model, MaxTokens: 24, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Speak of Moses."))},
	}
	p.SetExtraFields(map[string]any{"seed": 5})
	if more != nil {
		more(&p)
	}
	return p
}

func text(m *anthropic.Message) (s string) {
	for _, b := range m.Content {
		s += b.Text
	}
	return s
}

// compact is JSON without spaces.
func compact(t *testing.T, data []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		t.Errorf("%s: %v", data, err)
	}
	return b.String()
}

func TestAnthropic(t *testing.T) {
	url := serve(t, "")
	client, ctx := anthropicClient(url, "none", 0), within(t)
	message := func(t *testing.T, more func(*anthropic.MessageNewParams)) *anthropic.Message {
		t.Helper()
		m, err := client.Messages.New(ctx, say(more))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	stream := func(t *testing.T, more func(*anthropic.MessageNewParams)) *anthropic.Message {
		t.Helper()
		var m anthropic.Message
		s := client.Messages.NewStreaming(ctx, say(more))
		for s.Next() {
			if err := m.Accumulate(s.Current()); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		return &m
	}

	t.Run("a stream accumulates to the whole", func(t *testing.T) {
		whole, streamed := message(t, nil), stream(t, nil)
		if text(whole) == "" || text(whole) != text(streamed) || whole.StopReason != "max_tokens" || streamed.StopReason != whole.StopReason || streamed.Usage.OutputTokens != 24 {
			t.Errorf("whole %s\nstreamed %s", whole.RawJSON(), text(streamed))
		}
	})

	t.Run("thinking is a block of its own", func(t *testing.T) {
		more := func(p *anthropic.MessageNewParams) { p.Thinking = anthropic.ThinkingConfigParamOfEnabled(1024) }
		whole, streamed := message(t, more), stream(t, more)
		if len(whole.Content) != 1 || whole.Content[0].Thinking == "" || streamed.Content[0].Thinking != whole.Content[0].Thinking || streamed.Content[0].Signature == "" {
			t.Errorf("%s", whole.RawJSON())
		}
	})

	t.Run("nothing of a stop sequence is shown", func(t *testing.T) {
		full := text(message(t, nil))
		want, _, _ := strings.Cut(full, full[9:15])
		m := message(t, func(p *anthropic.MessageNewParams) { p.StopSequences = []string{full[9:15]} })
		if text(m) != want || m.StopReason != "stop_sequence" || m.StopSequence != full[9:15] {
			t.Errorf("%s, want %q", m.RawJSON(), want)
		}
	})

	t.Run("a call, streamed and not, and its result", func(t *testing.T) {
		tool := anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: weather["properties"], Required: []string{"city", "days"}}, "weather")
		tool.OfTool.Strict = anthropic.Bool(true)
		for _, choice := range []anthropic.ToolChoiceUnionParam{
			{OfAny: &anthropic.ToolChoiceAnyParam{DisableParallelToolUse: anthropic.Bool(true)}},
			{OfTool: &anthropic.ToolChoiceToolParam{Name: "weather", DisableParallelToolUse: anthropic.Bool(true)}},
		} {
			more := func(p *anthropic.MessageNewParams) {
				p.Tools, p.ToolChoice, p.MaxTokens = []anthropic.ToolUnionParam{tool}, choice, 600
			}
			whole, streamed := message(t, more), stream(t, more)
			if whole.StopReason == "max_tokens" {
				continue
			}
			call, again := whole.Content[len(whole.Content)-1], streamed.Content[len(streamed.Content)-1]
			checkWeather(t, string(call.Input))
			if call.Name != "weather" || compact(t, again.Input) != compact(t, call.Input) {
				t.Errorf("whole %s, streamed %s", call.RawJSON(), again.Input)
			}
			m := message(t, func(p *anthropic.MessageNewParams) {
				p.Tools = []anthropic.ToolUnionParam{tool}
				p.Messages = append(p.Messages, whole.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(call.ID, "Sunny.", false)))
			})
			if len(m.Content) == 0 {
				t.Errorf("%s", m.RawJSON())
			}
		}
	})

	t.Run("tokens are counted as they are charged", func(t *testing.T) {
		p := say(nil)
		n, err := client.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: model, Messages: p.Messages})
		if err != nil {
			t.Fatal(err)
		}
		if u := message(t, nil).Usage; n.InputTokens != u.InputTokens+u.CacheReadInputTokens {
			t.Errorf("counted %d, charged %d and %d", n.InputTokens, u.InputTokens, u.CacheReadInputTokens)
		}
	})

	t.Run("models", func(t *testing.T) {
		list, err := client.Models.List(ctx, anthropic.ModelListParams{})
		if err != nil || len(list.Data) != 1 || list.Data[0].ID != model {
			t.Errorf("%v: %v", list, err)
		}
	})

	t.Run("errors", func(t *testing.T) {
		for _, c := range []struct {
			more   func(*anthropic.MessageNewParams)
			status int
			kind   string
		}{
			{func(p *anthropic.MessageNewParams) { p.SetExtraFields(map[string]any{"temperature": 9}) }, 400, "invalid_request_error"},
			{func(p *anthropic.MessageNewParams) { p.Model = "gpt-9" }, 404, "not_found_error"},
		} {
			_, err := client.Messages.New(ctx, say(c.more))
			s := client.Messages.NewStreaming(ctx, say(c.more))
			for s.Next() {
			}
			for _, err := range []error{err, s.Err()} {
				var e *anthropic.Error
				if !errors.As(err, &e) || e.StatusCode != c.status || string(e.Type()) != c.kind || e.RequestID == "" {
					t.Errorf("%s: %v", c.kind, err)
				}
			}
		}
	})

	t.Run("a client that goes away ends its work", func(t *testing.T) {
		s := client.Messages.NewStreaming(ctx, say(func(p *anthropic.MessageNewParams) {
			p.MaxTokens = 8000
			p.SetExtraFields(map[string]any{"ignore_eos": true})
		}))
		for range 4 {
			if !s.Next() {
				t.Fatal(s.Err())
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		idle(t, url)
	})
}

func TestAnthropicKeysAndAFullServer(t *testing.T) {
	url, ctx := serve(t, "secret", "--max-batch", "1", "--max-queue", "1"), within(t)
	var e *anthropic.Error
	wrong := anthropicClient(url, "wrong", 0)
	if _, err := wrong.Messages.New(ctx, say(nil)); !errors.As(err, &e) || e.Type() != "authentication_error" {
		t.Errorf("%v", err)
	}
	client := anthropicClient(url, "secret", 0)
	var streams []interface{ Close() error }
	for range 2 {
		streams = append(streams, client.Messages.NewStreaming(ctx, say(func(p *anthropic.MessageNewParams) {
			p.MaxTokens = 8000
			p.SetExtraFields(map[string]any{"ignore_eos": true})
		})))
	}
	if _, err := client.Messages.New(ctx, say(nil)); !errors.As(err, &e) || e.StatusCode != 503 || e.Type() != "overloaded_error" || e.Response.Header.Get("Retry-After") == "" {
		t.Errorf("%v", err)
	}
	for _, s := range streams {
		_ = s.Close() // it was cut off
	}
	patient := anthropicClient(url, "secret", 5)
	if m, err := patient.Messages.New(ctx, say(nil)); err != nil || text(m) == "" {
		t.Errorf("%v: %v", m, err)
	}
}
