package stats

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// runtimeWithin is the timeout of calls to the runtime. After this time, the statistics leave out the numbers of the runtime.
const runtimeWithin = 10 * time.Second

// level selects which values a measurement reads.
type level uint8

const (
	usageOnly    level = iota // CPU time, working set and swap, for metrics-server: it reads three files of a control group
	cpuAndMemory              // CPU and memory, including the limits of memory
	everything
)

// reading is one measurement of the node. Its times are instants.
type reading struct {
	at      time.Time
	tree    tree
	found   found
	node    usage
	network []device
	pods    []podReading // sorted by namespace and name
	allPods usage
	began   time.Time // when the control group of all pods was created
	system  map[string]systemReading
}

type systemReading struct {
	usage   usage
	started time.Time
}

type podReading struct {
	ref         pod.Ref
	created     time.Time
	hostNetwork bool
	group       string
	usage       usage
	whole       bool // the CPU time of usage is what the runtime reports of the sandbox
	network     []device
	sandbox     containerReading
	containers  []containerReading // containers sorted by name
}

type containerReading struct {
	id, name, image  string
	attempt          uint32
	created, started time.Time
	ended            bool      // it does not run; only the measurement of disks knows such containers
	finished         time.Time // when it ended; zero: it has not, or the runtime does not say
	group            string
	logDir           string
	usage            usage
	writable         *runtimeapi.FilesystemUsage
}

// collect measures the node and its pods. Together with an error, it returns all that it could measure.
func (s *Stats) collect(ctx context.Context, want level) (*reading, error) {
	r := &reading{at: s.cfg.Now(), tree: openTree(s.cfg.HostRoot), system: map[string]systemReading{}}
	var errs []error
	var err error
	if r.found, err = r.tree.find(s.cfg.PodsGroup); err != nil {
		errs = append(errs, fmt.Errorf("find the control groups of pods: %w", err))
	}
	for _, o := range s.cfg.Pods.Observed() {
		if p, ok := s.running(r, o); ok {
			r.pods = append(r.pods, p)
		}
	}
	inorder.Sort(r.pods, func(a, b podReading) int {
		return strings.Compare(a.ref.Namespace+"/"+a.ref.Name+"/"+string(a.ref.UID), b.ref.Namespace+"/"+b.ref.Name+"/"+string(b.ref.UID))
	})
	for i := range r.pods {
		s.readPod(r, &r.pods[i], want)
	}
	if err := s.askRuntime(ctx, r, want); err != nil {
		errs = append(errs, err)
	}
	for i := range r.pods {
		complete(&r.pods[i])
	}
	s.readNode(r, want)
	s.rate(r)
	return r, errors.Join(errs...)
}

// running returns the sandbox of an inspection if it is ready, and the containers that run now, each in its newest attempt. It returns
// false if the pod has neither.
func (s *Stats) running(r *reading, o *pod.Observed) (podReading, bool) {
	p := podReading{ref: o.Ref, group: r.found.pods[o.Ref.UID]}
	sandbox := o.NewestSandbox()
	if sandbox != nil && sandbox.Ready {
		p.created, p.hostNetwork = sandbox.CreatedAt, sandbox.HostNetwork
		p.sandbox = containerReading{id: sandbox.ID, attempt: sandbox.Attempt, created: sandbox.CreatedAt, started: sandbox.CreatedAt, group: r.found.containers[sandbox.ID]}
	}
	for i := range o.Containers {
		c := &o.Containers[i]
		if !runs(o, c) {
			continue
		}
		p.containers = append(p.containers, containerReading{
			id: c.ID, name: c.Name, image: c.Image, attempt: c.Attempt, created: c.CreatedAt, started: c.StartedAt,
			group: r.found.containers[c.ID], logDir: s.logDirOf(o, c.Name),
		})
	}
	inorder.Sort(p.containers, func(a, b containerReading) int { return strings.Compare(a.name, b.name) })
	return p, p.sandbox.id != "" || len(p.containers) > 0
}

// runs reports whether a container runs and is the newest attempt of its name.
func runs(o *pod.Observed, c *pod.Container) bool {
	return c.State == pod.StateRunning && o.Newest(c.Name) == c
}

// logDirOf returns the directory of the logs of a container, of all its attempts.
func (s *Stats) logDirOf(o *pod.Observed, container string) string {
	return filepath.Join(s.cfg.LogDir, o.Ref.Namespace+"_"+o.Ref.Name+"_"+string(o.Ref.UID), container)
}

// readPod reads the files of the pod's control groups.
func (s *Stats) readPod(r *reading, p *podReading, want level) {
	detail := want == everything
	if p.group != "" {
		p.usage, _ = r.tree.read(p.group, r.at, want)
	}
	all := []*containerReading{&p.sandbox}
	for i := range p.containers {
		all = append(all, &p.containers[i])
	}
	for _, c := range all {
		if c.group == "" {
			continue
		}
		if c != &p.sandbox || detail {
			c.usage, _ = r.tree.read(c.group, r.at, want)
		}
		if detail && !p.hostNetwork && p.network == nil {
			if pid, err := r.tree.pid(c.group); err == nil {
				p.network = readNetwork(s.cfg.HostRoot, pid)
			}
		}
	}
}

// askRuntime asks the runtime for the values that the files of the control groups do not contain.
func (s *Stats) askRuntime(ctx context.Context, r *reading, want level) error {
	if s.cfg.Runtime == nil {
		return nil
	}
	lackPod, lackContainer := false, want == everything
	for i := range r.pods {
		p := &r.pods[i]
		lackPod = lackPod || p.usage.cpu == nil || p.usage.memory == nil || (want == everything && p.network == nil && !p.hostNetwork)
		for j := range p.containers {
			u := &p.containers[j].usage
			lackContainer = lackContainer || u.cpu == nil || u.memory == nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeWithin)
	defer cancel()
	var errs []error
	if lackPod && len(r.pods) > 0 {
		resp, err := s.cfg.Runtime.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
		switch {
		case status.Code(err) == codes.Unimplemented: // an older runtime lacks this call: complete() will add up the pod's containers
		case err != nil:
			errs = append(errs, fmt.Errorf("ask the runtime for stats of sandboxes: %w", err))
		default:
			r.takeSandboxes(resp.GetStats())
		}
	}
	if lackContainer && len(r.pods) > 0 {
		resp, err := s.cfg.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
		if err != nil {
			errs = append(errs, fmt.Errorf("ask the runtime for stats of containers: %w", err))
		}
		takeContainers(r.containersByID(), resp.GetStats())
	}
	return errors.Join(errs...)
}

func (r *reading) takeSandboxes(stats []*runtimeapi.PodSandboxStats) {
	byID := map[string]*podReading{}
	for i := range r.pods {
		byID[r.pods[i].sandbox.id] = &r.pods[i]
	}
	containers := r.containersByID()
	for _, st := range stats {
		p := byID[st.GetAttributes().GetId()]
		if p == nil || st.GetLinux() == nil {
			continue
		}
		p.whole = p.usage.cpu == nil && st.Linux.GetCpu().GetUsageCoreNanoSeconds() != nil
		p.usage.fill(fromCRI(st.Linux.Cpu, st.Linux.Memory, nil, st.Linux.Io))
		if p.usage.pids == nil {
			p.usage.pids = value(st.Linux.GetProcess().GetProcessCount())
		}
		if p.network == nil && !p.hostNetwork {
			p.network = networkFromCRI(st.Linux.Network)
		}
		takeContainers(containers, st.Linux.Containers)
	}
}

// containersByID returns the readings of all containers of all pods by container ID.
func (r *reading) containersByID() map[string]*containerReading {
	byID := map[string]*containerReading{}
	for i := range r.pods {
		for j := range r.pods[i].containers {
			byID[r.pods[i].containers[j].id] = &r.pods[i].containers[j]
		}
	}
	return byID
}

// takeContainers adds the runtime's numbers to the readings of containers.
func takeContainers(byID map[string]*containerReading, stats []*runtimeapi.ContainerStats) {
	for _, st := range stats {
		c := byID[st.GetAttributes().GetId()]
		if c == nil {
			continue
		}
		c.usage.fill(fromCRI(st.Cpu, st.Memory, st.Swap, st.Io))
		if c.writable == nil {
			c.writable = st.WritableLayer
		}
	}
}

// complete fills each value of a pod that was not measured for the whole pod with the sum over the pod's containers.
func complete(p *podReading) {
	var total usage
	for i := range p.containers {
		total.add(&p.containers[i].usage)
	}
	p.usage.fill(total)
}

// readNode reads the control groups of the whole node, of all pods together, and of the system's services. On a node without control
// groups, it adds up the pods.
func (s *Stats) readNode(r *reading, want level) {
	if s.cfg.PodsGroup != "" {
		r.node, _ = r.tree.read("/", r.at, want)
		r.allPods, _ = r.tree.read(s.cfg.PodsGroup, r.at, want)
		r.began = r.tree.made(s.cfg.PodsGroup)
		for name, group := range s.cfg.SystemGroups {
			if u, ok := r.tree.read(group.Path, r.at, want); ok {
				started := group.Started
				if started.IsZero() {
					started = r.tree.made(group.Path)
				}
				r.system[name] = systemReading{usage: u, started: started}
			}
		}
		if want == everything {
			r.network = readNetwork(s.cfg.HostRoot, "")
		}
	} else {
		nanos := s.totals.count(r.pods)
		r.node = usage{at: r.at, cpu: &cpuUsage{at: r.at}, memory: &memoryUsage{at: r.at, usage: ptr(uint64(0)), workingSet: ptr(uint64(0))}}
		for i := range r.pods {
			r.node.add(&r.pods[i].usage)
		}
		r.node.cpu.nanos = nanos
		r.allPods = r.node
		r.node.cpu, r.node.memory = ptr(*r.node.cpu), ptr(*r.node.memory)
		least := leastNodeMemory
		if used := s.machine().MemoryUsed; used != nil {
			least = max(least, used())
		}
		r.node.memory.workingSet = ptr(max(*r.node.memory.workingSet, least))
		r.node.memory.usage = ptr(max(*r.node.memory.usage, *r.node.memory.workingSet)) // the working set is a part of the usage
	}
	if m := r.node.memory; m != nil && m.workingSet != nil && s.machine().MemoryBytes > 0 {
		m.available = ptr(less(s.machine().MemoryBytes, *m.workingSet))
		if swap := r.node.swap; swap != nil && swap.usage != nil && swap.available == nil {
			swap.available = ptr(less(s.machine().SwapBytes, *swap.usage))
		}
	}
}

// rate computes nanocores and drops the samples of containers that are gone. It uses the rate that the runtime reports only if it
// cannot compute the rate itself, because some runtimes report 0 as long as they do not know the rate.
func (s *Stats) rate(r *reading) {
	alive := map[string]bool{}
	one := func(key string, u *usage, since time.Time) {
		alive[key] = true
		if u.cpu == nil {
			return
		}
		if rate, ok := s.rates.of(key, u.cpu.nanos, u.cpu.at, since); ok {
			u.cpu.rate = &rate
		}
	}
	one("node", &r.node, s.machine().BootTime)
	one("pods", &r.allPods, r.began)
	for name, u := range r.system {
		one("system/"+name, &u.usage, u.started)
		r.system[name] = u
	}
	for i := range r.pods {
		p := &r.pods[i]
		one("pod/"+string(p.ref.UID), &p.usage, p.created)
		for j := range p.containers {
			one(p.containers[j].id, &p.containers[j].usage, p.containers[j].started)
		}
	}
	s.rates.keep(alive)
}
