package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	ced "cedrun/cuda"
	"cedrun/cuda/driver"
	"cedrun/runtime/doctor"
	"cedrun/runtime/verify"
)

func doctorCommand(con *console) *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "say whether this machine is fit to run a model, and what to do where it is not",
		Description: "Looks at the processor and its kernels, memory, huge pages, the limits of the process and of its container, GPUs with\n" +
			"their driver and toolkit, the files of the model and the disk they lie on, and the port of serve. Each line is ok, a\n" +
			"warning (it works, but worse than it could) or a fault; the exit status is 1 if there is a fault. No weight is kept,\n" +
			"nothing is changed; reading from disk takes about two seconds.\n\n" +
			"Examples:\n" +
			"  cedrun doctor\n" +
			"  cedrun doctor -m DIR --port 8000\n" +
			"  cedrun doctor -m DIR --no-disk --json",
		Flags: flags([]cli.Flag{
			withDefault(stringFlag(groupModel, "model", "", "checkpoint `DIR`: config.json, tokenizer.json and safetensors shards", "m"), "the embedded demo model"),
			withDefault(stringFlag(groupModel, "cache-dir", "", "where maps derived from the tokenizer are kept, `DIR`"), "cedrun in the user's cache directory"),
			threadsFlag(),
			stringFlag(groupServe, "host", "127.0.0.1", "the `ADDRESS` that serve will listen on"),
			intFlag(groupServe, "port", 8080, 0, "", "the port `N` that serve will listen on; 0 = any that is free"),
			boolFlag(groupInput, "no-disk", "do not measure the disk"),
		}, outputFlags("print one JSON object: ok, warnings, faults, lines")),
		Action: con.action(0, con.doctor),
	}
}

// diskTime is spent on reading.
const diskTime = 2 * time.Second

func (con *console) doctor(c *cli.Context) error {
	m, err := locate(c)
	if err != nil {
		return err
	}
	if m.bare {
		return fmt.Errorf("--model %s is a file: give the directory that holds it and the safetensors shards", m.name)
	}
	o := doctor.Options{
		Model: verify.Subject{Name: m.name, Dir: m.dir}, CacheDir: c.String("cache-dir"),
		Address: net.JoinHostPort(c.String("host"), strconv.Itoa(c.Int("port"))), DiskTime: diskTime, Build: built(cudaArchitectures, cudaToolkit),
	}
	if m.dir == "" {
		o.Model.FS = m.fsys
	} else if dir, err := os.UserCacheDir(); err == nil && o.CacheDir == "" {
		o.CacheDir = filepath.Join(dir, "cedrun")
	}
	if c.Bool("no-disk") {
		o.DiskTime = 0
	}
	o.CUDA = cudaDevices()
	o.Kernels.ISA = ced.ISA()
	if s, err := ced.Open(ced.CPU, 0, c.Int("threads")); err != nil {
		o.Kernels.Err = err
	} else {
		o.Threads = s.Threads()
		s.Close()
	}
	con.show("looking at this machine")
	f, err := doctor.Gather(c.Context, o)
	con.clear()
	if c.Context.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	return con.printDoctor(c, doctor.Examine(f))
}

// cudaArchitectures are those that kernels were built for, as CMake writes them, cudaToolkit is the version of the
// compiler; make cuda sets both.
var cudaArchitectures, cudaToolkit string

// cudaDevices are those that --device may name. The driver describes them without work for the device.
func cudaDevices() (f doctor.CUDA) {
	if cudaArchitectures == "" && !ced.Simulated {
		return f
	}
	if ced.Devices(ced.CUDA) == 0 {
		_, f.Err = ced.DeviceInfo(0)
		return f
	}
	if ced.Simulated {
		for i := range ced.Devices(ced.CUDA) {
			d, err := ced.DeviceInfo(i)
			if err != nil {
				return doctor.CUDA{Err: err}
			}
			f.Devices = append(f.Devices, doctor.Device{Name: d.Name, Capability: d.Capability(), Processors: d.Processors, Memory: d.Total, Simulated: true})
		}
		return f
	}
	devices, err := driver.Devices()
	if err != nil {
		return doctor.CUDA{Err: err}
	}
	for _, d := range devices {
		f.Devices = append(f.Devices, doctor.Device{
			Name: d.Name, Capability: fmt.Sprintf("%d.%d", d.Major, d.Minor), Processors: d.Processors, Memory: d.Memory, Bandwidth: d.Bandwidth,
		})
	}
	return f
}

// built is what this program was built for. CMake means machine code by 80-real, code for later devices by 80-virtual,
// and both by 80.
func built(architectures, toolkit string) doctor.Build {
	b := doctor.Build{CUDA: toolkit}
	for _, a := range strings.Split(architectures, ";") {
		number, kind, _ := strings.Cut(strings.TrimSpace(a), "-")
		if number == "" {
			continue
		}
		if kind != "virtual" {
			b.Archs = append(b.Archs, "sm_"+number)
		}
		if kind != "real" {
			b.Archs = append(b.Archs, "compute_"+number)
		}
	}
	return b
}

func (con *console) printDoctor(c *cli.Context, r *doctor.Report) error {
	var err error
	if c.Bool("json") {
		err = con.printJSON(r)
	} else {
		err = r.Print(con.out, con.verdicts())
	}
	if err == nil && !r.OK {
		err = fmt.Errorf("this machine is not fit: %d of %d checks found a fault", r.Faults, len(r.Lines))
	}
	return err
}

// verdicts colours them on a terminal; nil elsewhere.
func (con *console) verdicts() func(doctor.Status, string) string {
	if !con.outTerminal || os.Getenv("NO_COLOR") != "" {
		return nil
	}
	colours := map[doctor.Status]string{doctor.OK: "\x1b[32m", doctor.Warning: "\x1b[33m", doctor.Fault: "\x1b[31m"}
	return func(s doctor.Status, text string) string { return colours[s] + text + plain }
}
