// Package top shows a machine and a model that runs on it: nvidia-smi's figures, the processors, memory and disks, and
// what an engine publishes on its telemetry socket (package telemetry).
//
//	Sampler.Sample -> View -> Render -> a screen of text   (Watch draws it again and again in a terminal)
//
// A View holds figures only and is also the JSON of cedrun top --json. Render is a function of a View and a Screen: the
// width is kept on every line, and where a height is given, GPUs are shown in as much detail as fits.
package top
