package main

import (
	"cedrun/runtime/telemetry"
	"cedrun/runtime/telemetry/publish"
)

// publish lets cedrun top look at a command that runs an engine.
func (con *console) publish(command string) *publish.Publisher {
	return publish.New(telemetry.Dir(), command, version(), con.log, nil)
}
