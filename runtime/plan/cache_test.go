package plan

import "testing"

func TestACacheThatNobodyAskedForGivesWay(t *testing.T) {
	for _, c := range []struct {
		name             string
		cache            Cache
		device, host     int64 // bytes that there are
		pages, snapshots int64
	}{
		{"what fits stays", HostCache(100, false), 0, 100, 50, 50},
		{"both halves shrink on the CPU", HostCache(100, false), 0, 60, 25, 25},
		{"all of it, if there is no room", HostCache(100, false), 0, 0, 0, 0},
		{"a flag's size does not", HostCache(100, true), 0, 60, 50, 50},
		{"a device's pages shrink, the host's snapshots do not", DeviceCache(30, 1600, false), 60, 30, 50, 30},
		{"to nothing", DeviceCache(30, 1600, false), -1, 30, 0, 30},
		{"the host's snapshots shrink, a device's pages do not", DeviceCache(30, 1600, false), 100, 20, 100, 15},
		{"those to nothing", DeviceCache(30, 1600, false), 100, -1, 100, 0},
		{"not if a flag says", DeviceCache(30, 1600, true), 60, 20, 50, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			onDevice := func(x Cache) bool { return x.Pages <= c.device }
			onHost := func(x Cache) bool { return x.Snapshots <= c.host }
			if !c.cache.device {
				onHost = func(x Cache) bool { return x.Pages+x.Snapshots <= c.host }
			}
			if got := c.cache.Shrink(onDevice, onHost); got.Pages != c.pages || got.Snapshots != c.snapshots {
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
