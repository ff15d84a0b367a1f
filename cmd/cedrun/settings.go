package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"
)

const configHelp = "Every flag can also be set by CEDRUN_<FLAG> in the environment (CEDRUN_MODEL=DIR), or in the config file: key = value\n" +
	"for all commands that have the flag, and in a table [COMMAND] for one of them. A flag wins over the environment, the\n" +
	"environment over the file. An example of ~/.config/cedrun/config.toml:\n\n" +
	"  model = \"/models/DeepSeek-V4.1-Flash\"\n" +
	"  threads = 16\n" +
	"  [generate]\n" +
	"  temperature = 0.7"

func configFlag() cli.Flag {
	return withDefault(stringFlag(groupConfig, "config", "", "read defaults of flags from `FILE` (TOML); empty reads none"),
		"cedrun/config.toml in $XDG_CONFIG_HOME or ~/.config, if it is there")
}

// withSettings lets the config file set the flags of commands.
func withSettings(commands []*cli.Command) {
	for _, c := range commands {
		if len(c.Flags) > 0 {
			c.Flags = append(c.Flags, configFlag())
			c.Before = configure
		}
	}
}

// configure gives flags that neither the command line nor the environment set the values of the config file.
func configure(c *cli.Context) error {
	path, err := configPath(c)
	if err != nil || path == "" {
		return err
	}
	s, err := readSettings(path, c.App.Commands)
	if err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		values, key := s.of(c.Command.Name, name)
		if key == "" || c.IsSet(name) {
			continue
		}
		for _, v := range values {
			if err := c.Set(name, v); err != nil {
				return fmt.Errorf("config %s: %s = %s: %w; give %s", path, key, v, err, valueOf(f))
			}
		}
		if a, ok := f.(cli.ActionableFlag); ok {
			if err := a.RunAction(c); err != nil {
				return fmt.Errorf("config %s: %s: %w", path, key, err)
			}
		}
	}
	return nil
}

// configPath is the file to read, "" for none: only a file that was asked for must be there.
func configPath(c *cli.Context) (string, error) {
	if c.IsSet("config") {
		return c.String("config"), nil
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", nil // a process without a home directory has no file of its own
		}
		dir = filepath.Join(home, ".config")
	}
	path := filepath.Join(dir, "cedrun", "config.toml")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("config: %w", err)
	}
	return path, nil
}

// settings are the values of a config file as texts that flags parse: by command, "" for all, and flag.
type settings map[string]map[string][]string

// of finds the value of a command's flag and the key it stands at.
func (s settings) of(command, flag string) (values []string, key string) {
	if v, ok := s[command][flag]; ok {
		return v, command + "." + flag
	}
	if v, ok := s[""][flag]; ok {
		return v, flag
	}
	return nil, ""
}

func readSettings(path string, commands []*cli.Command) (settings, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseSettings(data, commands)
}

// parseSettings decodes a config file. Every key must be a flag of a command, or a command's table of its flags; every
// value must have the flag's type.
func parseSettings(data []byte, commands []*cli.Command) (settings, error) {
	var file map[string]any
	if err := toml.NewDecoder(bytes.NewReader(data)).Decode(&file); err != nil {
		var d *toml.DecodeError
		if errors.As(err, &d) {
			line, column := d.Position()
			return nil, fmt.Errorf("line %d, column %d: %w", line, column, err)
		}
		return nil, err
	}
	s := settings{"": {}}
	for _, key := range slices.Sorted(maps.Keys(file)) {
		if table, ok := file[key].(map[string]any); ok {
			i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.Name == key })
			if i < 0 {
				return nil, fmt.Errorf("table [%s]: there is no such command (cedrun --help lists them)", key)
			}
			s[key] = map[string][]string{}
			for _, name := range slices.Sorted(maps.Keys(table)) {
				if err := s.add(key, name, table[name], commands[i:i+1]); err != nil {
					return nil, fmt.Errorf("[%s] %w", key, err)
				}
			}
			continue
		}
		if err := s.add("", key, file[key], commands); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add reads one value for the flag of that name of some of the commands.
func (s settings) add(command, name string, value any, commands []*cli.Command) error {
	known := false
	for _, c := range commands {
		for _, f := range c.Flags {
			if f.Names()[0] != name || name == "help" || name == "config" {
				continue
			}
			known = true
			texts, err := texts(f, value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			s[command][name] = texts
		}
	}
	if known {
		return nil
	}
	var all []cli.Flag
	for _, c := range commands {
		all = append(all, c.Flags...)
	}
	return fmt.Errorf("unknown key %q: keys are the long names of flags. %s", name, fmt.Sprintf(cli.SuggestDidYouMeanTemplate, strings.TrimLeft(cli.SuggestFlag(all, name, true), "-")))
}

// valueOf says what values a flag takes.
func valueOf(f cli.Flag) string {
	switch f.(type) {
	case *cli.BoolFlag:
		return "true or false"
	case *cli.Float64Flag:
		return "a number"
	case *cli.DurationFlag:
		return "a time with its unit, as in 90s or 10m"
	case *cli.StringSliceFlag:
		return "a list of strings"
	case *cli.StringFlag:
		return "a string"
	case *cli.UintFlag, *cli.Uint64Flag:
		return "an integer of 0 or more"
	}
	return "an integer"
}

// texts writes a value as a flag reads it.
func texts(f cli.Flag, value any) ([]string, error) {
	switch f.(type) {
	case *cli.BoolFlag:
		if v, ok := value.(bool); ok {
			return []string{strconv.FormatBool(v)}, nil
		}
	case *cli.Float64Flag:
		switch v := value.(type) {
		case float64:
			return []string{strconv.FormatFloat(v, 'g', -1, 64)}, nil
		case int64:
			return []string{strconv.FormatInt(v, 10)}, nil
		}
	case *cli.StringSliceFlag:
		if list, ok := value.([]any); ok {
			var out []string
			for _, v := range list {
				text, ok := v.(string)
				if !ok {
					return nil, fmt.Errorf("%v is not a string", v)
				}
				out = append(out, text)
			}
			return out, nil
		}
	case *cli.StringFlag, *cli.DurationFlag:
		if v, ok := value.(string); ok {
			return []string{v}, nil
		}
	default: // integers of any width
		if v, ok := value.(int64); ok {
			return []string{strconv.FormatInt(v, 10)}, nil
		}
	}
	return nil, fmt.Errorf("%v is not %s", value, valueOf(f))
}
