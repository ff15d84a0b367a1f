package plan

import "cedrun/runtime/config"

// Site is where a step spends its time: a layer (-1: none), a part of the model, and a kernel as traces name it.
type Site struct {
	Layer  int
	Part   Part
	Kernel string
}

// Sites is the work of steps by site: a Budget in full detail. Sites whose work is not counted are not in it.
type Sites map[Site]Work

// traced is where a trace has the call's time: the shared expert runs in the kernel of the routed ones, and of the
// kernels that only move data those that read tables are known by their part.
func (c *Call) traced() Site {
	s := Site{c.Layer, c.Part, c.Kernel.String()}
	switch {
	case c.Kernel == Shared:
		s.Part, s.Kernel = PartExperts, Experts.String()
	case c.Kernel == Move && c.Part == PartEmbedding:
		s.Kernel = "embed"
	case c.Kernel == Move && c.Part == PartEngram:
		s.Kernel = "engram_gather"
	}
	return s
}

func (s Sites) visit(c Call, times float64) {
	if w := (Work{times * (c.Bytes() + c.Lookup), times * c.FLOPs()}); w != (Work{}) {
		at := c.traced()
		have := s[at]
		s[at] = Work{have.Bytes + w.Bytes, have.FLOPs + w.FLOPs}
	}
}

// AddDecode adds the work of a decode step, as DecodeBudget counts it.
func (s Sites) AddDecode(c *config.Config, batch, position int) { Decode(c, batch, position, s.visit) }

// AddPrompt adds the work of a prompt, as PromptBudget counts it.
func (s Sites) AddPrompt(c *config.Config, t Thresholds, prompt, chunk int) {
	Prompt(c, t, prompt, chunk, s.visit)
}
