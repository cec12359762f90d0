package stats

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// labels are the labels of one metric, in the order container, id, image, name, namespace, pod.
type labels [6]string

func (l labels) with(extra ...string) []string { return append(slices.Clone(l[:]), extra...) }

func (s *Stats) cadvisorMetrics(ctx context.Context, out sink) {
	f := newCadvisorFamilies()
	r, err := s.collect(ctx, everything)
	failed := 0.0
	if err != nil {
		failed = 1
		s.cfg.Log.Warn("metrics are incomplete", "err", err)
	}
	out.put(f.containerError, time.Time{}, failed)
	s.machineMetrics(f, out)
	disks := s.disks(ctx, r.at)
	node := scene{f: f, out: out, r: r, disks: disks, counted: map[string]bool{}}
	if s.cfg.PodsGroup != "" {
		node.group("/", &r.node, labels{1: "/"}, s.machine().BootTime)
		node.network(r.network, labels{1: "/"})
		node.rootDisk(labels{1: "/"})
		node.group(s.cfg.PodsGroup, &r.allPods, labels{1: s.cfg.PodsGroup}, r.began)
		for _, class := range r.found.classes {
			u, _ := r.tree.read(class, r.at, everything)
			node.group(class, &u, labels{1: class}, time.Time{})
		}
		for name, u := range r.system {
			group := s.cfg.SystemGroups[name].Path
			node.group(group, &u.usage, labels{1: group}, u.started)
		}
	}
	for i := range r.pods {
		node.pod(&r.pods[i])
	}
	exists := map[types.UID]bool{}
	for _, o := range s.cfg.Pods.Observed() {
		exists[o.Ref.UID] = true
	}
	for _, ended := range s.kills.rest(node.counted, exists) {
		out.put(f.ooms, r.at, float64(ended.count), ended.labels[:]...)
	}
}

func (s *Stats) machineMetrics(f *cadvisorFamilies, out sink) {
	m := s.machine()
	ids := []string{m.BootID, m.MachineID, m.SystemUUID}
	known := m.CPUs > 0 && m.MemoryBytes > 0
	if !known {
		out.put(f.machineError, time.Time{}, 1)
		return
	}
	out.put(f.machineError, time.Time{}, 0)
	out.put(f.machineCPUs, time.Time{}, float64(m.CPUs), ids...)
	if m.Cores > 0 {
		out.put(f.machineCores, time.Time{}, float64(m.Cores), ids...)
		out.put(f.machineSockets, time.Time{}, float64(m.Sockets), ids...)
	}
	out.put(f.machineMemory, time.Time{}, float64(m.MemoryBytes), ids...)
	out.put(f.machineSwap, time.Time{}, float64(m.SwapBytes), ids...)
	out.put(f.version, time.Time{}, 1, m.KernelVersion, m.OSImage, "", s.cfg.Version, "")
}

// scene holds the data of one scrape of /metrics/cadvisor.
type scene struct {
	f     *cadvisorFamilies
	out   sink
	r     *reading
	disks *diskReader

	counted map[string]bool // the IDs of the containers whose kills are written
}

func (v *scene) pod(p *podReading) {
	group := p.group
	if group == "" { // without control groups, each pod still needs a value for the label id
		group = "/pod" + string(p.ref.UID)
	}
	v.group(group, &p.usage, labels{1: group, 4: p.ref.Namespace, 5: p.ref.Name}, p.created)
	for _, c := range append([]containerReading{p.sandbox}, p.containers...) {
		if c.id == "" {
			continue
		}
		id := c.group
		if id == "" {
			id = group + "/" + c.id
		}
		l := labels{c.name, id, c.image, c.id, p.ref.Namespace, p.ref.Name}
		started := c.started
		if started.IsZero() {
			started = c.created
		}
		v.group(id, &c.usage, l, started)
		if c.name != "" && c.group != "" {
			v.kills(p.ref.UID, c.group, l)
		}
		if c.name == "" && !p.hostNetwork { // no name: this is the sandbox, which holds the pod's network
			v.network(p.network, l)
		}
		if c.writable != nil {
			device := c.writable.GetFsId().GetMountpoint()
			v.out.opt(v.f.fsUsage, v.r.at, value(c.writable.GetUsedBytes()), 1, l.with(device)...)
			if space := v.disks.space(device); space != nil {
				v.out.opt(v.f.fsLimit, v.r.at, space.CapacityBytes, 1, l.with(device)...)
			}
			// For a container, this metric shows the used inodes: dashboards expect that.
			v.out.opt(v.f.fsInodes, v.r.at, value(c.writable.GetInodesUsed()), 1, l.with(device)...)
		}
	}
}

// kills writes how many processes of a running container the kernel has killed.
func (v *scene) kills(uid types.UID, group string, l labels) {
	file := reader{tree: v.r.tree, group: group, now: v.r.at}
	if count := file.ooms(); count != nil {
		v.out.put(v.f.ooms, v.r.at, float64(v.disks.s.kills.measured(uid, l, *count)), l[:]...)
		v.counted[l[3]] = true
	}
}

// group writes all metrics of one control group.
func (v *scene) group(group string, u *usage, l labels, started time.Time) {
	f, out, at := v.f, v.out, v.r.at
	if u.cpu == nil && u.memory == nil {
		return
	}
	file := reader{tree: v.r.tree, group: group, now: at}
	if started.IsZero() {
		started = v.r.tree.made(group)
	}
	out.put(f.lastSeen, at, float64(out.clock.Shows(at).Unix()), l[:]...)
	out.began(f.start, started, l[:]...)
	var lim limits
	if v.disks.s.cfg.PodsGroup != "" {
		lim = *file.limits()
	}
	v.cpu(u, l, &lim)
	v.memory(u, l)
	v.spec(&lim, l)
	v.pressure(u, l)
	if v.disks.s.cfg.PodsGroup == "" {
		return
	}
	if l[0] == "" { // kills writes the metric of a container
		out.opt(f.ooms, at, file.ooms(), 1, l[:]...)
	}
	if l[3] != "" { // only the groups of containers, which have a label name, have processes of their own
		v.processes(file.processes(), l)
	}
	out.opt(f.threads, at, u.pids, 1, l[:]...)
	if u.pids != nil {
		out.put(f.threadsMax, at, float64(orZero(lim.threads)), l[:]...)
	}
	for _, d := range file.io() {
		out.put(f.fsReadBytes, at, float64(d.readBytes), l.with(d.device)...)
		for i := range d.costs {
			out.opt(f.ioCost[i], at, d.costs[i], 1e6, l.with(d.device)...)
		}
		out.put(f.fsWrittenBytes, at, float64(d.writtenBytes), l.with(d.device)...)
		out.put(f.fsReads, at, float64(d.reads), l.with(d.device)...)
		out.put(f.fsWrites, at, float64(d.written), l.with(d.device)...)
		for _, o := range d.bytes {
			out.put(f.blkio, at, float64(o.bytes), l.with(d.device, d.major, d.minor, o.name)...)
		}
	}
}

func (v *scene) processes(u processUsage, l labels) {
	v.out.opt(v.f.processes, v.r.at, u.count, 1, l[:]...)
	v.out.opt(v.f.descriptors, v.r.at, u.descriptors, 1, l[:]...)
	v.out.opt(v.f.sockets, v.r.at, u.sockets, 1, l[:]...)
	if u.openFiles != nil {
		v.out.put(v.f.ulimits, v.r.at, float64(*u.openFiles), l.with("max_open_files")...)
	}
}

func (v *scene) cpu(u *usage, l labels, lim *limits) {
	f, out, c := v.f, v.out, u.cpu
	if c == nil {
		return
	}
	out.put(f.cpuTotal, c.at, float64(c.nanos)/second, l.with("total")...)
	out.opt(f.cpuUser, c.at, c.user, second, l[:]...)
	out.opt(f.cpuSystem, c.at, c.system, second, l[:]...)
	if lim.quota != 0 {
		out.opt(f.periods, c.at, c.periods, 1, l[:]...)
		out.opt(f.throttledPeriods, c.at, c.throttled, 1, l[:]...)
		out.opt(f.throttled, c.at, c.throttle, second, l[:]...)
		out.opt(f.burstPeriods, c.at, c.bursts, 1, l[:]...)
		out.opt(f.burst, c.at, c.burst, second, l[:]...)
	}
}

func (v *scene) memory(u *usage, l labels) {
	f, out, m := v.f, v.out, u.memory
	if m != nil {
		for _, pair := range []struct {
			f family
			v *uint64
		}{
			{f.memUsage, m.usage}, {f.memWorkingSet, m.workingSet}, {f.memRSS, m.rss}, {f.memCache, m.cache}, {f.memMapped, m.mapped},
			{f.memKernel, m.kernel}, {f.memFailed, m.failed}, {f.memPeak, m.peak}, {f.memActive, m.active}, {f.memInactive, m.inactive},
		} {
			out.opt(pair.f, m.at, pair.v, 1, l[:]...)
		}
		own, ownMajor := m.ownFaults, m.ownMajorFaults
		out.opt(f.memFailures, m.at, own, 1, l.with("pgfault", "container")...)
		out.opt(f.memFailures, m.at, ownMajor, 1, l.with("pgmajfault", "container")...)
		out.opt(f.memFailures, m.at, m.faults, 1, l.with("pgfault", "hierarchy")...)
		out.opt(f.memFailures, m.at, m.majorFaults, 1, l.with("pgmajfault", "hierarchy")...)
	}
	if u.swap != nil {
		out.opt(f.memSwap, u.swap.at, u.swap.usage, 1, l[:]...)
	}
}

func (v *scene) spec(lim *limits, l labels) {
	f, out := v.f, v.out
	if lim.hasCPU {
		out.put(f.specPeriod, time.Time{}, float64(lim.period), l[:]...)
		if lim.quota != 0 {
			out.put(f.specQuota, time.Time{}, float64(lim.quota), l[:]...)
		}
		out.put(f.specShares, time.Time{}, float64(lim.shares), l[:]...)
	}
	if lim.hasMemory {
		out.put(f.specMemory, time.Time{}, float64(lim.memory), l[:]...)
		out.put(f.specSwap, time.Time{}, float64(lim.swap), l[:]...)
		out.put(f.specReservation, time.Time{}, float64(lim.reservation), l[:]...)
	}
}

func (v *scene) pressure(u *usage, l labels) {
	for _, p := range []struct {
		psi        *psi
		full, some family
	}{
		{u.psi.cpu, v.f.psiCPUFull, v.f.psiCPUSome}, {u.psi.memory, v.f.psiMemoryFull, v.f.psiMemorySome}, {u.psi.io, v.f.psiIOFull, v.f.psiIOSome},
	} {
		if p.psi != nil {
			v.out.put(p.full, u.at, float64(p.psi.full.nanos)/second, l[:]...)
			v.out.put(p.some, u.at, float64(p.psi.some.nanos)/second, l[:]...)
		}
	}
}

func (v *scene) network(devices []device, l labels) {
	f := v.f
	for i := range devices {
		d := &devices[i]
		one := func(f family, n uint64) { v.out.put(f, v.r.at, float64(n), l.with(d.name)...) }
		one(f.rxBytes, d.rxBytes)
		one(f.rxErrors, d.rxErrors)
		one(f.txBytes, d.txBytes)
		one(f.txErrors, d.txErrors)
		if d.packetsKnown { // the statistics of CRI have no packet counts
			one(f.rxPackets, d.rxPackets)
			one(f.rxDrops, d.rxDrops)
			one(f.txPackets, d.txPackets)
			one(f.txDrops, d.txDrops)
		}
	}
}

// rootDisk writes the metrics of the filesystem that the agent's directory lies on.
func (v *scene) rootDisk(l labels) {
	dir := v.disks.s.cfg.RootDir
	space := v.disks.space(dir)
	if space == nil {
		return
	}
	row := l.with(v.disks.device(dir))
	v.out.opt(v.f.fsLimit, v.r.at, space.CapacityBytes, 1, row...)
	v.out.put(v.f.fsUsage, v.r.at, float64(less(*space.CapacityBytes, *space.AvailableBytes)), row...)
	v.out.opt(v.f.fsInodes, v.r.at, space.Inodes, 1, row...)
	v.out.opt(v.f.fsInodesFree, v.r.at, space.InodesFree, 1, row...)
	device := v.disks.device(dir)
	counted := slices.ContainsFunc((&reader{tree: v.r.tree, group: "/"}).io(), func(d ioUsage) bool { return d.device == device })
	v.device(device, !counted, l)
}
