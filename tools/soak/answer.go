package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Answers are compared as JSON without what tells one run from another: names, times, and how much of a prompt was in
// the cache. A stream is folded into the answer that it spells.

// apart are fields that differ between runs of one request.
var apart = map[string]bool{
	"id": true, "call_id": true, "item_id": true, "created": true, "created_at": true, "completed_at": true, "signature": true,
	"cached_tokens": true, "prompt_cache_hit_tokens": true, "prompt_cache_miss_tokens": true,
	"cache_read_input_tokens": true, "cache_creation_input_tokens": true,
}

// canonical is an answer in one spelling.
func canonical(v any) string {
	b, err := json.Marshal(strip(v))
	if err != nil {
		panic(err) // came out of JSON
	}
	return string(b)
}

func strip(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range x {
			if !apart[k] {
				out[k] = strip(v)
			}
		}
		if n, ok := out["input_tokens"].(float64); ok { // of messages: without the cached ones
			for _, k := range []string{"cache_read_input_tokens", "cache_creation_input_tokens"} {
				if c, ok := x[k].(float64); ok {
					n += c
				}
			}
			out["input_tokens"] = n
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, v := range x {
			out[i] = strip(v)
		}
		return out
	}
	return v
}

// replaced are strings that a later event says anew; others go on.
var replaced = map[string]bool{"id": true, "object": true, "model": true, "system_fingerprint": true, "role": true, "type": true, "finish_reason": true, "name": true, "status": true}

// merge adds what an event says to what earlier ones said.
func merge(name string, to, from any) any {
	switch x := from.(type) {
	case nil:
		return to
	case map[string]any:
		m, ok := to.(map[string]any)
		if !ok {
			m = map[string]any{}
		}
		for k, v := range x {
			if m[k] = merge(k, m[k], v); m[k] == nil {
				delete(m, k)
			}
		}
		return m
	case []any:
		list, _ := to.([]any)
		for _, v := range x {
			if i, ok := indexOf(v); ok {
				for len(list) <= i {
					list = append(list, nil)
				}
				list[i] = merge("", list[i], v)
			} else {
				list = append(list, v)
			}
		}
		return list
	case string:
		if s, ok := to.(string); ok && !replaced[name] {
			return s + x
		}
	}
	return from
}

func indexOf(v any) (int, bool) {
	m, _ := v.(map[string]any)
	i, ok := m["index"].(float64)
	return int(i), ok && i >= 0 && i < 1000
}

// fold reads a stream and is the answer that it spells; seen is called before each event and may end it.
func fold(r io.Reader, path string, seen func() error) (any, error) {
	var whole any
	complete := false
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if err := seen(); err != nil {
			return nil, err
		}
		if data == "[DONE]" {
			complete = true
			continue
		}
		var e map[string]any
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return nil, fmt.Errorf("event %q: %w", data, err)
		}
		if e["error"] != nil {
			return nil, fmt.Errorf("error event %s", data)
		}
		switch path {
		case "/v1/messages":
			whole = foldMessage(whole, e)
			complete = complete || e["type"] == "message_stop"
		case "/v1/responses":
			if e["type"] == "response.completed" || e["type"] == "response.incomplete" {
				whole, complete = e["response"], true
			}
		default:
			whole = merge("", whole, e)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if !complete {
		return nil, errors.New("the stream ended early")
	}
	return whole, nil
}

// foldMessage adds an event of the messages API.
func foldMessage(whole any, e map[string]any) any {
	block := func(v any) any { // at its place in the content
		return map[string]any{"content": []any{merge("", map[string]any{"index": e["index"]}, v)}}
	}
	switch e["type"] {
	case "message_start":
		return merge("", whole, e["message"])
	case "content_block_start":
		return merge("", whole, block(e["content_block"]))
	case "content_block_delta":
		delta, _ := e["delta"].(map[string]any)
		delete(delta, "type")
		return merge("", whole, block(delta))
	case "message_delta":
		delete(e, "type")
		if d, ok := e["delta"].(map[string]any); ok {
			delete(e, "delta")
			whole = merge("", whole, d)
		}
		return merge("", whole, e)
	}
	return whole
}
