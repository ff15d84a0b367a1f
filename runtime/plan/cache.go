package plan

import (
	"cedrun/runtime/config"
	"cedrun/runtime/kv"
)

// Cache is the prefix cache that a server keeps beside the room for its texts, in bytes: pages in the back end's memory,
// snapshots in the host's.
type Cache struct {
	Pages, Snapshots int64
	fixed            bool // as a flag says; of a device the snapshots
	device           bool // pages are in a device's memory
}

// DefaultCache is what of free memory a cache takes if no flag says.
func DefaultCache(free int64) int64 { return min(free/16, 4<<30) }

// HostCache is host bytes on the CPU: one half for pages, the other for snapshots. given: a flag says so.
func HostCache(host int64, given bool) Cache {
	return Cache{Pages: host / 2, Snapshots: host - host/2, fixed: given}
}

// DeviceCache has pages in a device's memory, of which free bytes are free, and host bytes of snapshots. given: a flag says
// how many those are.
func DeviceCache(host, free int64, given bool) Cache {
	return Cache{Pages: DefaultCache(free), Snapshots: host, fixed: given, device: true}
}

// Shrink halves what no flag asked for until all fits, or nothing is left of it: pages and snapshots together on the CPU;
// of a device pages until that holds them, then snapshots until the host does.
func (c Cache) Shrink(device, host func(Cache) bool) Cache {
	for c.device && c.Pages > 0 && !device(c) {
		c.Pages /= 2
	}
	for !c.fixed && c.Pages+c.Snapshots > 0 && !host(c) {
		if c.Snapshots /= 2; !c.device {
			c.Pages /= 2
		} else if c.Snapshots == 0 {
			break
		}
	}
	return c
}

// In is a setup whose texts have room for tokens, with the cache.
func (c Cache) In(s Setup, m *config.Config, tokens int) Setup {
	s.KVTokens, s.Snapshots = tokens+TokensIn(m, c.Pages), c.Snapshots
	return s
}

// TextTokens is the room for slots texts of a context each, in whole pages.
func TextTokens(slots, context int) int { return slots * kv.PagesFor(context) * kv.PageTokens }
