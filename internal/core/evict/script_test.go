package evict_test

import (
	"flag"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/evict"
	"github.com/wherry-node/wherry/internal/core/pressure"
	"github.com/wherry-node/wherry/internal/proof/script"
)

var update = flag.Bool("update", false, "rewrite the expected plans in testdata")

// TestScripts runs testdata/evict/*.txt: see package script. `go test -update` rewrites the output.
func TestScripts(t *testing.T) {
	t.Parallel()
	script.Run(t, "testdata/evict/*.txt", *update, func(_ *testing.T, x *script.Text) func([]string) { return newNode(x).command })
}

// node is a simulated node. Its method look performs a whole round of the agent.
type node struct {
	*script.Text
	config  pressure.ParseInput
	policy  evict.Policy
	layout  evict.Layout
	signals pressure.Signals
	pods    []evict.Pod
	frees   map[pressure.Signal]int64 // how much the next Reclaim frees
	tried   *evict.Tried
	removed time.Time
	next    evict.Tried
	hold    bool
	spare   bool
	more    int // how many reclaims after the next one free the same amount
	state   evict.State
	now     time.Time
}

func newNode(x *script.Text) *node {
	return &node{
		Text:   x,
		config: pressure.ParseInput{Hard: map[string]string{}, Soft: map[string]string{}, SoftGracePeriod: map[string]string{}, MinimumReclaim: map[string]string{}},
		policy: evict.Policy{TransitionPeriod: 5 * time.Minute}, signals: pressure.Signals{}, frees: map[pressure.Signal]int64{}, now: time.Unix(1_000_000, 0),
	}
}

// bytes parses a quantity.
func (s *node) bytes(text string) int64 {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		s.Fail("%q: %v", text, err)
	}
	return q.Value()
}

func (s *node) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.Fail("%v", err)
	}
	return d
}

func (s *node) command(f []string) {
	if d, ok := strings.CutPrefix(f[0], "+"); ok {
		s.now = s.now.Add(s.duration(d))
		s.look()
		return
	}
	switch f[0] {
	case "hard", "soft", "reclaim":
		s.configure(f)
	case "enforce-pods":
		s.config.EnforceNodeAllocatable = []string{"pods"}
	case "max-pod-grace":
		s.policy.MaxPodGrace = s.duration(f[1])
	case "transition":
		s.policy.TransitionPeriod = s.duration(f[1])
	case "images-apart":
		s.layout = evict.Layout{ImagesApart: true, LayersWithPods: len(f) > 1 && f[1] == "layers-with-pods"}
	case "layout-unknown":
		s.layout.Unknown = true
	case "layout-known":
		s.layout.Unknown = false
	case "pod":
		s.addPod(f)
	case "is": // is memory.available 50Mi of 1Gi
		s.signals[pressure.Signal(f[1])] = pressure.Observation{Available: s.bytes(f[2]), Capacity: s.bytes(f[4])}
	case "lost": // a signal that cannot be read
		delete(s.signals, pressure.Signal(f[1]))
	case "removing": // removing 2 containers 3 images 1Gi frees nodefs.available 2Gi [out-of-time N]: the effect of the next 1+N reclaims
		s.next = evict.Tried{More: len(f) > 9}
		if s.more = 0; s.next.More {
			s.more, _ = strconv.Atoi(f[10])
		}
		s.next.Containers, _ = strconv.Atoi(f[1])
		s.next.Images, _ = strconv.Atoi(f[3])
		s.next.Bytes = uint64(s.bytes(f[5]))
		s.frees[pressure.Signal(f[7])] = s.bytes(f[8])
	case "walked": // the volumes of a pod can be measured again: walked writer 5Gi
		for i := range s.pods {
			if s.pods[i].Pod.Name == f[1] {
				s.pods[i].Usage.NoVolumes, s.pods[i].Usage.Evades, s.pods[i].Usage.Volumes.Bytes = false, false, uint64(s.bytes(f[2]))
			}
		}
	case "measured": // the writable layers of a pod's containers can be measured again: measured writer 5Gi
		for i := range s.pods {
			if s.pods[i].Pod.Name == f[1] {
				s.pods[i].Usage.NoLayers, s.pods[i].Usage.LayersAt, s.pods[i].Usage.Layers.Bytes = false, s.now, uint64(s.bytes(f[2]))
			}
		}
	case "ended": // the pod uses no resources of the node any more
		s.pods = slices.DeleteFunc(s.pods, func(p evict.Pod) bool { return p.Pod.Name == f[1] })
	case "unknown-pods": // unknown-pods [for-long]: the node does not know its pods, and may remove what no container uses
		s.hold, s.spare = true, len(f) > 1
	case "known-pods":
		s.hold, s.spare = false, false
	case "restart": // the agent is restarted
		s.state, s.tried, s.removed = evict.State{}, nil, time.Time{}
	case "look":
		s.look()
	default:
		s.Fail("unknown command %s", f[0])
	}
}

// configure sets a threshold ("hard memory.available 100Mi", "soft memory.available 1Gi for 1m") or a minimum reclaim ("reclaim
// memory.available 200Mi").
func (s *node) configure(f []string) {
	switch f[0] {
	case "hard":
		s.config.Hard[f[1]] = f[2]
	case "soft":
		s.config.Soft[f[1]], s.config.SoftGracePeriod[f[1]] = f[2], f[4]
	case "reclaim":
		s.config.MinimumReclaim[f[1]] = f[2]
	}
}

// addPod reads "pod NAME key=value...": priority, request, uses (memory), storage-request, volumes, logs, layers (bytes), inodes,
// pids, grace (seconds), static, mirror, ending (time left), unmeasured, no-layers, no-volumes, no-logs, old-layers (how long ago), evades,
// pod-request (a request of the whole pod).
func (s *node) addPod(f []string) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: f[1], Namespace: "default", UID: types.UID(f[1]), Annotations: map[string]string{}}}
	p.CreationTimestamp = metav1.NewTime(s.now.Add(time.Duration(len(s.pods)) * time.Second))
	c := v1.Container{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}
	u := &evict.Usage{}
	var endsBy time.Time
	for _, kv := range f[2:] {
		key, value, _ := strings.Cut(kv, "=")
		switch key {
		case "priority":
			n, _ := strconv.ParseInt(value, 10, 32)
			p.Spec.Priority = new(int32(n))
		case "request":
			c.Resources.Requests[v1.ResourceMemory] = resource.MustParse(value)
		case "storage-request":
			c.Resources.Requests[v1.ResourceEphemeralStorage] = resource.MustParse(value)
		case "pod-request":
			p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(value)}}
		case "uses":
			u.Memory = uint64(s.bytes(value))
		case "volumes":
			u.Volumes.Bytes = uint64(s.bytes(value))
		case "logs":
			u.Logs.Bytes = uint64(s.bytes(value))
		case "layers":
			u.Layers.Bytes = uint64(s.bytes(value))
		case "inodes":
			u.Volumes.Inodes = uint64(s.bytes(value))
		case "pids":
			u.Processes = uint64(s.bytes(value))
		case "grace":
			p.Spec.TerminationGracePeriodSeconds = new(s.bytes(value))
		case "static":
			p.Annotations["kubernetes.io/config.source"] = "file"
		case "mirror":
			p.Annotations[v1.MirrorPodAnnotationKey] = "hash"
		case "ending":
			endsBy = s.now.Add(s.duration(value))
		case "no-layers":
			u.NoLayers = true
		case "old-layers":
			u.LayersAt = s.now.Add(-s.duration(value))
		case "no-volumes":
			u.NoVolumes = true
		case "no-logs":
			u.NoLogs = true
		case "evades":
			u.NoVolumes, u.Evades = true, true
		case "unmeasured":
			u = nil
		default:
			s.Fail("unknown field %s of a pod", key)
		}
	}
	if u != nil {
		u.Containers = []evict.ContainerUsage{{Name: "main", Memory: new(u.Memory), Disk: new(u.Layers.Bytes + u.Logs.Bytes)}}
	}
	p.Spec.Containers = []v1.Container{c}
	s.pods = append(s.pods, evict.Pod{Pod: p, Usage: u, EndsBy: endsBy})
}

// look performs one round of the agent: it calls Decide, removes or measures what the plan says, and calls Decide again.
func (s *node) look() {
	thresholds, err := pressure.Parse(s.config)
	if err != nil {
		s.Fail("%v", err)
		return
	}
	s.policy.Thresholds = thresholds
	var measured evict.Use
	for range 10 {
		in := evict.Input{
			Hold: s.hold, Spare: s.spare,
			Policy: &s.policy, Signals: s.signals, Layout: s.layout, Pods: s.pods, Measured: measured, Tried: s.tried, Removed: s.removed, VictimEnded: gone(s.pods, s.state.Victim()), Previous: s.state, Now: s.now,
		}
		plan := evict.Decide(in)
		if plan.Forget {
			s.tried = nil
		}
		s.state = plan.State
		s.printPlan(&plan)
		switch {
		case plan.Reclaim != 0:
			s.reclaim()
		case plan.Measure != 0:
			measured |= plan.Measure
		case plan.Evict != nil:
			for i := range s.pods {
				if s.pods[i].Pod.UID == plan.Evict.Pod.UID {
					s.pods[i].EndsBy = s.now.Add(max(plan.Evict.Grace, time.Second))
				}
			}
			return
		default:
			wait := evict.Interval(&s.policy, s.signals)
			if !plan.WakeAt.IsZero() {
				wait = min(wait, plan.WakeAt.Sub(s.now))
			}
			s.Print("measure again in %s", wait)
			return
		}
	}
	s.Fail("the decision does not come to an end")
}

// gone reports whether an evicted pod is no longer among the pods.
func gone(pods []evict.Pod, victim types.UID) bool {
	return victim != "" && !slices.ContainsFunc(pods, func(p evict.Pod) bool { return p.Pod.UID == victim })
}

// reclaim carries out a planned reclaim: it frees what the script's command "removing" has announced.
func (s *node) reclaim() {
	if s.next.Containers+s.next.Images > 0 {
		s.removed = s.now
	}
	s.tried = new(s.next).After(s.tried)
	for signal, bytes := range s.frees {
		o := s.signals[signal]
		o.Available += bytes
		s.signals[signal] = o
	}
	if s.more--; s.more < 0 {
		s.next = evict.Tried{}
		clear(s.frees)
	}
}

func (s *node) printPlan(p *evict.Plan) {
	pr := p.Pressure
	var on []string
	for name, status := range map[string]pressure.Status{"memory": pr.Memory, "disk": pr.Disk, "pid": pr.PID} {
		if status != pressure.False {
			on = append(on, name+" "+status.String())
		}
	}
	slices.Sort(on)
	conditions := "no pressure"
	if len(on) > 0 {
		conditions = "pressure: " + strings.Join(on, ", ")
	}
	s.Print("%s", conditions)
	if p.Why != "" {
		s.Print("  %s", p.Why)
	}
	if e := p.Evict; e != nil {
		how := "within " + e.Grace.String()
		if e.AtOnce {
			how = "at once"
		}
		s.Print("  evict %s %s: %s", e.Pod.Name, how, strings.TrimSpace(e.Message))
		for _, k := range slices.Sorted(func(yield func(string) bool) {
			for k := range e.Annotations {
				if !yield(k) {
					return
				}
			}
		}) {
			s.Print("    %s: %s", k, e.Annotations[k])
		}
	}
}
