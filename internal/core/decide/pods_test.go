package decide_test

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// scope is one pod of the search, with the events that may happen to it.
type scope struct {
	name       string
	policy     v1.RestartPolicy
	inits      []v1.Container
	mains      []v1.Container
	spec       func(*v1.PodSpec)
	lag        bool // the search decides when the agent inspects the runtime, so the agent may act on an old inspection
	polite     bool // all main containers exit with 0 on SIGTERM
	unadmitted bool // the node has not admitted the pod yet
	budget     give // the budget of an ordinary run, as in CI
	deep       give // the budget with -deep
}

func (sc *scope) size() int { return len(sc.inits) + len(sc.mains) }

// first returns a world with the scope's pod, before the first turn.
func (sc *scope) first(b brain) *world {
	w := newWorld()
	w.strict, w.brain = true, b
	w.pol = searchPolicy()
	w.pod = &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"},
		Spec:       v1.PodSpec{RestartPolicy: sc.policy, InitContainers: sc.inits, Containers: sc.mains},
	}
	if sc.spec != nil {
		sc.spec(&w.pod.Spec)
	}
	for _, c := range probed(w.pod) {
		w.hashes[c.Name] = specHash(c.Image)
		w.polite[c.Name] = sc.polite && !pod.IsSidecar(c)
		w.sized = w.sized || len(c.Resources.Limits) > 0
	}
	w.mem.Admitted = !sc.unadmitted
	w.want, w.last = w.pod, w.pod
	w.saved = w.mem.Kept()
	w.inspect()
	w.noInspect = sc.lag
	return w
}

// with returns a copy of a container to which the changes were made.
func with(c v1.Container, changes ...func(*v1.Container)) v1.Container {
	c = *c.DeepCopy()
	for _, change := range changes {
		change(&c)
	}
	return c
}

func lifecycle(c *v1.Container) *v1.Lifecycle {
	if c.Lifecycle == nil {
		c.Lifecycle = &v1.Lifecycle{}
	}
	return c.Lifecycle
}

func preStop(c *v1.Container) {
	lifecycle(c).PreStop = &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
}

func postStart(c *v1.Container) {
	lifecycle(c).PostStart = &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
}
func startup(c *v1.Container)   { c.StartupProbe = &v1.Probe{} }
func readiness(c *v1.Container) { c.ReadinessProbe = &v1.Probe{} }

// liveness gives a container a liveness probe that has a termination grace period of its own.
func liveness(c *v1.Container) {
	grace := int64(7)
	c.LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: &grace}
}

// rule gives a container a restart policy of its own, with one restart rule.
func rule(policy v1.ContainerRestartPolicy, action v1.ContainerRestartRuleAction, code int32) func(*v1.Container) {
	return func(c *v1.Container) {
		c.RestartPolicy = &policy
		c.RestartPolicyRules = []v1.ContainerRestartRule{{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
			Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code},
		}}}
	}
}

func ownPolicy(policy v1.ContainerRestartPolicy) func(*v1.Container) {
	return func(c *v1.Container) { c.RestartPolicy = &policy }
}

// sizes gives a container n CPUs and n GiB of memory.
func sizes(n string) func(*v1.Container) {
	return func(c *v1.Container) {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(n), v1.ResourceMemory: resource.MustParse(n + "Gi")}
		c.Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	}
}

func restartsForMemory(c *v1.Container) {
	c.ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
}

func sidecar(name string, changes ...func(*v1.Container)) v1.Container {
	always := v1.ContainerRestartPolicyAlways
	return with(v1.Container{Name: name, Image: name, RestartPolicy: &always}, changes...)
}

// scopes returns the pods of the search. Each is small; together they have every kind of container, probe, hook, policy and
// trouble.
func scopes() []scope {
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	app, job := v1.Container{Name: "app", Image: "a"}, v1.Container{Name: "job", Image: "b"}
	init := v1.Container{Name: "init", Image: "i"}
	mains := func(c ...v1.Container) []v1.Container { return c }
	return []scope{
		{name: "always", policy: always, mains: mains(app),
			budget: give{exits: 2, fails: 1, deletes: 1}, deep: give{exits: 2, fails: 2, crashes: 1, deletes: 2, sandboxes: 1, gones: 1}},
		{name: "always-crash", policy: always, mains: mains(app),
			budget: give{exits: 1, crashes: 1, meanwhile: 1, deletes: 1}, deep: give{exits: 3, crashes: 2, meanwhile: 2, deletes: 1}},
		{name: "onfailure", policy: onFailure, mains: mains(app),
			budget: give{crashes: 1, meanwhile: 1, sandboxes: 1, gones: 1}, deep: give{exits: 2, fails: 1, crashes: 1, meanwhile: 1, sandboxes: 1, gones: 1}},
		{name: "never", policy: never, mains: mains(app),
			budget: give{exits: 1, fails: 1, sandboxes: 1, deletes: 1}, deep: give{exits: 1, fails: 1, crashes: 1, sandboxes: 1, deletes: 1, gones: 1}},
		{name: "lag", policy: always, mains: mains(app), lag: true,
			budget: give{exits: 1, fails: 1, deletes: 1}, deep: give{exits: 1, fails: 1, crashes: 1, sandboxes: 1, deletes: 1}},
		{name: "hooks", policy: always, mains: mains(with(app, preStop, postStart, liveness)),
			budget: give{fails: 1, deletes: 2, sick: 1}, deep: give{fails: 2, crashes: 1, deletes: 2, gones: 1, sick: 1}},
		{name: "hooks-crash", policy: onFailure, mains: mains(with(app, preStop, postStart)),
			budget: give{exits: 1, crashes: 1, meanwhile: 1, deletes: 1}, deep: give{exits: 1, fails: 1, crashes: 2, meanwhile: 1, deletes: 2}},
		{name: "probes", policy: always, mains: mains(with(app, startup, liveness, readiness)),
			budget: give{exits: 1, sick: 1, flips: 2, deletes: 1}, deep: give{exits: 1, fails: 1, crashes: 1, sick: 2, flips: 2, deletes: 1, sandboxes: 1}},
		{name: "probes-never", policy: never, mains: mains(with(app, startup, liveness)),
			budget: give{fails: 1, crashes: 1, sick: 1, deletes: 1}, deep: give{exits: 1, fails: 1, crashes: 1, sick: 1, flips: 1, deletes: 1, sandboxes: 1}},
		{name: "probes-polite", policy: onFailure, polite: true, mains: mains(with(app, startup, liveness, preStop)),
			budget: give{exits: 1, sick: 1, crashes: 1}, deep: give{exits: 1, fails: 1, crashes: 1, sick: 2, deletes: 1}},
		{name: "own-policy-polite", policy: never, polite: true, mains: mains(with(app, liveness, ownPolicy(v1.ContainerRestartPolicyOnFailure)), with(job, liveness)),
			budget: give{sick: 2, exits: 1}, deep: give{sick: 2, exits: 1, crashes: 1}},
		{name: "sandbox-polite", policy: onFailure, polite: true, mains: mains(app),
			budget: give{sandboxes: 1, unknowns: 1, crashes: 1, exits: 1}, deep: give{sandboxes: 2, unknowns: 1, crashes: 1, exits: 1, fails: 1}},
		{name: "init-polite", policy: onFailure, polite: true, inits: mains(init), mains: mains(app),
			budget: give{sandboxes: 1, exits: 1}, deep: give{sandboxes: 1, exits: 2, crashes: 1}},
		{name: "change-polite", policy: never, polite: true, mains: mains(with(app, preStop), job),
			budget: give{changes: 1, crashes: 1, exits: 1}, deep: give{changes: 2, crashes: 1, exits: 1, fails: 1}},
		{name: "two", policy: onFailure, mains: mains(app, job),
			budget: give{exits: 2, crashes: 1}, deep: give{exits: 2, fails: 1, crashes: 1, deletes: 1}},
		{name: "init", policy: onFailure, inits: mains(init), mains: mains(app),
			budget: give{exits: 2, crashes: 1, sandboxes: 1}, deep: give{exits: 2, fails: 1, crashes: 1, sandboxes: 1, losses: 1}},
		{name: "init-never", policy: never, inits: mains(init), mains: mains(app),
			budget: give{exits: 2, crashes: 1, deletes: 1}, deep: give{exits: 2, crashes: 1, sandboxes: 1, deletes: 1}},
		{name: "init-lag", policy: always, inits: mains(init), mains: mains(app), lag: true,
			budget: give{exits: 1, sandboxes: 1}, deep: give{exits: 2, crashes: 1, sandboxes: 1}},
		{name: "sidecar", policy: never, inits: mains(sidecar("side")), mains: mains(app),
			budget: give{exits: 1, deletes: 2}, deep: give{exits: 1, fails: 1, deletes: 2}},
		{name: "sidecar-fails", policy: onFailure, inits: mains(sidecar("side")), mains: mains(app),
			budget: give{fails: 1, deletes: 1}, deep: give{exits: 1, fails: 1, crashes: 1, deletes: 1}},
		{name: "sidecar-sandbox", policy: always, inits: mains(sidecar("side")), mains: mains(app),
			budget: give{exits: 1, sandboxes: 1}, deep: give{exits: 1, crashes: 1, sandboxes: 1, deletes: 1}},
		{name: "sidecars", policy: always, inits: mains(sidecar("side"), sidecar("other")), mains: mains(app),
			budget: give{exits: 1, deletes: 1}, deep: give{exits: 1, fails: 1, crashes: 1, deletes: 1}},
		{name: "sidecar-init", policy: onFailure, inits: mains(sidecar("side", startup), init), mains: mains(app),
			budget: give{exits: 1, crashes: 1}, deep: give{exits: 2, crashes: 1, sandboxes: 1, deletes: 1}},
		{name: "sidecar-probes", policy: never, inits: mains(sidecar("side", startup, liveness)), mains: mains(app),
			budget: give{exits: 1, sick: 1, deletes: 1}, deep: give{exits: 1, sick: 1, crashes: 1, deletes: 1}},
		{name: "sidecars-probes", policy: never, inits: mains(sidecar("side", liveness), sidecar("other", startup)), mains: mains(app),
			budget: give{sick: 2}, deep: give{exits: 1, sick: 2, deletes: 1}},
		{name: "sidecar-hooks", policy: always, inits: mains(sidecar("side", postStart, preStop)), mains: mains(with(app, preStop)),
			budget: give{deletes: 2}, deep: give{exits: 1, crashes: 1, deletes: 2}},
		{name: "rules", policy: never, mains: mains(with(app, rule(v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestart, 42))),
			budget: give{exits: 2, fails: 1, crashes: 1}, deep: give{exits: 3, fails: 1, crashes: 1, sandboxes: 1, deletes: 1}},
		{name: "restart-all", policy: never, inits: mains(init),
			mains:  mains(with(app, rule(v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestartAllContainers, 42)), job),
			budget: give{exits: 2}, deep: give{exits: 2, crashes: 1, deletes: 1}},
		{name: "restart-all-sidecar", policy: always, inits: mains(sidecar("side")),
			mains:  mains(with(app, rule(v1.ContainerRestartPolicyNever, v1.ContainerRestartRuleActionRestartAllContainers, 42))),
			budget: give{exits: 2, crashes: 1}, deep: give{exits: 2, crashes: 1, deletes: 1, fails: 1}},
		{name: "ephemeral", policy: onFailure, mains: mains(app),
			budget: give{debugs: 1, exits: 2, crashes: 1}, deep: give{debugs: 1, exits: 2, fails: 1, crashes: 1, deletes: 1, sandboxes: 1}},
		{name: "change", policy: never, mains: mains(app),
			budget: give{changes: 1, exits: 1, crashes: 1, fails: 1}, deep: give{changes: 2, exits: 1, crashes: 1, fails: 1, deletes: 1}},
		{name: "deadline", policy: always, mains: mains(with(app, preStop)), spec: func(s *v1.PodSpec) { s.ActiveDeadlineSeconds = new(int64(20)) },
			budget: give{exits: 1, crashes: 1, fails: 1}, deep: give{exits: 2, crashes: 1, fails: 1, deletes: 1}},
		{name: "losses", policy: onFailure, inits: mains(init), mains: mains(app),
			budget: give{losses: 1, exits: 1, deletes: 1}, deep: give{losses: 2, exits: 1, crashes: 1, deletes: 1}},
		{name: "sources", policy: always, mains: mains(with(app, preStop)),
			budget: give{gones: 1, returns: 1, crashes: 1, meanwhile: 2}, deep: give{gones: 1, returns: 1, crashes: 2, meanwhile: 2, exits: 1}},
		{name: "predecessor", policy: always, mains: mains(app),
			budget: give{preds: 1, gones: 1, exits: 1}, deep: give{preds: 2, gones: 1, deletes: 1, exits: 1, crashes: 1}},
		{name: "network", policy: always, mains: mains(app),
			budget: give{nets: 1, sandboxes: 1, fails: 1}, deep: give{nets: 2, sandboxes: 1, deletes: 1, crashes: 1, fails: 1}},
		{name: "evicted", policy: always, inits: mains(sidecar("side")), mains: mains(with(app, preStop)),
			budget: give{evicts: 1, deletes: 1, crashes: 1}, deep: give{evicts: 1, deletes: 1, crashes: 1, exits: 1, gones: 1}},
		{name: "unknown", policy: onFailure, mains: mains(with(app, preStop)),
			budget: give{unknowns: 1, exits: 1, fails: 1, deletes: 1}, deep: give{unknowns: 2, exits: 1, fails: 1, crashes: 1, deletes: 1}},
		{name: "resize", policy: always, mains: mains(with(app, sizes("1"))),
			budget: give{resizes: 1, fails: 1, crashes: 1}, deep: give{resizes: 2, exits: 1, fails: 1, crashes: 1, deletes: 1}},
		{name: "resize-lag", policy: onFailure, mains: mains(with(app, sizes("1"))), lag: true,
			budget: give{resizes: 1, fails: 1}, deep: give{resizes: 2, fails: 1, crashes: 1}},
		{name: "resize-two", policy: never, mains: mains(with(app, sizes("1")), with(job, sizes("2"))),
			budget: give{resizes: 1, exits: 1}, deep: give{resizes: 1, exits: 1, fails: 1, crashes: 1}},
		{name: "resize-restart", policy: always, mains: mains(with(app, sizes("1"), restartsForMemory)),
			budget: give{resizes: 1, exits: 1, deletes: 1}, deep: give{resizes: 2, exits: 1, fails: 1, crashes: 1, deletes: 1}},
		{name: "resize-sidecar", policy: always, inits: mains(sidecar("side", sizes("1"))), mains: mains(with(app, sizes("1"))),
			budget: give{resizes: 1, exits: 1}, deep: give{resizes: 1, exits: 1, fails: 1, crashes: 1}},
	}
}
