package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxDepth bounds the nesting of a config; the released one has 3 levels.
const maxDepth = 16

// flatten turns a JSON object into path -> value, the path being the keys joined by dots. Objects
// vanish into their members; arrays stay whole, numbers stay json.Number and null counts as absent.
// A key that occurs twice in an object is an error: readers disagree on which one wins.
func flatten(data []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	tok, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	if tok != json.Delim('{') {
		return nil, fmt.Errorf("not a JSON object: starts with %v", tok)
	}
	out := map[string]any{}
	if err := flattenObject(dec, "", 1, out); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the JSON object")
	}
	return out, nil
}

func flattenObject(dec *json.Decoder, prefix string, depth int, out map[string]any) error {
	if depth > maxDepth {
		return fmt.Errorf("objects are nested deeper than %d levels", maxDepth)
	}
	seen := map[string]bool{}
	for {
		tok, err := dec.Token()
		if err != nil {
			return fmt.Errorf("malformed JSON: %w", err)
		}
		if tok == json.Delim('}') {
			return nil
		}
		key := tok.(string) // the decoder admits only strings here
		path := prefix + key
		if seen[key] {
			return fmt.Errorf("%s occurs twice", path)
		}
		seen[key] = true
		if tok, err = dec.Token(); err != nil {
			return fmt.Errorf("malformed JSON: %w", err)
		}
		switch tok {
		case json.Delim('{'):
			err = flattenObject(dec, path+".", depth+1, out)
		case json.Delim('['):
			out[path], err = array(dec, path, depth+1)
		case nil:
		default:
			out[path] = tok
		}
		if err != nil {
			return err
		}
	}
}

// array reads the rest of an array. Nested objects are kept as a placeholder: no field uses them.
func array(dec *json.Decoder, path string, depth int) ([]any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s is nested deeper than %d levels", path, maxDepth)
	}
	out := []any{}
	for {
		tok, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("malformed JSON: %w", err)
		}
		switch tok {
		case json.Delim(']'):
			return out, nil
		case json.Delim('['):
			a, err := array(dec, path, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, a)
		case json.Delim('{'):
			if err := flattenObject(dec, path+".", depth+1, map[string]any{}); err != nil {
				return nil, err
			}
			out = append(out, struct{}{})
		default:
			out = append(out, tok)
		}
	}
}
