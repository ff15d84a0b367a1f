package clients_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

func openaiClient(url, key string, retries int) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(retries))
}

func ask(more func(*openai.ChatCompletionNewParams)) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{
		Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Speak of Moses.")},
		MaxTokens: openai.Int(24), Seed: openai.Int(5),
	}
	if more != nil {
		more(&p)
	}
	return p
}

func TestOpenAI(t *testing.T) {
	url := serve(t, "")
	client, ctx := openaiClient(url, "none", 0), within(t)
	chat := func(t *testing.T, more func(*openai.ChatCompletionNewParams)) *openai.ChatCompletion {
		t.Helper()
		got, err := client.Chat.Completions.New(ctx, ask(more))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	// stream accumulates a stream.
	stream := func(t *testing.T, more func(*openai.ChatCompletionNewParams)) openai.ChatCompletionAccumulator {
		t.Helper()
		var acc openai.ChatCompletionAccumulator
		s := client.Chat.Completions.NewStreaming(ctx, ask(more))
		for s.Next() {
			if !acc.AddChunk(s.Current()) {
				t.Fatalf("the chunk %s does not fit those before", s.Current().RawJSON())
			}
		}
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		return acc
	}

	t.Run("a stream accumulates to the whole", func(t *testing.T) {
		more := func(p *openai.ChatCompletionNewParams) {
			p.N, p.Logprobs, p.TopLogprobs = openai.Int(2), openai.Bool(true), openai.Int(2)
			p.StreamOptions.IncludeUsage = openai.Bool(true)
		}
		acc := stream(t, more)
		whole := chat(t, func(p *openai.ChatCompletionNewParams) {
			more(p)
			p.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
		})
		if len(whole.Choices) != 2 || whole.Choices[0].Message.Content == whole.Choices[1].Message.Content {
			t.Fatalf("choices %s", whole.RawJSON())
		}
		for i, c := range whole.Choices {
			if got := acc.Choices[i]; got.Message.Content != c.Message.Content || got.FinishReason != c.FinishReason || c.Message.Content == "" {
				t.Errorf("streamed %q (%s), whole %q (%s)", got.Message.Content, got.FinishReason, c.Message.Content, c.FinishReason)
			}
			if len(c.Logprobs.Content) == 0 || len(c.Logprobs.Content[0].TopLogprobs) != 2 {
				t.Errorf("log-probabilities %+v", c.Logprobs)
			}
		}
		if acc.Usage.CompletionTokens != 48 || whole.Usage.CompletionTokens != 48 {
			t.Errorf("usage streamed %d, whole %d", acc.Usage.CompletionTokens, whole.Usage.CompletionTokens)
		}
	})

	t.Run("nothing of a stop string is shown", func(t *testing.T) {
		full := chat(t, nil).Choices[0].Message.Content
		stop := full[9:15]
		more := func(p *openai.ChatCompletionNewParams) { p.Stop.OfStringArray = []string{stop} }
		want, _, _ := strings.Cut(full, stop)
		if got := chat(t, more).Choices[0].Message.Content; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if acc := stream(t, more); acc.Choices[0].Message.Content != want {
			t.Errorf("streamed %q, want %q", acc.Choices[0].Message.Content, want)
		}
	})

	t.Run("reasoning has its own channel", func(t *testing.T) {
		got := chat(t, func(p *openai.ChatCompletionNewParams) { p.ReasoningEffort = openai.ReasoningEffortLow })
		m := got.Choices[0].Message
		if m.Content != "" || len(m.JSON.ExtraFields["reasoning_content"].Raw()) < 4 || got.Usage.CompletionTokensDetails.ReasoningTokens != 24 {
			t.Errorf("%s", got.RawJSON())
		}
	})

	t.Run("a call, streamed and not, and its result", func(t *testing.T) {
		tools := []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "weather", Strict: openai.Bool(true), Parameters: weather})}
		for _, choice := range []openai.ChatCompletionToolChoiceOptionUnionParam{
			{OfAuto: openai.String("required")},
			openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "weather"}),
		} {
			more := func(p *openai.ChatCompletionNewParams) {
				p.Tools, p.ToolChoice, p.ParallelToolCalls, p.MaxTokens = tools, choice, openai.Bool(false), openai.Int(600)
			}
			whole, acc := chat(t, more).Choices[0], stream(t, more)
			if whole.FinishReason == "length" {
				continue
			}
			calls := whole.Message.ToolCalls
			if len(calls) != 1 || whole.FinishReason != "tool_calls" {
				t.Fatalf("%s", whole.RawJSON())
			}
			checkWeather(t, calls[0].Function.Arguments)
			if got := acc.Choices[0].Message.ToolCalls; len(got) != 1 || got[0].Function.Arguments != calls[0].Function.Arguments {
				t.Errorf("streamed %+v", got)
			}
			again := chat(t, func(p *openai.ChatCompletionNewParams) {
				p.Tools = tools
				p.Messages = append(p.Messages, whole.Message.ToParam(), openai.ToolMessage("Sunny.", calls[0].ID))
			})
			if again.Choices[0].Message.Content == "" {
				t.Errorf("%s", again.RawJSON())
			}
		}
	})

	t.Run("an answer has its schema", func(t *testing.T) {
		got := chat(t, func(p *openai.ChatCompletionNewParams) {
			p.MaxTokens = openai.Int(600)
			p.ResponseFormat.OfJSONSchema = &openai.ResponseFormatJSONSchemaParam{JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{Name: "weather", Strict: openai.Bool(true), Schema: weather}}
		})
		if got.Choices[0].FinishReason == "stop" {
			checkWeather(t, got.Choices[0].Message.Content)
		}
	})

	t.Run("completions", func(t *testing.T) {
		p := openai.CompletionNewParams{Model: model, Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("In the beginning")}, MaxTokens: openai.Int(8), Seed: openai.Int(5), Echo: openai.Bool(true)}
		whole, err := client.Completions.New(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		s, text := client.Completions.NewStreaming(ctx, p), ""
		for s.Next() {
			text += s.Current().Choices[0].Text
		}
		if s.Err() != nil || text != whole.Choices[0].Text || !strings.HasPrefix(text, "In the beginning ") {
			t.Errorf("streamed %q, whole %q: %v", text, whole.Choices[0].Text, s.Err())
		}
	})

	t.Run("responses", func(t *testing.T) {
		p := responses.ResponseNewParams{Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Speak of Moses.")}, MaxOutputTokens: openai.Int(24)}
		p.SetExtraFields(map[string]any{"seed": 5})
		whole, err := client.Responses.New(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		s, text, last := client.Responses.NewStreaming(ctx, p), "", ""
		for s.Next() {
			e := s.Current()
			if e.Type == "response.output_text.delta" {
				text += e.Delta
			}
			last = e.Type
		}
		if s.Err() != nil || text != whole.OutputText() || text == "" || last != "response.incomplete" {
			t.Errorf("streamed %q to %s, whole %q: %v", text, last, whole.OutputText(), s.Err())
		}
	})

	t.Run("models", func(t *testing.T) {
		list, err := client.Models.List(ctx)
		if err != nil || len(list.Data) != 1 || list.Data[0].ID != model {
			t.Errorf("%v: %v", list, err)
		}
	})

	t.Run("errors", func(t *testing.T) {
		for _, c := range []struct {
			more                func(*openai.ChatCompletionNewParams)
			status              int
			kind, of, code, say string
		}{
			{func(p *openai.ChatCompletionNewParams) { p.Temperature = openai.Float(9) }, 400, "invalid_request_error", "temperature", "", "from 0 to 5"},
			{func(p *openai.ChatCompletionNewParams) { p.Model = "gpt-9" }, 404, "invalid_request_error", "model", "model_not_found", "not served here"},
			{func(p *openai.ChatCompletionNewParams) { p.Messages = nil }, 400, "invalid_request_error", "messages", "", "missing or empty"},
		} {
			_, err := client.Chat.Completions.New(ctx, ask(c.more))
			s := client.Chat.Completions.NewStreaming(ctx, ask(c.more))
			for s.Next() {
			}
			for _, err := range []error{err, s.Err()} {
				var e *openai.Error
				if !errors.As(err, &e) || e.StatusCode != c.status || e.Type != c.kind || e.Param != c.of || e.Code != c.code || !strings.Contains(e.Message, c.say) {
					t.Errorf("%s: %v", c.of, err)
				}
			}
		}
	})

	t.Run("a client that goes away ends its work", func(t *testing.T) {
		s := client.Chat.Completions.NewStreaming(ctx, ask(func(p *openai.ChatCompletionNewParams) {
			p.MaxTokens = openai.Int(8000)
			p.SetExtraFields(map[string]any{"ignore_eos": true})
		}))
		for range 3 {
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

func TestOpenAIKeysAndAFullServer(t *testing.T) {
	url, ctx := serve(t, "secret", "--max-batch", "1", "--max-queue", "1"), within(t)
	var e *openai.Error
	wrong := openaiClient(url, "wrong", 0)
	if _, err := wrong.Chat.Completions.New(ctx, ask(nil)); !errors.As(err, &e) || e.StatusCode != 401 || e.Code != "invalid_api_key" {
		t.Errorf("%v", err)
	}
	client := openaiClient(url, "secret", 0)
	var streams []interface{ Close() error }
	for range 2 {
		s := client.Chat.Completions.NewStreaming(ctx, ask(func(p *openai.ChatCompletionNewParams) {
			p.MaxTokens = openai.Int(8000)
			p.SetExtraFields(map[string]any{"ignore_eos": true})
		}))
		streams = append(streams, s)
	}
	if _, err := client.Chat.Completions.New(ctx, ask(nil)); !errors.As(err, &e) || e.StatusCode != 503 || e.Response.Header.Get("Retry-After") == "" {
		t.Errorf("%v", err)
	}
	for _, s := range streams {
		_ = s.Close() // it was cut off
	}
	patient := openaiClient(url, "secret", 5)
	got, err := patient.Chat.Completions.New(ctx, ask(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got.Choices[0].Message.Content == "" {
		t.Errorf("%s", got.RawJSON())
	}
}
