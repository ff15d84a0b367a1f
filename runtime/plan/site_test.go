package plan

import (
	"math"
	"testing"
)

func TestWorkBySiteSumsToTheBudget(t *testing.T) {
	for name, c := range geometries(t) {
		t.Run(name, func(t *testing.T) {
			zero := make([]int, c.Layers)
			all := Thresholds{zero, zero, zero}
			for what, x := range map[string]struct {
				sites  func(Sites)
				budget *Budget
			}{
				"decode": {func(s Sites) { s.AddDecode(c, 3, 2000) }, DecodeBudget(c, 3, 2000)},
				"prompt": {func(s Sites) { s.AddPrompt(c, all, 300, 128) }, PromptBudget(c, all, 300, 128)},
			} {
				sites, sum := Sites{}, Budget{}
				x.sites(sites)
				for at, w := range sites {
					if inLayer := at.Part != PartEmbedding && at.Part != PartHead; inLayer != (at.Layer >= 0) || at.Layer >= c.Layers {
						t.Errorf("%s: work at %+v", what, at)
					}
					if at.Kernel == Move.String() || at.Kernel == Layer.String() {
						t.Errorf("%s: %q is no kernel", what, at.Kernel)
					}
					sum[at.Part].Bytes += w.Bytes
					sum[at.Part].FLOPs += w.FLOPs
				}
				want := *x.budget // the shared expert counts for the kernel that runs it
				want[PartExperts].Bytes += want[PartShared].Bytes
				want[PartExperts].FLOPs += want[PartShared].FLOPs
				want[PartShared] = Work{}
				for p := range NumParts {
					if math.Abs(sum[p].Bytes-want[p].Bytes) > 1e-9*want[p].Bytes || math.Abs(sum[p].FLOPs-want[p].FLOPs) > 1e-9*want[p].FLOPs {
						t.Errorf("%s, %s: %+v by site, budget %+v", what, p, sum[p], want[p])
					}
				}
			}
		})
	}
}
