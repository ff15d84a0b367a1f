package doctor

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cedrun/runtime/config"
	"cedrun/runtime/gpu"
	"cedrun/runtime/plan"
	"cedrun/runtime/verify"
)

// Options say what to look at.
type Options struct {
	Model    verify.Subject
	CacheDir string // "" = none is used
	Address  string // host and port of serve
	// DiskTime is what may be spent on reading from disk; 0: nothing is read.
	DiskTime time.Duration
	Kernels  Kernels
	Threads  int // of a stream
	Build    Build
	CUDA     CUDA
}

// Gather looks at this machine. Its error is ctx's.
func Gather(ctx context.Context, o Options) (*Facts, error) {
	f := &Facts{
		Root: os.DirFS("/"), System: system(), Threads: o.Threads, Kernels: o.Kernels, Build: o.Build, CUDA: o.CUDA, Address: o.Address,
		LockLimit: limit(unix.RLIMIT_MEMLOCK), FileLimit: limit(unix.RLIMIT_NOFILE),
	}
	f.Processors = processors(o.Threads)
	monitor := gpu.Open()
	f.GPU = monitor.Read()
	monitor.Close()
	f.Toolkit = findToolkit(ctx)
	if o.CacheDir != "" {
		f.Cache = Place{o.CacheDir, writable(o.CacheDir)}
	}
	f.PortErr = listen(ctx, o.Address)
	if err := f.look(ctx, o.Model); err != nil {
		return nil, err
	}
	if o.DiskTime > 0 && o.Model.FS == nil {
		f.Disk, f.DiskErr = MeasureDisk(ctx, o.Model.Dir, o.DiskTime)
	}
	return f, ctx.Err()
}

// look reads what there is of the model, headers only.
func (f *Facts) look(ctx context.Context, s verify.Subject) (err error) {
	m := &f.Model
	m.Name, m.Dir, m.Free = s.Name, s.Dir, -1
	if m.Report, err = verify.Run(ctx, s, verify.Options{}); err != nil {
		return err
	}
	for _, file := range m.Report.Files {
		if filepath.Ext(file.Name) == ".safetensors" {
			m.Shards++
			m.Size += file.Bytes
		}
	}
	fsys := s.FS
	if fsys == nil {
		fsys = os.DirFS(s.Dir)
		var st unix.Statfs_t
		if unix.Statfs(s.Dir, &st) == nil {
			m.Free = int64(st.Bavail) * st.Bsize
		}
	}
	if b, err := fs.ReadFile(fsys, "config.json"); err == nil {
		if m.Config, err = config.Parse(b); err == nil { // else the report has the fault
			m.Weights = plan.CountWeights(m.Config)
		}
	}
	return nil
}

// limit is a soft limit of this process.
func limit(what int) uint64 {
	var r unix.Rlimit
	if unix.Getrlimit(what, &r) != nil {
		return Unlimited
	}
	return r.Cur
}

// processors counts those of the affinity mask.
func processors(otherwise int) int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return otherwise
	}
	return set.Count()
}

// writable reports why nothing can be written to a directory, which is made if it is not there.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// listen reports why a server could not.
func listen(ctx context.Context, address string) error {
	var c net.ListenConfig
	ln, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		var number syscall.Errno
		if errors.As(err, &number) {
			return number
		}
		return err
	}
	return ln.Close()
}

var nvccRelease = regexp.MustCompile(`release (\d+\.\d+)`)

// findToolkit looks for nvcc where the build does: CUDA_HOME, the PATH, and where packages put it.
func findToolkit(ctx context.Context) (t Toolkit) {
	var places []string
	for _, v := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if dir := os.Getenv(v); dir != "" {
			places = append(places, filepath.Join(dir, "bin/nvcc"))
		}
	}
	if path, err := exec.LookPath("nvcc"); err == nil {
		places = append(places, path)
	}
	for _, p := range append(places, "/usr/local/cuda/bin/nvcc") {
		if st, err := os.Stat(p); err == nil && !st.IsDir() {
			t.Path = p
			break
		}
	}
	if t.Path == "" {
		return t
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, t.Path, "--version").Output()
	if m := nvccRelease.FindSubmatch(bytes.TrimSpace(out)); err == nil && m != nil {
		t.Version = string(m[1])
	}
	return t
}
