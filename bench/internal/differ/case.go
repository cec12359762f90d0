package differ

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Case is the script of one pod: its spec, what its containers do, and what users and the machine do to it.
type Case struct {
	Seed uint64
	Kind Kind
	// Name is the first part of the pod's name; the name of the agent follows. The runner sets a new Name for each run.
	Name        string
	Annotations map[string]string `json:",omitempty"`
	Spec        v1.PodSpec
	// Plays says what the instances of each container do; the key is the name of the container. The first Play is for the first instance,
	// the second for the second, and the last for all further instances.
	Plays map[string][]Play
	// Acts are what users and the machine do to the pod, ordered by time.
	Acts []Act
	// For is the time from the pod's first sandbox until the pod is deleted.
	For time.Duration
	// Kill is for cases of kind Restart: both agents are killed, instead of asked to end, before they start again.
	Kill bool `json:",omitempty"`
}

// Kind is what a case tests.
type Kind string

// These are the kinds of cases.
const (
	Life    Kind = ""        // a pod with a script: what its containers, users and the machine do
	Spec    Kind = "spec"    // only the configurations that the runtime receives are compared
	Restart Kind = "restart" // both agents are restarted while the pod lives
	Static  Kind = "static"  // the pod comes from a manifest on its node
)

// Play is what one instance of a container does.
type Play struct {
	// If Exits is true, the container exits after Runs with Code. Otherwise it runs until it is stopped.
	Exits  bool
	Runs   time.Duration
	Code   int32
	Reason string // reason of the exit, such as OOMKilled; "": the usual reason of the simulated runtime
	// Term says what the instance does after SIGTERM.
	Term Term
	// StartError is the error with which the runtime refuses to start the container; "": it starts.
	StartError string
	// Fails says during which time a command of the container fails, counted from the start of the instance. The keys are liveness,
	// readiness, startup, postStart and preStop.
	Fails map[string]Window
	// Slow says how long each command takes; the keys are those of Fails. A command without an entry takes no time.
	Slow map[string]time.Duration
}

// Term is what a container does after SIGTERM.
type Term int

// These are the reactions of a container to SIGTERM.
const (
	TermEnds    Term = iota // exits at once with code 143
	TermZero                // exits at once with code 0
	TermSlow                // exits with code 0 after a second and a half
	TermIgnored             // runs until SIGKILL
)

// Window is a span of time, counted from the start of a container instance. If To is zero, it has no end.
type Window struct{ From, To time.Duration }

func (w Window) has(d time.Duration) bool { return d >= w.From && (w.To == 0 || d < w.To) }

// Act is something that a user, or the machine, does to the pod.
type Act struct {
	At        time.Duration
	Do        Deed
	Container string
	Value     string // the new image of SetImage, or the new CPU request of Resize
	Grace     int64
}

// Deed is the kind of an Act.
type Deed string

// These are the kinds of acts.
const (
	Delete      Deed = "delete"
	SetImage    Deed = "set-image"
	Debug       Deed = "debug"        // adds an ephemeral container
	Resize      Deed = "resize"       // resizes the CPU of a container
	LoseSandbox Deed = "lose-sandbox" // the sandbox ends although no agent stopped it

	// The other acts are only for static pods.
	WriteFile    Deed = "write-file"    // writes the pod's manifest; Value, if Container is set, is its new image
	RemoveFile   Deed = "remove-file"   // removes the pod's manifest
	DeleteMirror Deed = "delete-mirror" // deletes the mirror pod in the API
)

// play returns what the instance of the container with this attempt does.
func (c *Case) play(container string, attempt uint32) Play {
	plays := c.Plays[container]
	if len(plays) == 0 {
		return Play{}
	}
	return plays[min(int(attempt), len(plays)-1)]
}

// String describes the case: how its spec differs from the simplest pod, then what its containers, users and the machine do.
func (c *Case) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, watched for %s: restartPolicy %s, grace %d", c.Seed, c.For, c.Spec.RestartPolicy, *c.Spec.TerminationGracePeriodSeconds)
	if d := c.Spec.ActiveDeadlineSeconds; d != nil {
		fmt.Fprintf(&b, ", active deadline %d", *d)
	}
	if len(c.Spec.ReadinessGates) > 0 {
		b.WriteString(", a readiness gate")
	}
	b.WriteString("\n")
	for _, x := range slices.Concat(c.Spec.InitContainers, c.Spec.Containers) {
		fmt.Fprintf(&b, "%s%s\n", x.Name, traits(x))
		c.playsOf(&b, x.Name)
	}
	c.playsOf(&b, "debug")
	for _, a := range c.Acts {
		fmt.Fprintf(&b, "after %s: %s %s %s grace %d\n", a.At, a.Do, a.Container, a.Value, a.Grace)
	}
	return b.String()
}

func (c *Case) playsOf(b *strings.Builder, name string) {
	for i, p := range c.Plays[name] {
		fmt.Fprintf(b, "  %s, instance %d: %s\n", name, i, p)
	}
}

// traits describes the spec of a container without its name and command. The text is empty for the simplest container.
func traits(x v1.Container) string {
	var b strings.Builder
	if x.Image != image {
		fmt.Fprintf(&b, ", image %s", x.Image)
	}
	if x.RestartPolicy != nil {
		fmt.Fprintf(&b, ", restartPolicy %s", *x.RestartPolicy)
	}
	if len(x.RestartPolicyRules) > 0 {
		b.WriteString(", restarts on 42")
	}
	for i, p := range []*v1.Probe{x.StartupProbe, x.LivenessProbe, x.ReadinessProbe} {
		if p == nil {
			continue
		}
		fmt.Fprintf(&b, ", %s probe%s after %d failures", probeNames[i], handler(p), p.FailureThreshold)
		if p.SuccessThreshold > 1 {
			fmt.Fprintf(&b, ", %d successes", p.SuccessThreshold)
		}
		if p.InitialDelaySeconds > 0 {
			fmt.Fprintf(&b, ", delay %d", p.InitialDelaySeconds)
		}
		if p.TerminationGracePeriodSeconds != nil {
			fmt.Fprintf(&b, ", grace %d", *p.TerminationGracePeriodSeconds)
		}
	}
	if l := x.Lifecycle; l != nil && l.PostStart != nil {
		b.WriteString(", postStart hook")
	}
	if l := x.Lifecycle; l != nil && l.PreStop != nil {
		b.WriteString(", preStop hook")
	}
	return b.String()
}

// handler says which handler a probe has: HTTP, TCP or gRPC; "" for a command.
func handler(p *v1.Probe) string {
	switch {
	case p.HTTPGet != nil:
		return " by HTTP"
	case p.TCPSocket != nil:
		return " by TCP"
	case p.GRPC != nil:
		return " by gRPC"
	}
	return ""
}

// String describes the play in words.
func (p Play) String() string {
	var b strings.Builder
	if p.StartError != "" {
		fmt.Fprintf(&b, "does not start (%s); ", p.StartError)
	}
	if p.Exits {
		fmt.Fprintf(&b, "exits %d %s after %s", p.Code, p.Reason, p.Runs)
	} else {
		b.WriteString("runs")
	}
	fmt.Fprintf(&b, "; on TERM %s", [...]string{"ends with 143", "ends with 0", "ends with 0 after 1.5 s", "runs on"}[p.Term])
	for _, what := range []string{"startup", "liveness", "readiness", "postStart", "preStop"} {
		if w, ok := p.Fails[what]; ok {
			fmt.Fprintf(&b, "; %s fails from %s to %s", what, w.From, w.To)
		}
		if d, ok := p.Slow[what]; ok {
			fmt.Fprintf(&b, "; %s takes %s", what, d)
		}
	}
	return b.String()
}

// containers returns the names of the pod's containers in the order of the spec.
func (c *Case) containers() (names []string) {
	for _, x := range slices.Concat(c.Spec.InitContainers, c.Spec.Containers) {
		names = append(names, x.Name)
	}
	return append(names, "debug")
}

// forced reports whether the pod is deleted with grace period 0, so that it leaves the API before its containers have ended.
func (c *Case) forced() bool {
	return slices.ContainsFunc(c.Acts, func(a Act) bool { return a.Do == Delete && a.Grace == 0 })
}

// losesSandbox reports whether an act removes the pod's sandbox.
func (c *Case) losesSandbox() bool {
	return slices.ContainsFunc(c.Acts, func(a Act) bool { return a.Do == LoseSandbox })
}

// sidecarPorts reports whether a sidecar of the pod has ports.
func (c *Case) sidecarPorts() bool {
	return slices.ContainsFunc(c.Spec.InitContainers, func(x v1.Container) bool { return len(x.Ports) > 0 && c.kind(x.Name) == "sidecar" })
}

// kind returns the kind of a container: main, init, sidecar or ephemeral.
func (c *Case) kind(name string) string {
	for _, x := range c.Spec.InitContainers {
		if x.Name == name {
			if x.RestartPolicy != nil && *x.RestartPolicy == v1.ContainerRestartPolicyAlways {
				return "sidecar"
			}
			return "init"
		}
	}
	if name == "debug" {
		return "ephemeral"
	}
	return "main"
}

func cpu(amount string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount)}
}
