package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/plan"
	"cedrun/runtime/selftest"
)

func deviceFlag() cli.Flag {
	return intFlag(groupCompute, "device", 0, 0, "", "with --backend cuda: compute on CUDA device `N`; cedrun doctor lists them")
}

func expertMemoryFlag() cli.Flag {
	return stringFlag(groupCompute, "expert-memory", "", "with --backend cuda: give routed experts `SIZE` of the device's memory (as in 60GiB); all lie in host memory then, from where those without room are read (default: what is free)")
}

func expertComputeFlag() cli.Flag {
	return stringFlag(groupCompute, "expert-compute", "device", "with --backend cuda: `WHERE` experts without room on the device are computed: device, which reads them over the bus, or cpu, from host memory, with bits of its own for each --expert-memory")
}

// expertsByHost reads --expert-compute.
func expertsByHost(c *cli.Context) (bool, error) {
	switch where := c.String("expert-compute"); where {
	case "", "device":
		return false, nil
	case "cpu":
		return true, nil
	default:
		return false, fmt.Errorf("--expert-compute %q: use device or cpu", where)
	}
}

// backend reads --backend, and --device and --expert-memory, which it keeps for start.
func (con *console) backend(c *cli.Context) (ced.Kind, error) {
	name := c.String("backend")
	kind, err := con.kind(name, c.Int("device"))
	if err != nil {
		return 0, fmt.Errorf("--backend %s: %w", name, err)
	}
	con.automaticBackend = name == "auto"
	if kind == ced.CUDA {
		con.device = c.Int("device")
		if text := c.String("expert-memory"); text != "" {
			if con.expertMemory, err = plan.ParseSize(text); err != nil {
				return 0, fmt.Errorf("--expert-memory: %w", err)
			}
		}
		if con.hostExperts, err = expertsByHost(c); err != nil {
			return 0, err
		}
	} else if c.IsSet("expert-compute") {
		return 0, fmt.Errorf("--expert-compute: the back end %s computes all experts; use --backend cuda", kind)
	} else if c.IsSet("expert-memory") {
		return 0, fmt.Errorf("--expert-memory: the back end %s has no memory of its own; use --backend cuda", kind)
	} else if c.IsSet("device") {
		return 0, fmt.Errorf("--device %d: the back end %s has none; use --backend cuda", c.Int("device"), kind)
	}
	return kind, nil
}

// placed is a sized setup where it computes: on its device, as the flags say, or on the CPU instead of a device that auto
// took and that has no room for it, with a word why. Flags that ask for the impossible stay errors. Every command that
// computes goes through here.
func (con *console) placed(f *engine.Files, setup engine.Setup) engine.Setup {
	if setup.Backend != ced.CUDA {
		return setup
	}
	setup.Device, setup.ExpertBytes, setup.HostExperts = con.device, int(con.expertMemory), con.hostExperts
	load, err := f.Plan(setup)
	short := isMisfit(err)
	if err == nil && load.Device.ExpertsHost > 0 {
		err = load.Check()
		short = err != nil
	}
	if short && con.leavesDevice(err) {
		setup.Backend, setup.Device, setup.ExpertBytes, setup.HostExperts = ced.CPU, 0, 0, false
	}
	return setup
}

func isMisfit(err error) bool {
	var misfit *plan.FitError
	return errors.As(err, &misfit)
}

// leavesDevice reports whether nobody asked for the device that lacks room, and says what it lacks.
func (con *console) leavesDevice(err error) bool {
	if !con.automaticBackend {
		return false
	}
	why := err.Error()
	why = why[:max(strings.LastIndex(why, ": "), 0)] // without the remedy, for this is one
	con.log.Warn().Msg(why + "; computing on the CPU")
	return true
}

func (con *console) kind(name string, device int) (ced.Kind, error) {
	switch name {
	case "cpu":
		return ced.CPU, nil
	case "ref":
		return ced.Ref, nil
	case "auto":
		return con.automatic(device), nil
	case "cuda":
		if cudaArchitectures == "" && !ced.Simulated {
			return 0, errors.New("this build has no CUDA back end: use --backend cpu, or bin/cedrun-cuda, which make cuda builds")
		}
		if err := usable(device); err != nil {
			if n := ced.Devices(ced.CUDA); n > 0 && device >= n {
				return 0, fmt.Errorf("%w; use --device 0, or another of those that cedrun doctor lists", err)
			}
			return 0, fmt.Errorf("%w; use --backend cpu, or cedrun doctor to see what is missing", err)
		}
		return ced.CUDA, nil
	}
	return 0, errors.New("use auto, cpu, cuda or ref")
}

// simulatedAuto in the environment lets auto take a simulated device, which is far slower than the CPU.
const simulatedAuto = "CED_SIM_AUTO"

// automatic is the device where the build has kernels for it and they compute rightly there, else the CPU, with a word why.
func (con *console) automatic(device int) ced.Kind {
	if !devices() {
		return ced.CPU
	}
	err := usable(device)
	if err == nil {
		if err = tryKernels(device); err == nil {
			return ced.CUDA
		}
	}
	con.log.Warn().Msg(err.Error() + "; computing on the CPU")
	return ced.CPU
}

// devices reports whether auto looks for some.
func devices() bool {
	return cudaArchitectures != "" || ced.Simulated && os.Getenv(simulatedAuto) != ""
}

// usable says what is wrong with a device.
func usable(device int) error {
	n := ced.Devices(ced.CUDA)
	if n > 0 && device >= n {
		return fmt.Errorf("there is no CUDA device %d: this machine has %d, counted from 0", device, n)
	}
	if _, err := ced.DeviceInfo(device); err != nil {
		return err
	}
	return nil
}

// tryKernels opens a stream on a device and compares each of its kernels with the reference.
func tryKernels(device int) error {
	s, err := ced.Open(ced.CUDA, device, 0)
	if err != nil {
		return err
	}
	defer s.Close()
	return selftest.Kernels(s)
}
