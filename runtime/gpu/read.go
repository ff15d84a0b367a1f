package gpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	nv "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// question asks a device for one figure, if the library knows how.
func question[T any](m *Monitor, g *GPU, what, symbol string, ask func() (T, nv.Return)) *T {
	if !m.has(symbol) {
		return nil
	}
	v, r := ask()
	if !g.offered(what, r) {
		return nil
	}
	return &v
}

// as converts a figure that may be missing.
func as[T, U any](v *T, to func(T) U) *U {
	if v == nil {
		return nil
	}
	u := to(*v)
	return &u
}

func milli(v uint32) float64        { return float64(v) / 1000 }
func enabled(v nv.EnableState) bool { return v == nv.FEATURE_ENABLED }

// read asks one device for everything, in the order of the screen. A GPU that is lost answers every question with the
// same error: it is asked no more after the first.
func (m *Monitor) read(index int, d nv.Device, now time.Time) GPU {
	g := GPU{Index: index, Name: fmt.Sprintf("GPU %d", index)}
	if name := question(m, &g, g.Name, "nvmlDeviceGetName", d.GetName); name != nil {
		g.Name = *name
	}
	if len(g.Faults) > 0 {
		return g
	}
	if v := question(m, &g, "UUID", "nvmlDeviceGetUUID", d.GetUUID); v != nil {
		g.UUID = *v
	}
	if m.has("nvmlDeviceGetPciInfo_v3") || m.has("nvmlDeviceGetPciInfo_v2") {
		if p, r := d.GetPciInfo(); g.offered("PCI address", r) {
			g.PCI = text(p.BusId[:])
		}
	}
	if m.has("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, r := d.GetCudaComputeCapability(); g.offered("compute capability", r) {
			s := fmt.Sprintf("%d.%d", major, minor)
			g.Capability = &s
		}
	}
	m.board(&g, d)
	m.memory(&g, d)
	m.clocks(&g, d)
	m.links(&g, d, now)
	m.ecc(&g, d)
	m.performance(&g, d)
	m.processes(&g, d)
	return g
}

// board reads fan, temperature, power and modes.
func (m *Monitor) board(g *GPU, d nv.Device) {
	g.Persistence = as(question(m, g, "persistence mode", "nvmlDeviceGetPersistenceMode", d.GetPersistenceMode), enabled)
	g.DisplayActive = as(question(m, g, "display", "nvmlDeviceGetDisplayActive", d.GetDisplayActive), enabled)
	g.Fan = question(m, g, "fan", "nvmlDeviceGetFanSpeed", d.GetFanSpeed)
	g.Temperature = question(m, g, "temperature", "nvmlDeviceGetTemperature", func() (uint32, nv.Return) { return m.temperature(d) })
	g.State = as(question(m, g, "performance state", "nvmlDeviceGetPerformanceState", d.GetPerformanceState), func(p nv.Pstates) string {
		if p == nv.PSTATE_UNKNOWN {
			return "?"
		}
		return fmt.Sprintf("P%d", p)
	})
	g.Power = as(question(m, g, "power", "nvmlDeviceGetPowerUsage", d.GetPowerUsage), milli)
	g.PowerLimit = as(question(m, g, "power limit", "nvmlDeviceGetEnforcedPowerLimit", d.GetEnforcedPowerLimit), milli)
	g.Energy = as(question(m, g, "energy", "nvmlDeviceGetTotalEnergyConsumption", d.GetTotalEnergyConsumption), func(mj uint64) float64 { return float64(mj) / 1000 })
	if u := question(m, g, "utilisation", "nvmlDeviceGetUtilizationRates", d.GetUtilizationRates); u != nil {
		g.Busy, g.MemoryBusy = &u.Gpu, &u.Memory
	}
	g.ComputeMode = as(question(m, g, "compute mode", "nvmlDeviceGetComputeMode", d.GetComputeMode), func(c nv.ComputeMode) string {
		switch c {
		case nv.COMPUTEMODE_DEFAULT:
			return "Default"
		case nv.COMPUTEMODE_PROHIBITED:
			return "Prohibited"
		case nv.COMPUTEMODE_EXCLUSIVE_PROCESS:
			return "E. Process"
		}
		return fmt.Sprint(int(c))
	})
	if m.has("nvmlDeviceGetMigMode") {
		if now, _, r := d.GetMigMode(); g.offered("MIG mode", r) {
			on := now == nv.DEVICE_MIG_ENABLE
			g.MIG = &on
		}
	}
}

// memory falls back to the system's where the device says that it has none of its own.
func (m *Monitor) memory(g *GPU, d nv.Device) {
	if m.has("nvmlDeviceGetMemoryInfo_v2") {
		if v, r := d.GetMemoryInfo_v2(); r == nv.SUCCESS && v.Total > 0 {
			g.Memory = &Memory{v.Total, v.Used, v.Reserved}
			return
		} else if n := len(g.Faults); !g.offered("memory", r) && len(g.Faults) > n {
			return
		}
	}
	if !m.has("nvmlDeviceGetMemoryInfo") {
		return
	}
	switch v, r := d.GetMemoryInfo(); { // counts what the driver keeps as used
	case r == nv.SUCCESS && v.Total > 0:
		g.Memory = &Memory{Total: v.Total, Used: v.Used}
	case r == nv.SUCCESS || r == nv.ERROR_NOT_SUPPORTED:
		g.Unified, g.Memory = true, systemMemory(m.root)
	default:
		g.offered("memory", r)
	}
}

func (m *Monitor) clocks(g *GPU, d nv.Device) {
	clock := func(what, symbol string, of func(nv.ClockType) (uint32, nv.Return), kind nv.ClockType) *uint32 {
		return question(m, g, what, symbol, func() (uint32, nv.Return) { return of(kind) })
	}
	g.SMClock = clock("SM clock", "nvmlDeviceGetClockInfo", d.GetClockInfo, nv.CLOCK_SM)
	g.MemoryClock = clock("memory clock", "nvmlDeviceGetClockInfo", d.GetClockInfo, nv.CLOCK_MEM)
	g.SMClockMax = clock("SM clock", "nvmlDeviceGetMaxClockInfo", d.GetMaxClockInfo, nv.CLOCK_SM)
	g.MemoryClockMax = clock("memory clock", "nvmlDeviceGetMaxClockInfo", d.GetMaxClockInfo, nv.CLOCK_MEM)
	held := question(m, g, "clocks held back", "nvmlDeviceGetCurrentClocksEventReasons", d.GetCurrentClocksEventReasons)
	if held == nil && !m.has("nvmlDeviceGetCurrentClocksEventReasons") { // before driver 535
		held = question(m, g, "clocks held back", "nvmlDeviceGetCurrentClocksThrottleReasons", d.GetCurrentClocksThrottleReasons)
	}
	if held != nil {
		g.Held = reasons(*held)
	}
}

// reasons names the bits that hold clocks back.
func reasons(bits uint64) []string {
	out := []string{}
	for _, r := range []struct {
		bit  uint64
		name string
	}{
		{nv.ClocksEventReasonGpuIdle, "idle"},
		{nv.ClocksEventReasonApplicationsClocksSetting, "application clocks"},
		{nv.ClocksEventReasonSwPowerCap, "power cap"},
		{nv.ClocksThrottleReasonHwSlowdown, "hardware slowdown"},
		{nv.ClocksEventReasonSyncBoost, "sync boost"},
		{nv.ClocksEventReasonSwThermalSlowdown, "thermal"},
		{nv.ClocksThrottleReasonHwThermalSlowdown, "hardware thermal"},
		{nv.ClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"},
		{nv.ClocksEventReasonDisplayClockSetting, "display clocks"},
		{nv.ClocksEventReasonBoardLimit, "board limit"},
		{nv.ClocksEventReasonReliability, "reliability"},
	} {
		if bits&r.bit != 0 {
			out = append(out, r.name)
			bits &^= r.bit
		}
	}
	if bits != 0 {
		out = append(out, fmt.Sprintf("reason %#x", bits))
	}
	return out
}

// links reads PCIe, whose figures mean nothing where memory is the system's, and NVLink.
func (m *Monitor) links(g *GPU, d nv.Device, now time.Time) {
	if !g.Unified {
		p := Link{
			Generation: question(m, g, "PCIe generation", "nvmlDeviceGetCurrPcieLinkGeneration", d.GetCurrPcieLinkGeneration),
			Width:      question(m, g, "PCIe width", "nvmlDeviceGetCurrPcieLinkWidth", d.GetCurrPcieLinkWidth),
		}
		rate := func(of nv.PcieUtilCounter) *float64 {
			kb := question(m, g, "PCIe throughput", "nvmlDeviceGetPcieThroughput", func() (uint32, nv.Return) { return d.GetPcieThroughput(of) })
			return as(kb, func(kb uint32) float64 { return float64(kb) * 1024 })
		}
		p.Send, p.Receive = rate(nv.PCIE_UTIL_TX_BYTES), rate(nv.PCIE_UTIL_RX_BYTES)
		if p != (Link{}) {
			g.PCIe = &p
		}
	}
	g.NVLink = m.nvlink(g, d, now)
}

// nvlink counts the active links and how much went over all of them since the last reading.
func (m *Monitor) nvlink(g *GPU, d nv.Device, now time.Time) *Link {
	if !m.has("nvmlDeviceGetNvLinkState") {
		return nil
	}
	active := 0
	for i := range nv.NVLINK_MAX_LINKS {
		s, r := d.GetNvLinkState(i)
		if r == nv.ERROR_INVALID_ARGUMENT && i > 0 || !g.offered("NVLink", r) { // beyond the last link
			break
		}
		if s == nv.FEATURE_ENABLED {
			active++
		}
	}
	if active == 0 {
		return nil
	}
	l := &Link{Width: &active}
	if !m.has("nvmlDeviceGetFieldValues") {
		return l
	}
	values := []nv.FieldValue{
		{FieldId: nv.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: math.MaxUint32},
		{FieldId: nv.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ScopeId: math.MaxUint32},
	}
	if !g.offered("NVLink throughput", d.GetFieldValues(values)) ||
		!g.offered("NVLink throughput", nv.Return(values[0].NvmlReturn)) || !g.offered("NVLink throughput", nv.Return(values[1].NvmlReturn)) {
		return l
	}
	c := counters{at: now, linkSeen: true, tx: binary.NativeEndian.Uint64(values[0].Value[:]), rx: binary.NativeEndian.Uint64(values[1].Value[:])}
	if past := m.past[g.Index]; past.linkSeen && c.tx >= past.tx && c.rx >= past.rx {
		if s := now.Sub(past.at).Seconds(); s > 0 {
			tx, rx := float64(c.tx-past.tx)*1024/s, float64(c.rx-past.rx)*1024/s
			l.Send, l.Receive = &tx, &rx
		}
	}
	m.past[g.Index] = c
	return l
}

func (m *Monitor) ecc(g *GPU, d nv.Device) {
	if !m.has("nvmlDeviceGetEccMode") {
		return
	}
	now, _, r := d.GetEccMode()
	if !g.offered("ECC mode", r) {
		return
	}
	e := &ECC{Enabled: enabled(now)}
	g.ECC = e
	if e.Enabled {
		total := func(kind nv.MemoryErrorType) *uint64 {
			return question(m, g, "ECC errors", "nvmlDeviceGetTotalEccErrors", func() (uint64, nv.Return) { return d.GetTotalEccErrors(kind, nv.VOLATILE_ECC) })
		}
		e.Corrected, e.Uncorrected = total(nv.MEMORY_ERROR_TYPE_CORRECTED), total(nv.MEMORY_ERROR_TYPE_UNCORRECTED)
	}
	if m.has("nvmlDeviceGetRemappedRows") {
		if corrected, uncorrected, _, _, r := d.GetRemappedRows(); g.offered("remapped rows", r) {
			n := corrected + uncorrected
			e.Remapped = &n
		}
	}
}

// performance reads the GPM counters between the last sample and a new one.
func (m *Monitor) performance(g *GPU, d nv.Device) {
	if !m.has("nvmlGpmQueryDeviceSupport") || !m.has("nvmlGpmSampleGet") || !m.has("nvmlGpmMetricsGet") {
		return
	}
	if s, r := d.GpmQueryDeviceSupport(); !g.offered("GPM", r) || s.IsSupportedDevice == 0 {
		return
	}
	sample, r := m.lib.GpmSampleAlloc()
	if !g.offered("GPM", r) {
		return
	}
	if r := d.GpmSampleGet(sample); !g.offered("GPM", r) {
		_ = sample.Free()
		return
	}
	past := m.gpm[g.Index]
	m.gpm[g.Index] = sample
	g.GPM = &GPM{}
	if past == nil {
		return
	}
	defer func() { _ = past.Free() }()
	ask := nv.GpmMetricsGetType{Sample1: past, Sample2: sample}
	wanted := []struct {
		id nv.GpmMetricId
		to **float64
	}{
		{nv.GPM_METRIC_SM_UTIL, &g.GPM.SM}, {nv.GPM_METRIC_SM_OCCUPANCY, &g.GPM.Occupancy},
		{nv.GPM_METRIC_ANY_TENSOR_UTIL, &g.GPM.Tensor}, {nv.GPM_METRIC_DRAM_BW_UTIL, &g.GPM.DRAM},
	}
	ask.NumMetrics = uint32(len(wanted))
	for i, w := range wanted {
		ask.Metrics[i].MetricId = uint32(w.id)
	}
	if !g.offered("GPM", m.lib.GpmMetricsGet(&ask)) {
		return
	}
	for i, w := range wanted {
		if v := ask.Metrics[i]; nv.Return(v.NvmlReturn) == nv.SUCCESS && !math.IsNaN(v.Value) && !math.IsInf(v.Value, 0) {
			share := v.Value / 100
			*w.to = &share
		}
	}
}

func (m *Monitor) processes(g *GPU, d nv.Device) {
	g.Processes = []Process{}
	if !m.has("nvmlDeviceGetComputeRunningProcesses") && !m.has("nvmlDeviceGetComputeRunningProcesses_v3") {
		return
	}
	list, r := d.GetComputeRunningProcesses()
	if !g.offered("processes", r) {
		return
	}
	here := names(m.root)
	for _, p := range list {
		q := Process{PID: int(p.Pid), Name: here[int(p.Pid)]}
		if p.UsedGpuMemory != math.MaxUint64 { // not available
			q.Memory = &p.UsedGpuMemory
		}
		g.Processes = append(g.Processes, q)
	}
}

// text is a C string.
func text(c []int8) string {
	var b strings.Builder
	for _, x := range c {
		if x == 0 {
			break
		}
		b.WriteByte(byte(x))
	}
	return b.String()
}
