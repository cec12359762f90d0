package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/core/why"
)

// Detail is everything that the console shows on the page of one pod.
type Detail struct {
	Row
	Answer     why.Answer        `json:"answer"`
	Phase      string            `json:"phase"`
	IPs        []string          `json:"ips,omitempty"`
	QOS        string            `json:"qos,omitempty"`
	Restart    string            `json:"restartPolicy,omitempty"`
	Chain      []Link            `json:"chain"`
	Inspection string            `json:"inspection,omitempty"`
	Units      []Unit            `json:"units"` // the containers
	Volumes    []Volume          `json:"volumes,omitempty"`
	Conditions []Condition       `json:"conditions,omitempty"`
	Records    []timeline.Record `json:"records"`
	Lost       int               `json:"lost,omitempty"` // how many older records the timeline has dropped
}

// Missing is what the console shows in place of a Detail if the node does not have the pod.
type Missing struct {
	Near []string `json:"near"` // pods of the node with similar names (NAMESPACE/NAME), the most similar one first
}

// Link is one step of a pod's start or end: the newest attempt of one verb (pod.Op) on one container.
type Link struct {
	Verb      string        `json:"verb"`
	Container string        `json:"container,omitempty"`
	State     string        `json:"state"` // runs, done or failed
	At        time.Time     `json:"at"`    // when the action began if it runs, or else when it ended
	Took      time.Duration `json:"took,omitempty"`
	Text      string        `json:"text,omitempty"` // the error if the action failed, or else the reason for the action
	Tries     int           `json:"tries"`          // how many finished attempts of the action the timeline has
}

// Unit is one container of a pod.
type Unit struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"` // init, sidecar, main or debug
	Image    string    `json:"image"`
	State    string    `json:"state"` // waiting, running or ended
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
	ExitCode int32     `json:"exitCode,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Ready    bool      `json:"ready"`
	Restarts int       `json:"restarts"`
	// Last describes how the previous attempt of the container ended. It is empty if there was none.
	Last string `json:"last,omitempty"`
	// Requests and limits, in thousandths of a core and in bytes; 0: none.
	CPURequest int64 `json:"cpuRequest,omitempty"`
	CPULimit   int64 `json:"cpuLimit,omitempty"`
	MemRequest int64 `json:"memRequest,omitempty"`
	MemLimit   int64 `json:"memLimit,omitempty"`
	// Probes are the kinds of probes that the container has.
	Probes []string `json:"probes,omitempty"`
}

// Volume is one volume of a pod.
type Volume struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind"`
	Source string   `json:"source,omitempty"`
	Mounts []string `json:"mounts,omitempty"` // container:path
}

// Condition is a condition of a pod or of the node.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// DetailOf returns the details of a pod.
func DetailOf(in *Pod) Detail {
	p := in.Pod
	d := Detail{
		Row: RowOf(in), Answer: in.Answer, Phase: string(p.Status.Phase), QOS: string(p.Status.QOSClass), Restart: string(p.Spec.RestartPolicy),
		Chain: Chain(in.Records, in.UnderWay), Inspection: text(in.Inspection), Records: in.Records, Lost: in.Dropped, Volumes: volumes(p),
	}
	for _, ip := range p.Status.PodIPs {
		d.IPs = append(d.IPs, text(ip.IP))
	}
	d.Units = units(p)
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		d.Conditions = append(d.Conditions, Condition{string(c.Type), string(c.Status), c.Reason, text(c.Message), c.LastTransitionTime.Time})
	}
	d.Conditions = d.Conditions[:min(len(d.Conditions), maxEntries)]
	return d
}

// Chain returns the steps of a pod's start or end, oldest first. It lists only the newest attempt of each verb (kind of action) on each
// container. The actions in flight come last.
func Chain(records []timeline.Record, flights []why.Flight) []Link {
	var out []Link
	for i := range records {
		r := &records[i]
		if r.Kind != timeline.KindEnded {
			continue
		}
		l := linkOf(r.What)
		l.State, l.At, l.Took, l.Text, l.Tries = "done", r.At, r.Took, text(r.Why), 1
		if r.Error != "" {
			l.State, l.Text = "failed", text(r.Error)
		}
		same := func(o Link) bool { return o.Verb == l.Verb && o.Container == l.Container }
		if i := slices.IndexFunc(out, same); i >= 0 {
			l.Tries += out[i].Tries
			out = slices.Delete(out, i, i+1)
		}
		out = append(out, l)
	}
	for _, f := range flights {
		l := Link{Verb: f.Action.Op.String(), Container: f.Action.Container, State: "runs", At: f.Began, Text: text(string(f.Action.Why))}
		if i := slices.IndexFunc(out, func(o Link) bool { return o.Verb == l.Verb && o.Container == l.Container }); i >= 0 {
			l.Tries = out[i].Tries
			out = slices.Delete(out, i, i+1)
		}
		out = append(out, l)
	}
	return out
}

// linkOf parses the verb and the container from the text of a record, for example "start-container app attempt=2".
func linkOf(what string) Link {
	words := strings.Fields(what)
	if len(words) == 0 {
		return Link{}
	}
	l := Link{Verb: words[0]}
	if len(words) > 1 && !strings.ContainsAny(words[1], "=(") {
		l.Container = words[1]
	}
	return l
}

func units(p *v1.Pod) (out []Unit) {
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		kind := "init"
		if pod.IsSidecar(c) {
			kind = "sidecar"
		}
		out = append(out, unitOf(p, c, kind))
	}
	for i := range p.Spec.Containers {
		out = append(out, unitOf(p, &p.Spec.Containers[i], "main"))
	}
	for i := range p.Spec.EphemeralContainers {
		c := v1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		out = append(out, unitOf(p, &c, "debug"))
	}
	return out[:min(len(out), maxEntries)]
}

func unitOf(p *v1.Pod, c *v1.Container, kind string) Unit {
	u := Unit{
		Name: c.Name, Kind: kind, Image: text(c.Image), State: "waiting",
		CPURequest: c.Resources.Requests.Cpu().MilliValue(), CPULimit: c.Resources.Limits.Cpu().MilliValue(),
		MemRequest: c.Resources.Requests.Memory().Value(), MemLimit: c.Resources.Limits.Memory().Value(),
	}
	for _, probe := range []struct {
		name string
		is   bool
	}{{"startup", c.StartupProbe != nil}, {"liveness", c.LivenessProbe != nil}, {"readiness", c.ReadinessProbe != nil}} {
		if probe.is {
			u.Probes = append(u.Probes, probe.name)
		}
	}
	s := pod.StatusOf(&p.Status, c.Name)
	if s == nil {
		return u
	}
	u.Ready, u.Restarts = s.Ready, int(s.RestartCount)
	switch {
	case s.State.Running != nil:
		u.State, u.Since = "running", s.State.Running.StartedAt.Time
	case s.State.Terminated != nil:
		e := s.State.Terminated
		u.State, u.Since, u.Reason, u.Message, u.ExitCode = "ended", e.FinishedAt.Time, text(e.Reason), text(e.Message), e.ExitCode
	case s.State.Waiting != nil:
		u.Reason, u.Message = text(s.State.Waiting.Reason), text(s.State.Waiting.Message)
	}
	if e := s.LastTerminationState.Terminated; e != nil {
		u.Last = text(fmt.Sprintf("%s, exit code %d, after %s", cmp.Or(e.Reason, "ended"), e.ExitCode, e.FinishedAt.Sub(e.StartedAt.Time)))
	}
	return u
}

func volumes(p *v1.Pod) (out []Volume) {
	for i := range p.Spec.Volumes[:min(len(p.Spec.Volumes), maxEntries)] {
		v := &p.Spec.Volumes[i]
		x := Volume{Name: v.Name}
		x.Kind, x.Source = sourceOf(v)
		for j := range p.Spec.Containers {
			for _, m := range p.Spec.Containers[j].VolumeMounts {
				if m.Name == v.Name && len(x.Mounts) < maxEntries {
					x.Mounts = append(x.Mounts, text(p.Spec.Containers[j].Name+":"+m.MountPath))
				}
			}
		}
		out = append(out, x)
	}
	return out
}

// sourceOf returns the kind of a volume and the object or path that it shows.
func sourceOf(v *v1.Volume) (kind, source string) {
	switch s := &v.VolumeSource; {
	case s.EmptyDir != nil:
		return "emptyDir", string(s.EmptyDir.Medium)
	case s.HostPath != nil:
		return "hostPath", text(s.HostPath.Path)
	case s.ConfigMap != nil:
		return "configMap", s.ConfigMap.Name
	case s.Secret != nil:
		return "secret", s.Secret.SecretName
	case s.PersistentVolumeClaim != nil:
		return "claim", s.PersistentVolumeClaim.ClaimName
	case s.Ephemeral != nil:
		return "ephemeral claim", ""
	case s.Projected != nil:
		return "projected", fmt.Sprintf("%d sources", len(s.Projected.Sources))
	case s.DownwardAPI != nil:
		return "downwardAPI", ""
	case s.CSI != nil:
		return "csi", text(s.CSI.Driver)
	case s.Image != nil:
		return "image", text(s.Image.Reference)
	case s.NFS != nil:
		return "nfs", text(s.NFS.Server + ":" + s.NFS.Path)
	case s.ISCSI != nil:
		return "iscsi", text(s.ISCSI.TargetPortal)
	case s.FC != nil:
		return "fc", ""
	}
	return "other", ""
}
