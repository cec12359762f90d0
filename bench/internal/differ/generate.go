package differ

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	image      = "registry.k8s.io/wherry/one:1"
	otherImage = "registry.k8s.io/wherry/two:1"
	noImage    = "registry.k8s.io/wherry/missing:1" // no registry has it
)

// watchFor is how long a case runs before its pod is deleted.
const watchFor = 40 * time.Second

// generator makes a random case, the script of a pod. All times are whole seconds, and most of them differ by several seconds, so that
// few events come at about the same time. The two agents may see such events in a different order (see Crossing).
type generator struct{ *rand.Rand }

// Generate makes the case of a seed. The same seed always gives the same case.
func Generate(seed uint64) *Case {
	g := generator{rand.New(rand.NewPCG(seed, 11))}
	c := &Case{Seed: seed, Plays: map[string][]Play{}, For: watchFor}
	c.Spec = v1.PodSpec{
		RestartPolicy:                 pick(g, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever),
		TerminationGracePeriodSeconds: new(pick(g, int64(2), 5, 8)),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
	}
	for i := range g.few(0, 0, 0, 1, 2) {
		c.Spec.InitContainers = append(c.Spec.InitContainers, g.init(c, fmt.Sprintf("init-%d", i)))
	}
	for i := range g.few(0, 0, 0, 1, 2) {
		c.Spec.InitContainers = append(c.Spec.InitContainers, g.sidecar(c, fmt.Sprintf("side-%d", i)))
	}
	g.Shuffle(len(c.Spec.InitContainers), func(i, j int) {
		in := c.Spec.InitContainers
		in[i], in[j] = in[j], in[i]
	})
	for i := range g.few(1, 1, 1, 2) {
		c.Spec.Containers = append(c.Spec.Containers, g.main(c, fmt.Sprintf("main-%d", i)))
	}
	if g.chance(8) {
		c.Spec.ActiveDeadlineSeconds = new(pick(g, int64(8), 14))
	}
	if g.chance(10) {
		c.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	}
	g.acts(c)
	return c
}

// GenerateStatic makes the case of a seed for a static pod.
func GenerateStatic(seed uint64) *Case {
	g := generator{rand.New(rand.NewPCG(seed, 13))}
	c := Generate(seed)
	c.Kind, c.Spec.ReadinessGates = Static, nil
	c.Acts = slices.DeleteFunc(c.Acts, func(a Act) bool { return a.Do != LoseSandbox })
	delete(c.Plays, "debug")
	at := g.seconds(14, 20)
	add := func(a Act) {
		a.At = at
		c.Acts = append(c.Acts, a)
	}
	switch g.IntN(5) {
	case 0:
		add(Act{Do: WriteFile, Container: c.Spec.Containers[0].Name, Value: otherImage})
	case 1:
		add(Act{Do: RemoveFile})
	case 2:
		add(Act{Do: RemoveFile})
		at += g.seconds(0, 1, 12)
		add(Act{Do: WriteFile})
	case 3:
		add(Act{Do: DeleteMirror, Grace: pick(g, int64(-1), 0)})
	}
	slices.SortStableFunc(c.Acts, func(a, b Act) int { return int(a.At - b.At) })
	return c
}

func pick[T any](g generator, of ...T) T { return of[g.IntN(len(of))] }

func (g generator) few(of ...int) int       { return pick(g, of...) }
func (g generator) chance(percent int) bool { return g.IntN(100) < percent }
func (g generator) seconds(of ...int) time.Duration {
	return time.Duration(pick(g, of...)) * time.Second
}

func (g generator) container(name string) v1.Container {
	x := v1.Container{Name: name, Image: image, ImagePullPolicy: v1.PullIfNotPresent, Command: []string{"server"},
		Resources: v1.ResourceRequirements{Requests: cpu("1m")}}
	if g.chance(4) {
		x.Image = noImage
	}
	return x
}

func (g generator) init(c *Case, name string) v1.Container {
	x := g.container(name)
	p := Play{Exits: true, Runs: g.seconds(0, 3), Term: pick(g, TermEnds, TermZero, TermIgnored)}
	if g.chance(25) {
		p.Code = pick(g, int32(1), 42)
	}
	plays := []Play{p}
	if p.Code != 0 && g.chance(70) {
		plays = append(plays, Play{Exits: true, Runs: p.Runs})
	}
	c.Plays[name] = plays
	return x
}

func (g generator) sidecar(c *Case, name string) v1.Container {
	x := g.container(name)
	x.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	p := g.runs()
	g.probes(&x, &p)
	g.hooks(&x, &p)
	c.Plays[name] = []Play{p, {Term: p.Term}}
	return x
}

func (g generator) main(c *Case, name string) v1.Container {
	x := g.container(name)
	p := g.runs()
	g.probes(&x, &p)
	g.hooks(&x, &p)
	if g.chance(10) {
		x.RestartPolicy = new(pick(g, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever))
	}
	if g.chance(8) {
		x.RestartPolicy = new(v1.ContainerRestartPolicyNever)
		x.RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}}
	}
	if g.chance(3) {
		p.StartError = "the simulated start fails"
	}
	plays := []Play{p}
	if g.chance(50) {
		plays = append(plays, g.runs())
	}
	c.Plays[name] = plays
	return x
}

// runs returns a Play for a container instance that starts without an error: it keeps running, or exits by itself.
func (g generator) runs() Play {
	p := Play{Term: pick(g, TermEnds, TermZero, TermSlow, TermIgnored)}
	if g.chance(45) {
		p.Exits, p.Runs, p.Code = true, g.seconds(3, 6, 12), pick(g, int32(0), 0, 1, 3, 42, 137)
		if p.Code == 137 && g.chance(50) {
			p.Reason = "OOMKilled"
		}
	}
	return p
}

func (g generator) probes(x *v1.Container, p *Play) {
	p.Fails = map[string]Window{}
	probe := func(what string) *v1.Probe {
		switch g.IntN(3) {
		case 0: // the probe never fails
		case 1:
			p.Fails[what] = Window{From: 0, To: g.seconds(4, 7)}
		default:
			p.Fails[what] = Window{From: g.seconds(5, 9)}
		}
		out := &v1.Probe{PeriodSeconds: 1, FailureThreshold: pick(g, int32(1), 3), TimeoutSeconds: 5,
			ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"probe", what}}}}
		if g.chance(50) {
			out.ProbeHandler = asking(pick(g, "http", "tcp", "grpc"), x.Name, what)
		}
		if g.chance(20) {
			out.InitialDelaySeconds = 3
		}
		return out
	}
	if g.chance(30) {
		x.ReadinessProbe = probe("readiness")
		if g.chance(20) {
			x.ReadinessProbe.SuccessThreshold = 3
		}
	}
	if g.chance(25) {
		x.LivenessProbe = probe("liveness")
		if g.chance(30) {
			x.LivenessProbe.TerminationGracePeriodSeconds = new(int64(3))
		}
	}
	if g.chance(20) {
		x.StartupProbe = probe("startup")
	}
}

func (g generator) hooks(x *v1.Container, p *Play) {
	p.Slow = map[string]time.Duration{}
	hook := func(what string) *v1.LifecycleHandler {
		if g.chance(25) {
			p.Fails[what] = Window{}
		}
		if g.chance(40) {
			p.Slow[what] = g.seconds(3, 12)
		}
		return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hook", what}}}
	}
	if g.chance(15) {
		x.Lifecycle = &v1.Lifecycle{PostStart: hook("postStart")}
	}
	if g.chance(20) {
		if x.Lifecycle == nil {
			x.Lifecycle = &v1.Lifecycle{}
		}
		x.Lifecycle.PreStop = hook("preStop")
	}
}

func (g generator) acts(c *Case) {
	at := g.seconds(4, 8, 13)
	someone := func() string { return c.Spec.Containers[g.IntN(len(c.Spec.Containers))].Name }
	add := func(a Act) {
		a.At = at
		c.Acts = append(c.Acts, a)
		at += g.seconds(4, 9)
	}
	if g.chance(15) {
		add(Act{Do: SetImage, Container: someone(), Value: otherImage})
	}
	if g.chance(8) {
		add(Act{Do: Debug, Container: "debug"})
		c.Plays["debug"] = []Play{pick(g, Play{Exits: true, Runs: 3 * time.Second, Code: pick(g, int32(0), 1)}, Play{Term: TermIgnored})}
	}
	if g.chance(8) {
		add(Act{Do: Resize, Container: someone(), Value: "2m"})
	}
	if g.chance(8) {
		add(Act{Do: LoseSandbox})
	}
	if g.chance(35) {
		add(Act{Do: Delete, Grace: pick(g, int64(-1), 0, 1, 4)})
		if g.chance(25) {
			at += time.Second
			c.Acts = append(c.Acts, Act{At: at, Do: Delete, Grace: pick(g, int64(0), 1)})
		}
	}
	slices.SortStableFunc(c.Acts, func(a, b Act) int { return int(a.At - b.At) })
}
