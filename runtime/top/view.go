package top

import (
	"time"

	"cedrun/runtime/gpu"
	"cedrun/runtime/host"
	"cedrun/runtime/telemetry"
)

// View is everything that is shown at one moment.
type View struct {
	At        time.Time            `json:"at"`
	Host      host.Reading         `json:"host"`
	GPU       gpu.Reading          `json:"gpu"`
	Processes []telemetry.Endpoint `json:"processes"` // that publish here
	Snapshot  *telemetry.Snapshot  `json:"snapshot"`  // of the one that is looked at
	Rates     telemetry.Rates      `json:"rates"`     // of it, since the view before
	Process   *host.Process        `json:"process"`   // of it, as the system sees it
	Note      string               `json:"note,omitempty"`
}

// Screen is what a View is drawn on.
type Screen struct {
	Width  int // columns; at least 80 are used
	Height int // rows; 0 = as many as it takes
	Color  bool
	ASCII  bool // for terminals without UTF-8
	Every  time.Duration
	Paused bool
	Help   bool
	Keys   bool // say which keys there are
	Skip   int  // rows scrolled away
}
