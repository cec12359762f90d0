package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// trouble is a kind of event that the environment may cause only a limited number of times on one path, so that the search is
// finite. Within that limit the search is exhaustive.
type trouble uint8

const (
	exits     trouble = iota // a container ends by itself, with 0 or 1 (or the codes that its rules name)
	fails                    // an action fails, or its result is unknown: it may have had its effect or not
	crashes                  // the agent is killed while actions in flight are done, half done or not begun
	meanwhile                // something happens while no agent runs
	sandboxes                // the sandbox dies, is not ready, or loses its address
	deletes                  // a user deletes the pod, also again with a shorter grace period, or by force
	gones                    // the pod is gone from its source
	returns                  // a source has the pod again after it had removed it
	sick                     // a liveness or startup probe fails for good
	flips                    // the result of a readiness probe changes
	evicts                   // the node decides to end the pod
	changes                  // the spec asks for another image
	losses                   // the runtime loses a container, or everything
	nets                     // the node's pod network is not ready for a while
	preds                    // a predecessor with the same name is on the node for a while
	unknowns                 // the runtime does not know a container's state
	debugs                   // an ephemeral container is added
	resizes                  // the node accepts other resources for the pod
	troubles
)

var troubleNames = [troubles]string{"exits", "fails", "crashes", "meanwhile", "sandboxes", "deletes", "gones", "returns", "sick", "flips",
	"evicts", "changes", "losses", "nets", "preds", "unknowns", "debugs", "resizes"}

// budget is how often each trouble may still occur.
type budget [troubles]uint8

// give is a budget as test tables write it. A trouble that is not in the map does not occur.
type give map[trouble]uint8

func (g give) array() budget {
	var b budget
	for k, n := range g {
		b[k] = n
	}
	return b
}

func (g give) String() string {
	var out []string
	for k, n := range g.array() {
		if n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, troubleNames[k]))
		}
	}
	return strings.Join(out, ", ")
}

// mover collects the states that may follow one state of the search.
type mover struct {
	node
	out []node
}

// environment returns all states that may follow n, one for each event that the environment may cause next.
func (n node) environment() []node {
	m := &mover{node: n}
	if n.down {
		m.whileDown()
		return m.out
	}
	m.flightsEnd()
	m.containersEnd()
	m.probesTell()
	m.apiActs()
	m.nodeActs()
	m.agentEnds()
	if n.dirty {
		m.add("inspect", func(c *node) { c.inspect() })
	}
	in := n.input()
	if p := n.brain.decide(&in); !p.WakeAt.IsZero() {
		m.add("wake", func(c *node) { c.now = p.WakeAt; c.look() })
	}
	return m.out
}

func (m *mover) add(event string, do func(*node)) { m.out = append(m.out, m.move(event, do)) }

// spend adds a move that uses up one trouble of a kind. If the budget has no trouble of that kind left, it does nothing.
func (m *mover) spend(what trouble, event string, do func(*node)) {
	if m.left[what] > 0 {
		m.add(event, func(c *node) { c.left[what]--; do(c) })
	}
}

func (m *mover) flightsEnd() {
	for i, f := range m.flights {
		if f.canceled {
			m.add("canceled "+f.action.String(), func(c *node) { c.finish(i, "canceled") })
			if m.left[fails] == 0 {
				continue // a canceled action that succeeds anyway uses up one of the budgeted failures, and none is left
			}
			m.spend(fails, "done, though canceled, "+f.action.String(), func(c *node) { c.finish(i, "") })
			continue
		}
		m.add("done "+f.action.String(), func(c *node) { c.finish(i, "") })
		for _, how := range failures(f.action.Op) {
			m.spend(fails, how+" "+f.action.String(), func(c *node) { c.finish(i, how) })
		}
	}
}

func failures(op pod.Op) []string {
	switch op {
	case pod.OpStartContainer:
		return []string{"Failed", "RunContainerError", "unknown", "unknown-undone"}
	case pod.OpRunSandbox, pod.OpStopContainer:
		return []string{"Failed", "unknown", "unknown-undone"}
	}
	return []string{"Failed"}
}

func (m *mover) containersEnd() {
	for i := range m.containers {
		if m.containers[i].State != pod.StateRunning {
			continue
		}
		for _, code := range m.codes(m.containers[i].Name) {
			m.spend(exits, fmt.Sprintf("exit %s %d", m.containers[i].ID, code), func(c *node) {
				c.exit(&c.containers[i], code)
				c.look()
			})
		}
		m.spend(unknowns, "unknown "+m.containers[i].ID, func(c *node) {
			c.containers[i].State = pod.StateUnknown
			c.look()
		})
	}
}

// codes returns the exit codes that make a difference for a container.
func (m *mover) codes(name string) []int32 {
	out := []int32{0, 1}
	if spec := m.spec(name); spec != nil {
		for _, r := range spec.RestartPolicyRules {
			out = append(out, r.ExitCodes.Values...)
		}
	}
	return out
}

func (m *mover) probesTell() {
	if m.pod == nil {
		return
	}
	for i, h := range m.health {
		inst := m.byID(h.id)
		if inst == nil || inst.State != pod.StateRunning || h.sick {
			continue
		}
		spec := m.spec(inst.Name)
		if spec == nil {
			continue
		}
		if !h.started {
			m.add("startup probe of "+h.id+" succeeds", func(c *node) {
				c.health[i].started, c.health[i].ready = true, spec.ReadinessProbe == nil
				c.up(c.byID(h.id))
			})
		}
		if (!h.started && spec.StartupProbe != nil) || (h.started && spec.LivenessProbe != nil) {
			m.spend(sick, "a probe of "+h.id+" fails", func(c *node) {
				c.health[i].sick = true // the readiness does not change, because it depends on the readiness probe only
				c.fate(h.id).doomed = true
			})
		}
		if h.started && spec.ReadinessProbe != nil {
			m.spend(flips, "readiness of "+h.id+" flips", func(c *node) { c.health[i].ready = !c.health[i].ready })
		}
	}
}

// apiActs adds the moves that come from the API or the node's decisions: the pod is deleted, its spec changes, its source loses it or has
// it again, and the node evicts it.
func (m *mover) apiActs() {
	if m.want != nil {
		for _, grace := range []int64{30, 5, 0} {
			if old := m.want.DeletionGracePeriodSeconds; old == nil || *old > grace {
				m.spend(deletes, fmt.Sprintf("delete with %d s", grace), func(c *node) { c.delete(grace) })
			}
		}
		m.spend(gones, "gone from its source", func(c *node) { c.want = nil; c.see() })
		m.spend(changes, "another image", func(c *node) { c.change() })
		m.spend(debugs, "an ephemeral container is asked for", func(c *node) { c.debug() })
	} else {
		m.spend(returns, "back in its source", func(c *node) { c.want = c.last; c.see() })
	}
	if m.pod != nil && m.mem.Stop == nil {
		for _, grace := range []time.Duration{0, 5 * time.Second} {
			m.spend(evicts, fmt.Sprintf("evicted with %s", grace), func(c *node) {
				c.mem.Stop = &decide.Stop{Reason: "Evicted", Grace: &grace, Since: c.now}
				c.saved, c.evicted = c.mem.Kept(), true
			})
		}
	}
	if m.pod != nil && (m.mem.Stop == nil || !m.mem.Stop.AtOnce) {
		m.spend(evicts, "evicted at once", func(c *node) {
			c.mem.Halt(&decide.Stop{Reason: "Evicted", Grace: new(time.Duration(0)), AtOnce: true, Since: c.now})
			c.saved, c.evicted = c.mem.Kept(), true
		})
	}
}

// see gives the agent the pod that its sources want. It does nothing while the agent is down or still waits for their first answer.
func (n *node) see() {
	if n.node.SourcesReady && !n.down {
		n.pod = n.want
	}
}

func (n *node) delete(grace int64) {
	p := *n.want
	at := metav1.NewTime(n.now)
	if p.DeletionTimestamp != nil {
		at = *p.DeletionTimestamp
	}
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	n.want = &p
	n.see()
}

func (n *node) change() {
	p := n.want.DeepCopy()
	p.Spec.Containers[0].Image += "'"
	n.want = p
	hashes := map[string]string{}
	for _, c := range probed(p) {
		hashes[c.Name] = specHash(c.Image)
	}
	n.hashes = hashes
	n.see()
}

// resize changes the resources of the first container, or moves some from one container to another.
func (n *node) resize(how string) {
	p := n.want.DeepCopy()
	give := func(i int, cpu, memory string) {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
		p.Spec.Containers[i].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
		n.record(p.Spec.Containers[i].Name).ends = 0 // a resize ends the container's back-off
	}
	switch last := len(p.Spec.Containers) - 1; how {
	case "up":
		give(0, "3", "3Gi")
	case "down":
		give(0, "500m", "512Mi")
	case "mixed":
		give(0, "4", "512Mi")
		give(last, "1", "5Gi")
	}
	p.Generation++
	n.want = p
	n.see()
	n.mem.Allocated = pod.AllocationOf(p)
	n.mem.Resize = decide.Resize{InProgress: true, Generation: p.Generation, Since: n.now}
	n.saved = n.mem.Kept()
}

func (n *node) debug() {
	p := n.want.DeepCopy()
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "d"},
	})
	n.want = p
	n.see()
}

// nodeActs adds the moves in which something happens to the pod on the node, for example that its sandbox dies.
func (m *mover) nodeActs() {
	if len(m.sandboxes) > 0 && m.sandboxes[0].Ready {
		m.spend(sandboxes, "sandbox dies", func(c *node) { c.sandboxDies() })
		m.spend(sandboxes, "sandbox is not ready", func(c *node) { c.sandboxes[0].Ready = false; c.look() })
		m.spend(sandboxes, "sandbox has no address", func(c *node) { c.sandboxes[0].IPs = nil; c.look() })
	}
	for i := range m.containers {
		m.spend(losses, "the runtime loses "+m.containers[i].ID, func(c *node) { c.lose(i) })
	}
	if len(m.containers) > 1 {
		m.spend(losses, "the runtime loses everything", func(c *node) {
			for len(c.containers) > 0 {
				c.lose(0)
			}
			c.sandboxes = nil
			c.look()
		})
	}
	if m.want != nil && m.pod != nil && m.want.DeletionTimestamp == nil {
		for _, how := range []string{"up", "down", "mixed"} {
			m.spend(resizes, "the node accepts a resize "+how, func(c *node) { c.resize(how) })
		}
	}
	if m.world.node.NetworkReady {
		m.spend(nets, "the network is not ready", func(c *node) { c.node.NetworkReady = false })
	} else {
		m.add("the network is ready", func(c *node) { c.node.NetworkReady = true })
	}
	if m.world.node.Predecessor {
		m.add("the predecessor is gone", func(c *node) { c.node.Predecessor = false })
	} else if len(m.sandboxes) == 0 {
		m.spend(preds, "a predecessor", func(c *node) { c.node.Predecessor = true })
	}
	if !m.world.node.SourcesReady {
		m.add("the sources answer", func(c *node) { c.answer() })
	}
}

// lose makes the runtime forget a container. If it was alive, it no longer runs.
func (n *node) lose(i int) {
	c := n.containers[i]
	r := n.record(c.Name)
	if newest := n.newest(c.Name); newest.ID == c.ID && c.State == pod.StateRunning {
		r.ended, r.code, r.at = true, 137, n.now
	}
	n.vanished = true
	n.containers = slices.Delete(n.containers, i, i+1)
	n.look()
}

func (w *world) sandboxDies() {
	w.sandboxes[0].Ready = false
	for i := range w.containers {
		if c := &w.containers[i]; c.SandboxID == w.sandboxes[0].ID && c.Alive() {
			w.exit(c, 137)
		}
	}
	w.look()
}

// agentEnds adds moves that kill the agent. The actions in flight were done, half done or not done at all, in every combination.
func (m *mover) agentEnds() {
	if m.left[crashes] == 0 {
		return
	}
	ways := [][]string{{}}
	for _, f := range m.flights {
		how := []string{"not", "done"}
		if f.action.Op == pod.OpStartContainer && f.action.ID == "" {
			how = append(how, "half")
		}
		if !f.action.Op.TouchesRuntime() && f.action.Op != pod.OpSetUp && f.action.Op != pod.OpTearDown && f.action.Op != pod.OpForget {
			how = how[:1] // the action has no effect that outlives the agent
		}
		var more [][]string
		for _, way := range ways {
			for _, h := range how {
				more = append(more, append(slices.Clone(way), h))
			}
		}
		ways = more
	}
	for _, way := range ways {
		m.spend(crashes, "the agent is killed, its actions "+strings.Join(way, ", "), func(c *node) {
			c.die(func(i int) string { return way[i] })
		})
	}
}

// whileDown adds the moves that are possible while no agent runs: the next agent starts or, within the budget, something happens to the
// pod.
func (m *mover) whileDown() {
	m.add("the next agent", func(c *node) { c.rise(false) })
	m.add("the next agent, cold", func(c *node) { c.rise(true) })
	if m.left[meanwhile] == 0 {
		return
	}
	down := &mover{node: m.node}
	down.left[meanwhile]--
	down.containersEnd()
	down.apiActs()
	if len(m.sandboxes) > 0 && m.sandboxes[0].Ready {
		down.spend(sandboxes, "sandbox dies", func(c *node) { c.sandboxDies() })
	}
	down.add("a minute passes", func(c *node) { c.now = c.now.Add(time.Minute) })
	m.out = append(m.out, down.out...)
}
