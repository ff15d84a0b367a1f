package inventory

import (
	"fmt"
	"strconv"

	"cedrun/runtime/config"
)

// Layer is one row of the schedule of spec model.md 1.2. Sources are layer numbers, nil where there is none.
type Layer struct {
	Layer     int      `json:"layer"`
	Ratio     int      `json:"ratio"` // tokens per main KV row; 0 = none
	Mode      string   `json:"mode"`
	KV        *int     `json:"kv_from"`        // whose main KV rows are read
	Keys      *int     `json:"keys_from"`      // whose index keys are scored
	Selection *int     `json:"selection_from"` // whose selection is used
	Theta     float64  `json:"rope_theta"`
	Yarn      bool     `json:"yarn"`
	Extras    []string `json:"extras,omitempty"`
}

// Schedule is the table of all layers.
func Schedule(c *config.Config) []Layer {
	rows := make([]Layer, 0, c.Layers)
	for _, l := range c.Schedule() {
		r := Layer{
			Layer: l.Index, Ratio: l.Ratio, Mode: l.Mode.String(), Theta: c.RopeTheta,
			KV: source(l.KVSource), Keys: source(l.KeySource), Selection: source(l.IndexSource),
		}
		if l.CompressedRope() {
			r.Theta, r.Yarn = c.CompressRopeTheta, c.Yarn.Original > 0
		}
		add := func(when bool, what string) {
			if when {
				r.Extras = append(r.Extras, what)
			}
		}
		add(l.Engram >= 0, "Engram before it")
		add(l.OwnsKV && l.Ratio > 1, "compressor with gate")
		add(l.OwnsKV && l.Ratio == 1, "compressor without gate")
		add(l.CandidateSource, "candidate source")
		add(l.Restricted, "inside the candidates")
		for _, t := range c.Draft.Targets {
			add(c.Draft.Layers > 0 && t == l.Index, "feeds DSpark")
		}
		rows = append(rows, r)
	}
	return rows
}

func source(layer int) *int {
	if layer < 0 {
		return nil
	}
	return &layer
}

// cells are a row's columns after the layer number. Equal rows that follow each other print as one.
func (l *Layer) cells() [7]string {
	from := func(source *int) string {
		switch {
		case source == nil:
			return "-"
		case *source == l.Layer:
			return "own"
		}
		return strconv.Itoa(*source)
	}
	rope := fmt.Sprintf("%g", l.Theta)
	if l.Yarn {
		rope += " YaRN"
	}
	extras := "-"
	for i, e := range l.Extras {
		if i == 0 {
			extras = e
		} else {
			extras += ", " + e
		}
	}
	return [7]string{strconv.Itoa(l.Ratio), l.Mode, from(l.KV), from(l.Keys), from(l.Selection), rope, extras}
}
