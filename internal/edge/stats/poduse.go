package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// PodUse is how much of the machine's memory and how many process IDs a pod uses.
type PodUse struct {
	// Memory is in bytes. It excludes the page cache, because the kernel frees the page cache before memory runs short.
	Memory, Processes uint64
	Containers        []ContainerUse // containers sorted by name
	// Unknown is set if the pod runs but its memory could not be measured. The other fields are empty then.
	Unknown bool
}

// ContainerUse is how much memory a container uses, in bytes.
type ContainerUse struct {
	Name   string
	Memory uint64
}

// noGroupsWithin is how long PodUses waits for the runtime on a node without control groups.
const noGroupsWithin = time.Second

// PodUses measures the memory and the processes of all running pods. It reads a few files of the kernel for each pod. In a
// shortage of memory the caller cannot wait, and a runtime may be slow. So PodUses asks the runtime only on a node without
// control groups, and waits for at most a second. A pod whose control group does not exist, because the pod is just beginning or
// ending, is Unknown.
func (s *Stats) PodUses(ctx context.Context) (map[types.UID]PodUse, error) {
	r := &reading{at: s.cfg.Now(), tree: openTree(s.cfg.HostRoot)}
	var err error
	if r.found, err = r.tree.find(s.cfg.PodsGroup); err != nil {
		err = fmt.Errorf("find the control groups of pods: %w", err)
	}
	for _, o := range s.cfg.Pods.Observed() {
		if p, ok := s.running(r, o); ok {
			r.pods = append(r.pods, p)
		}
	}
	for i := range r.pods {
		p := &r.pods[i]
		s.readPod(r, p, usageOnly)
		if p.group != "" {
			p.usage.pids = (&reader{tree: r.tree, group: p.group}).number("pids", "pids.current")
		}
	}
	if err != nil || s.cfg.PodsGroup == "" {
		bounded, cancel := context.WithTimeout(ctx, noGroupsWithin)
		err = errors.Join(err, s.askRuntime(bounded, r, usageOnly))
		cancel()
	}
	out := make(map[types.UID]PodUse, len(r.pods))
	for i := range r.pods {
		p := &r.pods[i]
		complete(p)
		if p.usage.memory == nil {
			out[p.ref.UID] = PodUse{Unknown: true}
			continue
		}
		use := PodUse{Memory: p.usage.memory.used()}
		if p.usage.pids != nil {
			use.Processes = *p.usage.pids
		}
		for j := range p.containers {
			if c := &p.containers[j]; c.usage.memory != nil {
				use.Containers = append(use.Containers, ContainerUse{Name: c.name, Memory: c.usage.memory.used()})
			}
		}
		out[p.ref.UID] = use
	}
	return out, err
}

// MemoryPeak returns the most memory, in bytes, that the containers of a pod have used together since the pod's control group was made;
// false: it is not known. It reads the files of one pod.
func (s *Stats) MemoryPeak(uid types.UID) (bytes uint64, ok bool) {
	if s.cfg.PodsGroup == "" {
		return 0, false
	}
	t := openTree(s.cfg.HostRoot)
	found, err := t.find(s.cfg.PodsGroup)
	if err != nil || found.pods[uid] == "" {
		return 0, false
	}
	var m memoryUsage
	(&reader{tree: t, group: found.pods[uid]}).memoryExtremes(&m)
	if m.peak == nil {
		return 0, false
	}
	return *m.peak, true
}

// used returns the memory in use without page cache, or the working set if the page cache is not known. Memory-backed volumes are
// included.
func (m *memoryUsage) used() uint64 {
	switch {
	case m.usage != nil && m.active != nil && m.inactive != nil:
		return less(*m.usage, *m.active+*m.inactive)
	case m.workingSet != nil:
		return *m.workingSet
	}
	return 0
}

// PodsUsed returns the memory that all pods together use, in bytes, without page cache; false: it is not known. If the usage with page
// cache is not above the argument enough, PodsUsed reads only one short file and returns this usage.
func (s *Stats) PodsUsed(enough uint64) (bytes uint64, ok bool) {
	if s.cfg.PodsGroup == "" {
		return 0, false
	}
	r := reader{tree: openTree(s.cfg.HostRoot), group: s.cfg.PodsGroup, now: s.cfg.Now(), want: usageOnly}
	name := "memory.usage_in_bytes"
	if r.tree.v2 {
		name = "memory.current"
	}
	if n := r.number("memory", name); n != nil && *n <= enough {
		return *n, true
	}
	m := r.memory()
	if m == nil {
		return 0, false
	}
	return m.used(), true
}

// Space is an amount of disk space.
type Space struct{ Bytes, Inodes uint64 }

// PodDisk is the disk usage of the containers of a pod.
type PodDisk struct {
	// Layers counts the writable layers of the containers that PodDisks counts. Logs counts the logs of all attempts of these containers that still
	// exist.
	Layers, Logs Space
	// NoLayers is set if the runtime did not answer, so that Layers is not known. NoLogs is set if the logs could be measured in part only, so
	// that Logs is too small; Err says why.
	NoLayers, NoLogs bool
	// LayersAt is when the runtime measured the layers; of several containers, the time that is longest ago. A layer that the runtime has not
	// measured yet counts as one that it found empty when the container started: containerd measures every 10 s and says 0 until then. Zero: not
	// known.
	LayersAt   time.Time
	Err        error
	Containers []ContainerDisk // the disk usage of each of these containers
}

// PodDisks measures the containers of all running pods, or of a single pod if the argument only is its UID ("": all pods). Of a single pod it
// counts the containers that run, for the pod's limits. Of all pods it also counts the containers that have ended and still exist, because their
// files use the disk until the pod ends or the container is removed. It asks the runtime once, and walks through the log directories. If the runtime
// does not answer, the error says so; a pod whose logs could not be measured has an error of its own.
func (s *Stats) PodDisks(ctx context.Context, only types.UID) (map[types.UID]PodDisk, error) {
	out := map[types.UID]PodDisk{}
	if s.cfg.Runtime == nil {
		return out, nil
	}
	var pods []podReading
	containers := 0
	for _, o := range s.cfg.Pods.Observed() {
		if only != "" && o.Ref.UID != only {
			continue
		}
		if p, ok := s.running(&reading{}, o); ok {
			if only == "" {
				s.addEnded(&p, o)
			}
			pods, containers = append(pods, p), containers+len(p.containers)
		}
	}
	if containers == 0 {
		return out, nil
	}
	layers, layersErr := s.layers(ctx, only)
	for i := range pods {
		p := &pods[i]
		d := PodDisk{NoLayers: layersErr != nil && len(p.containers) > 0}
		for j := range p.containers {
			c := &p.containers[j]
			layer := layers[c.id]
			if measured := c.measured(layer); !measured.IsZero() && (d.LayersAt.IsZero() || measured.Before(d.LayersAt)) {
				d.LayersAt = measured
			}
			space := Space{layer.GetUsedBytes().GetValue(), layer.GetInodesUsed().GetValue()}
			d.Layers.add(space)
			if j > 0 && p.containers[j-1].name == c.name { // an earlier attempt, whose logs lie in the same directory
				d.Containers[len(d.Containers)-1].Layer += space.Bytes
				continue
			}
			logs, err := s.logSpace(ctx, p.ref.UID, c)
			if err != nil {
				d.NoLogs, d.Err = true, errors.Join(d.Err, fmt.Errorf("logs of container %q: %w", c.name, err))
			}
			d.Logs.add(logs)
			d.Containers = append(d.Containers, ContainerDisk{Name: c.name, Layer: space.Bytes, Logs: logs.Bytes})
		}
		out[p.ref.UID] = d
	}
	return out, layersErr
}

// addEnded adds the containers of a pod that do not run. Of the attempts of a container the newest comes first.
func (s *Stats) addEnded(p *podReading, o *pod.Observed) {
	for i := range o.Containers {
		c := &o.Containers[i]
		if runs(o, c) {
			continue // running has added it
		}
		p.containers = append(p.containers, containerReading{
			id: c.ID, name: c.Name, attempt: c.Attempt, started: c.StartedAt, ended: true, finished: c.FinishedAt, logDir: s.logDirOf(o, c.Name),
		})
	}
	inorder.Sort(p.containers, func(a, b containerReading) int { return strings.Compare(a.name, b.name) })
}

// measured returns since when the container may have written more than the runtime says about its layer; zero: it cannot have. A layer without a time
// of its measurement was empty when the container started. A runtime may leave out a container that has ended, and then nothing more is ever known
// about its layer.
func (c *containerReading) measured(layer *runtimeapi.FilesystemUsage) time.Time {
	at := c.started
	if nanos := layer.GetTimestamp(); nanos > 0 {
		at = time.Unix(0, nanos)
	}
	if c.ended && (layer == nil || !c.finished.IsZero() && !at.Before(c.finished)) {
		return time.Time{}
	}
	return at
}

// layers asks the runtime for the writable layers of all containers, or of the containers of one pod, by container ID.
func (s *Stats) layers(ctx context.Context, only types.UID) (map[string]*runtimeapi.FilesystemUsage, error) {
	ctx, cancel := context.WithTimeout(ctx, runtimeWithin)
	defer cancel()
	req := &runtimeapi.ListContainerStatsRequest{}
	if only != "" {
		req.Filter = &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{pod.LabelPodUID: string(only)}}
	}
	resp, err := s.cfg.Runtime.ListContainerStats(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ask the runtime for stats of containers: %w", err)
	}
	out := map[string]*runtimeapi.FilesystemUsage{}
	for _, st := range resp.GetStats() {
		out[st.GetAttributes().GetId()] = st.GetWritableLayer()
	}
	return out, nil
}

func (a *Space) add(b Space) { a.Bytes, a.Inodes = a.Bytes+b.Bytes, a.Inodes+b.Inodes }

// logSpace measures the logs of a container. With an error, it returns what it has found.
func (s *Stats) logSpace(ctx context.Context, uid types.UID, c *containerReading) (Space, error) {
	if s.cfg.LogDir == "" || s.cfg.Disk == nil {
		return Space{}, nil
	}
	space, err := s.measureLogs(ctx, uid, c)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return space, err
}
