package top

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Source makes views; a Sampler is one.
type Source interface {
	Sample(ctx context.Context) *View
	Next(v *View, step int)
}

// program is the state of the terminal view. Sampling runs beside it, one sample at a time.
type program struct {
	ctx    context.Context
	source Source
	screen Screen
	view   *View
	busy   bool // a sample is on its way
	timer  int  // of the last sample; earlier ones are void
	step   int  // processes to go on by before the next sample
}

type (
	sampled struct{ view *View }
	due     struct{ timer int }
)

// Watch draws views in a terminal until q is pressed or the context ends.
func Watch(ctx context.Context, source Source, s Screen, in io.Reader, out io.Writer) error {
	s.Keys = true
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of a sample on its way
	p := tea.NewProgram(&program{ctx: ctx, source: source, screen: s}, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	if _, err := p.Run(); err != nil && !errors.Is(err, tea.ErrProgramKilled) {
		return err
	}
	return nil
}

func (p *program) Init() tea.Cmd { return p.sample() }

// sample takes a view on a goroutine of the program.
func (p *program) sample() tea.Cmd {
	if p.busy {
		return nil
	}
	p.busy = true
	step, view := p.step, p.view
	p.step = 0
	return func() tea.Msg {
		if step != 0 && view != nil {
			p.source.Next(view, step)
		}
		return sampled{p.source.Sample(p.ctx)}
	}
}

func (p *program) wait() tea.Cmd {
	p.timer++
	timer := p.timer
	return tea.Tick(p.screen.Every, func(time.Time) tea.Msg { return due{timer} })
}

func (p *program) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m := m.(type) {
	case tea.WindowSizeMsg:
		p.screen.Width, p.screen.Height = m.Width, m.Height
	case sampled:
		p.busy = false
		if !p.screen.Paused {
			p.view = m.view
		}
		if p.step != 0 {
			return p, p.sample()
		}
		return p, p.wait()
	case due:
		switch {
		case m.timer != p.timer:
		case p.screen.Paused:
			return p, p.wait()
		default:
			return p, p.sample()
		}
	case tea.KeyPressMsg:
		return p.key(m.String())
	}
	return p, nil
}

func (p *program) key(name string) (tea.Model, tea.Cmd) {
	switch name {
	case "q", "esc", "ctrl+c", "ctrl+d":
		return p, tea.Quit
	case "p", "space":
		p.screen.Paused = !p.screen.Paused
	case "?", "h":
		p.screen.Help = !p.screen.Help
	case "tab", "right", "l":
		p.step++
		return p, p.sample()
	case "shift+tab", "left":
		p.step--
		return p, p.sample()
	case "down", "j":
		p.screen.Skip++
	case "up", "k":
		p.screen.Skip = max(0, p.screen.Skip-1)
	}
	return p, nil
}

func (p *program) View() tea.View {
	var v tea.View
	v.AltScreen = true
	switch {
	case p.view == nil:
		v.Content = "reading the machine"
	case p.screen.Width == 0:
	default:
		v.Content = Render(p.view, p.screen)
	}
	return v
}
