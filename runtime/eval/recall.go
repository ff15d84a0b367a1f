package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Case asks for something that a prompt said Distance sliding windows before its end.
type Case struct {
	Distance int    `json:"distance_windows"`
	Prompt   string `json:"prompt"`
	Answer   string `json:"answer"`
}

// ParseCases reads a JSON array of cases, or an object that holds one under "cases".
func ParseCases(data []byte) ([]Case, error) {
	var cases []Case
	if t := bytes.TrimLeft(data, " \t\r\n"); len(t) > 0 && t[0] == '{' {
		var file struct {
			Cases json.RawMessage `json:"cases"`
		}
		if err := json.Unmarshal(data, &file); err != nil {
			return nil, fmt.Errorf("recall cases: %w", err)
		}
		data = file.Cases
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&cases); err != nil {
		return nil, fmt.Errorf("recall cases: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("recall cases: something follows the array")
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("recall cases: there are none")
	}
	for i, c := range cases {
		if c.Distance < 0 || c.Prompt == "" || c.Answer == "" {
			return nil, fmt.Errorf("recall case %d: it needs distance_windows of 0 or more, a prompt and an answer", i)
		}
	}
	return cases, nil
}

// Continue returns the n tokens that greedy decoding writes after a prompt.
type Continue func(ctx context.Context, prompt []int32, n int) ([]int32, error)

// Accuracy is the outcome of the cases of one distance.
type Accuracy struct {
	Distance int     `json:"distance_windows"`
	Cases    int     `json:"cases"`
	Right    int     `json:"right"`
	Accuracy float64 `json:"accuracy"`
}

// Recall asks every case and returns the accuracy by distance, ascending, and over all (its Distance is -1). encode gives
// the ids of a case's prompt and answer.
func Recall(ctx context.Context, model Continue, cases []Case, encode func(c Case) (prompt, answer []int32), progress func(done int)) (by []Accuracy, all Accuracy, err error) {
	all.Distance = -1
	for i, c := range cases {
		prompt, answer := encode(c)
		got, err := model(ctx, prompt, len(answer))
		if err != nil {
			return nil, all, fmt.Errorf("recall case %d: %w", i, err)
		}
		right := slices.Equal(got, answer)
		at, found := slices.BinarySearchFunc(by, c.Distance, func(a Accuracy, d int) int { return a.Distance - d })
		if !found {
			by = slices.Insert(by, at, Accuracy{Distance: c.Distance})
		}
		by[at].count(right)
		all.count(right)
		if progress != nil {
			progress(i + 1)
		}
	}
	return by, all, nil
}

func (a *Accuracy) count(right bool) {
	a.Cases++
	if right {
		a.Right++
	}
	a.Accuracy = float64(a.Right) / float64(a.Cases)
}
