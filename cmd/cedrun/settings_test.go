package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

// values runs a command line of a program with the commands write and read, both with the flags of every type, and
// returns what the command sees.
func values(t *testing.T, args ...string) (map[string]any, error) {
	t.Helper()
	var got map[string]any
	command := func(name string, more ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Flags: append([]cli.Flag{
			stringFlag(groupModel, "model", "none", "", "m"),
			intFlag(groupCompute, "threads", 0, 0, "", ""),
			floatFlag(groupSample, "temperature", 1, ""),
			boolFlag(groupOutput, "json", ""),
			&cli.StringSliceFlag{Name: "stop", EnvVars: env("stop")},
			&cli.Uint64Flag{Name: "seed", EnvVars: env("seed")},
		}, more...), Action: func(c *cli.Context) error {
			got = map[string]any{
				"model": c.String("model"), "threads": c.Int("threads"), "temperature": c.Float64("temperature"),
				"json": c.Bool("json"), "stop": strings.Join(c.StringSlice("stop"), "|"), "seed": c.Uint64("seed"),
			}
			return nil
		}}
	}
	commands := []*cli.Command{command("write", stringFlag(groupOutput, "out", "", "")), command("read")}
	withSettings(commands)
	app := &cli.App{Commands: commands, Writer: io.Discard, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {}, DisableSliceFlagSeparator: true}
	err := app.RunContext(context.Background(), append([]string{"cedrun"}, args...))
	return got, err
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagWinsOverEnvironmentOverFileOverDefault(t *testing.T) {
	type set = map[string]any
	defaults := set{"model": "none", "threads": 0, "temperature": 1.0, "json": false, "stop": "", "seed": uint64(0)}
	for _, c := range []struct {
		name string
		file string
		env  string
		args []string
		want set // other than the defaults
	}{
		{"nothing", "", "", nil, set{}},
		{"file, every type", "model = 'a'\nthreads = 3\ntemperature = 0.25\njson = true\nstop = ['x', 'y,z']\nseed = 7", "", nil,
			set{"model": "a", "threads": 3, "temperature": 0.25, "json": true, "stop": "x|y,z", "seed": uint64(7)}},
		{"file, an integer for a number", "temperature = 2", "", nil, set{"temperature": 2.0}},
		{"file, table of the command", "threads = 3\n[write]\nthreads = 4\n[read]\nthreads = 5", "", nil, set{"threads": 4}},
		{"file, table of another command", "threads = 3\n[read]\nthreads = 5", "", nil, set{"threads": 3}},
		{"file, a flag of some commands", "out = 'o'", "", nil, set{}},
		{"environment over file", "[write]\nmodel = 'a'", "b", nil, set{"model": "b"}},
		{"flag over file", "model = 'a'", "", []string{"--model", "c"}, set{"model": "c"}},
		{"short flag over file", "model = 'a'", "", []string{"-m", "c"}, set{"model": "c"}},
		{"flag over environment and file", "model = 'a'", "b", []string{"-m", "c"}, set{"model": "c"}},
		{"flag set to its default over file", "threads = 3", "", []string{"--threads", "0"}, set{}},
		{"false over file", "json = true", "", []string{"--json=false"}, set{}},
		{"lists are not joined", "stop = ['x']", "", []string{"--stop", "y"}, set{"stop": "y"}},
		{"no file", "model = 'a'", "", []string{"--config", ""}, set{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("CEDRUN_MODEL", c.env)
			}
			dir := t.TempDir()
			t.Setenv("XDG_CONFIG_HOME", dir)
			if err := os.Mkdir(filepath.Join(dir, "cedrun"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "cedrun", "config.toml"), []byte(c.file), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := values(t, append([]string{"write"}, c.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			want := set{}
			for k, v := range defaults {
				want[k] = v
			}
			for k, v := range c.want {
				want[k] = v
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhereTheConfigFileIs(t *testing.T) {
	path := configFile(t, "model = 'named'")
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", home)
	for _, c := range []struct {
		name, env string
		args      []string
		want      string
	}{
		{"none", "", nil, "none"},
		{"flag", "", []string{"--config", path}, "named"},
		{"environment", path, nil, "named"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("CEDRUN_CONFIG", c.env)
			}
			if got, err := values(t, append([]string{"write"}, c.args...)...); err != nil || got["model"] != c.want {
				t.Errorf("model %v, %v; want %s", got["model"], err, c.want)
			}
		})
	}
	t.Run("~/.config", func(t *testing.T) {
		if err := os.MkdirAll(filepath.Join(home, ".config", "cedrun"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, ".config", "cedrun", "config.toml"), []byte("model = 'home'"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := values(t, "write"); err != nil || got["model"] != "home" {
			t.Errorf("model %v, %v", got["model"], err)
		}
	})
}

func TestBadConfigFile(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"not TOML", "threads = 1\nmodel", "line 2, column"},
		{"key twice", "threads = 1\nthreads = 2", "threads"},
		{"unknown key", "modle = 'a'", `unknown key "modle": keys are the long names of flags. Did you mean "model"?`},
		{"short name", "m = 'a'", `unknown key "m"`},
		{"unknown key of a command", "[write]\ntemprature = 1", `[write] unknown key "temprature": keys are the long names of flags. Did you mean "temperature"?`},
		{"flag of another command", "[read]\nout = 'o'", `[read] unknown key "out"`},
		{"unknown command", "[wrote]\nmodel = 'a'", "table [wrote]: there is no such command"},
		{"help", "help = true", `unknown key "help"`},
		{"another config file", "config = 'a'", `unknown key "config"`},
		{"text for an integer", "threads = 'many'", "threads: many is not an integer"},
		{"fraction for an integer", "threads = 1.5", "threads: 1.5 is not an integer"},
		{"integer for a text", "model = 3", "model: 3 is not a string"},
		{"integer for a switch", "json = 1", "json: 1 is not true or false"},
		{"text for a number", "temperature = '1'", "temperature: 1 is not a number"},
		{"text for a list", "stop = 'x'", "stop: x is not a list of strings"},
		{"integer in a list", "stop = ['x', 1]", "stop: 1 is not a string"},
		{"type, in a table of another command", "[read]\nthreads = 'x'", "[read] threads: x is not an integer"},
		{"negative for unsigned", "seed = -1", "seed = -1"},
		{"value out of range", "[write]\nthreads = -1", "write.threads: --threads -1: use 0 or more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := configFile(t, c.text)
			_, err := values(t, "write", "--config", path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "config "+path+": ") {
				t.Errorf("error %v, want %q after the file's name", err, c.want)
			}
		})
	}
	if _, err := values(t, "write", "--config", "absent.toml"); err == nil || !strings.Contains(err.Error(), "config absent.toml: ") {
		t.Errorf("absent file: %v", err)
	}
}

// Every flag of the program can stand in the config file.
func TestEveryFlagIsAKey(t *testing.T) {
	commands := newApp(newConsole(nil, io.Discard, io.Discard)).Commands
	var file strings.Builder
	for _, c := range commands {
		file.WriteString("[" + c.Name + "]\n")
		for _, f := range c.Flags {
			value := "1"
			switch f.(type) {
			case *cli.StringFlag, *cli.DurationFlag:
				value = "''"
			case *cli.BoolFlag:
				value = "true"
			case *cli.StringSliceFlag:
				value = "['']"
			}
			if name := f.Names()[0]; name != "config" {
				file.WriteString(name + " = " + value + "\n")
			}
		}
	}
	if _, err := parseSettings([]byte(file.String()), commands); err != nil {
		t.Error(err)
	}
}

func FuzzSettings(f *testing.F) {
	commands := newApp(newConsole(nil, io.Discard, io.Discard)).Commands
	for _, seed := range []string{"", "model = 'a'\nthreads = 3\n[generate]\nstop = ['x']\ntemperature = 1e-3", "[[generate]]", "a.b = 1", "threads = 1979-05-27"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSettings(data, commands)
		if (s == nil) == (err == nil) {
			t.Errorf("settings %v and error %v", s, err)
		}
	})
}
