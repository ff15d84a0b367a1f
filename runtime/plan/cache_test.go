package plan

import "testing"

func TestACacheThatNobodyAskedForGivesWay(t *testing.T) {
	under := func(most int64) func(Cache) bool {
		return func(c Cache) bool { return c.Pages+c.Snapshots <= most }
	}
	for _, c := range []struct {
		name             string
		cache            Cache
		most             int64
		pages, snapshots int64
	}{
		{"what fits stays", HostCache(100, false), 100, 50, 50},
		{"both halves shrink on the CPU", HostCache(100, false), 60, 25, 25},
		{"all of it, if there is no room", HostCache(100, false), 0, 0, 0},
		{"a flag's size does not", HostCache(100, true), 60, 50, 50},
		{"a device's pages shrink, the host's snapshots do not", DeviceCache(30, 1600), 60, 25, 30},
		{"to nothing", DeviceCache(30, 1600), 10, 0, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.cache.Shrink(under(c.most)); got.Pages != c.pages || got.Snapshots != c.snapshots {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestCapabilitiesOfOtherGPUs(t *testing.T) {
	for name, want := range map[string]string{
		"9.0": "GPU of compute capability 9.0", "sm_90a": "GPU of compute capability 9.0", "12.0": "GPU of compute capability 12.0", "voodoo 5": "voodoo 5", "1.2.3": "1.2.3",
		"7.5": "", "sm_70": "",
	} {
		g, err := OtherGPU(name, 1<<30)
		if want == "" {
			if err == nil {
				t.Errorf("%s: taken", name)
			}
		} else if err != nil || g.Name != want || g.Known() || g.Memory != 1<<30 {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}
