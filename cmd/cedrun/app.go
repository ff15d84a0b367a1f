package main

import (
	"fmt"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// newApp builds the command line on a console.
func newApp(con *console) *cli.App {
	commands := []*cli.Command{generateCommand(con), chatCommand(con), serveCommand(con), loadCommand(con), inspectCommand(con), planCommand(con), benchCommand(con), topCommand(con), profileCommand(con), verifyCommand(con), doctorCommand(con), tokenizeCommand(con), renderCommand(con), logitsCommand(con), conformCommand(con), evalCommand(con), synthCommand(con), completionCommand(con)}
	for _, c := range commands {
		c.OnUsageError = usageError
	}
	withSettings(commands)
	return &cli.App{
		Name:  "cedrun",
		Usage: "run DeepSeek-V4.1-Flash and models of its architecture on one machine",
		Description: "cedrun generate -p TEXT writes text with the embedded demo model; --model DIR takes a checkpoint in the\n" +
			"released layout.\n\n" + configHelp,
		Version:                   version(),
		Commands:                  commands,
		Reader:                    con.in,
		Writer:                    con.out,
		ErrWriter:                 con.err,
		Suggest:                   true,
		DisableSliceFlagSeparator: true,
		HideHelpCommand:           true,
		OnUsageError:              usageError,
		ExitErrHandler:            func(*cli.Context, error) {}, // main exits
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return cli.ShowAppHelp(c)
			}
			name := c.Args().First()
			return fmt.Errorf("unknown command %q. %s; cedrun --help lists the commands", name, strings.TrimSuffix(cli.SuggestCommand(commands, name), "?")+"?")
		},
	}
}

// release is the version of a release tarball, set by its build.
var release string

// version is what this program was built from, and for which devices.
func version() string {
	if cudaToolkit != "" {
		return origin() + " CUDA " + cudaToolkit + " " + strings.Join(built(cudaArchitectures, cudaToolkit).Archs, " ")
	}
	return origin()
}

// origin is the release's or the module's version, or the commit that the build knows.
func origin() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if release != "" {
		return release + " " + info.GoVersion
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && !strings.Contains(v, s.Value[:min(12, len(s.Value))]) {
			v += " (" + s.Value[:min(12, len(s.Value))] + ")"
		}
	}
	return v + " " + info.GoVersion
}

var (
	flagName = regexp.MustCompile(` -([\w-]+)`)
	// What the flag parser says of a value on the command line, and of one in the environment.
	badArgument = regexp.MustCompile(`^invalid (?:boolean )?value "(.*)" for (?:flag )?-([\w-]+): (.*)$`)
	badVariable = regexp.MustCompile(`^could not parse "(.*)" as .* from environment variable "(\w+)" for flag ([\w-]+): (.*)$`)
)

// badValue is what to say of a value that is not of its flag's type, "" if that is not what err is about.
func badValue(c *cli.Context, err error) string {
	said, name, problem := "", "", ""
	if m := badArgument.FindStringSubmatch(err.Error()); m != nil {
		said, name, problem = fmt.Sprintf("invalid value %q for flag --%s", m[1], m[2]), m[2], m[3]
	} else if m := badVariable.FindStringSubmatch(err.Error()); m != nil {
		said, name, problem = fmt.Sprintf("invalid value %q in %s for flag --%s", m[1], m[2], m[3]), m[3], m[4]
	}
	i := slices.IndexFunc(c.Command.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 {
		return ""
	}
	if strings.Contains(problem, "out of range") {
		return said + ": it is too large or too small"
	}
	return said + ": give " + valueOf(c.Command.Flags[i])
}

// usageError rewords what the flag parser says and adds the flag that was probably meant.
func usageError(c *cli.Context, err error, _ bool) error {
	text := badValue(c, err)
	if text == "" {
		text = flagName.ReplaceAllString(err.Error(), " --$1")
	}
	text = strings.Replace(text, "flag provided but not defined:", "unknown flag", 1)
	if name, unknown := strings.CutPrefix(text, "unknown flag --"); unknown {
		if elsewhere(c.App.Commands, name) {
			text += ": other commands have it, this one does not"
		} else {
			text += ". " + fmt.Sprintf(cli.SuggestDidYouMeanTemplate, cli.SuggestFlag(c.Command.Flags, name, false))
		}
	}
	return fmt.Errorf("%s (%s --help lists the flags)", text, c.Command.HelpName)
}

func elsewhere(commands []*cli.Command, flag string) bool {
	return slices.ContainsFunc(commands, func(c *cli.Command) bool {
		return slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), flag) })
	})
}

// action wraps the body of a command: at most args positional arguments, and a logger.
func (con *console) action(args int, body func(c *cli.Context) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		given := c.Args().Slice()
		for _, a := range given {
			if strings.HasPrefix(a, "-") && a != "-" {
				return fmt.Errorf("%s stands after the argument %q, where flags are not read: put flags first", a, given[0])
			}
		}
		if len(given) > args {
			return fmt.Errorf("unexpected argument %q: %s takes its input by flags (%s --help)", given[args], c.Command.Name, c.Command.HelpName)
		}
		if err := con.logTo(c.String("log-level")); err != nil {
			return err
		}
		con.noSelfTest, con.noGraphs = c.Bool("no-self-test"), c.Bool("no-graphs")
		if err := con.readWarming(c); err != nil {
			return err
		}
		return body(c)
	}
}
