package decide_test

import (
	"flag"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/replay"
	"github.com/wherry-node/wherry/internal/proof/script"
)

var update = flag.Bool("update", false, "rewrite the expected plans in testdata")

// TestScripts runs testdata/decide/*.txt: see package script. `go test -update` rewrites the output.
func TestScripts(t *testing.T) {
	t.Parallel()
	script.Run(t, "testdata/decide/*.txt", *update, tell)
}

// tell returns the function that carries out the commands of one script, on a new world.
func tell(t *testing.T, x *script.Text) func([]string) {
	s := &story{world: newWorld(), Text: x}
	s.noInspect = false
	s.seen = func(in *decide.Input, plan *decide.Plan) {
		replays(t, in, plan)
		steps(t, in, plan)
	}
	t.Cleanup(func() {
		for _, b := range s.broken {
			if s.exported && b.inv != invPure && b.inv != invIdle {
				continue // most invariants need the pod's whole history, which is not known before the exported turn
			}
			t.Errorf("invariant: %s: %s", b.inv, b.text)
		}
	})
	return s.command
}

// story is the state of a running script about one pod.
type story struct {
	*world
	*script.Text
	was      *v1.Pod       // the pod before its source lost it
	parts    *decide.Input // the parts of an exported turn that turn-of commands have read; restore puts them into the world
	exported bool          // the script begins with an exported turn
}

func (s *story) command(f []string) {
	if f[0] == "turn-of" { // turn-of PART JSON: a part of an exported turn, as wherry replay --script writes it
		s.part(f)
		return
	}
	if s.parts != nil {
		s.restore()
	}
	if s.pod == nil && !s.exported && s.starts == 0 && !s.mem.Orphaned && f[0] != "pod" && f[0] != "found" && len(s.containers) == 0 && s.observed.Began.IsZero() {
		s.Fail("the first command is pod")
		return
	}
	if d, err := time.ParseDuration(strings.TrimPrefix(f[0], "+")); err == nil && strings.HasPrefix(f[0], "+") {
		s.advance(d)
		return
	}
	switch f[0] {
	case "pod", "init", "sidecar", "main", "ephemeral":
		s.define(f)
	case "turn":
		s.printPlan(s.turn())
	case "settle":
		s.settle()
	case "done", "fail", "unknown", "unknown-undone", "canceled":
		s.outcome(f)
	case "fault", "heal", "takes", "stubborn", "polite":
		s.trouble(f)
	default:
		s.event(f)
	}
}

func (s *story) printPlan(p decide.Plan) {
	for _, l := range replay.PlanLines(&p, s.now) {
		s.Print("%s", l)
	}
}

// settle takes turns until nothing changes any more. Every action in flight succeeds, except those for which the script's command "fault"
// has ordered a failure.
func (s *story) settle() {
	for range 60 {
		p := s.turn()
		for _, a := range p.Do {
			s.Print("%s", a)
		}
		for _, a := range p.Cancel {
			s.Print("cancel %s", a)
		}
		if !s.complete() && len(p.Do) == 0 && len(p.Cancel) == 0 {
			p.Do = nil
			s.printPlan(p)
			return
		}
	}
	s.Fail("does not settle")
}

// complete ends every action in flight that is due by now. It reports whether it ended any.
func (s *story) complete() bool {
	any := false
	for i := 0; i < len(s.flights); {
		a := s.flights[i].action
		if s.flights[i].until.After(s.now) {
			i++
			continue
		}
		how := s.faults[strings.TrimSpace(a.Op.String()+" "+a.Container)]
		if how != "" {
			s.Print("  failed: %s %s (%s)", a.Op, a.Container, how)
		}
		s.finish(i, how)
		any = true
	}
	return any
}

// advance moves the clock forward and ends every action in flight whose time has come.
func (s *story) advance(d time.Duration) {
	s.now = s.now.Add(d)
	s.complete()
	s.look()
}

// outcome ends one action: "done start-container app", "fail pull-image app ErrImagePull", "unknown run-sandbox".
func (s *story) outcome(f []string) {
	name := ""
	if len(f) > 2 {
		name = f[2]
	}
	for i, fl := range s.flights {
		if fl.action.Op.String() != f[1] || (fl.action.Container != name && fl.action.ID != name) {
			continue
		}
		switch f[0] {
		case "done":
			s.finish(i, "")
		case "fail":
			how := "Failed"
			if len(f) > 3 {
				how = f[3]
			}
			s.finish(i, how)
		default:
			s.finish(i, f[0])
		}
		return
	}
	s.Fail("%v is not in flight: %v", f[1:], s.inFlight())
}

// shows lets an action in flight take effect in the runtime before the agent gets its outcome: "shows start-container app". With a fourth
// word, as in "shows start-container app created", the container is created but not started.
func (s *story) shows(f []string) {
	name := strings.Join(f[2:min(3, len(f))], "")
	for i := range s.flights {
		fl := &s.flights[i]
		switch {
		case fl.action.Op.String() != f[1] || fl.action.Container != name:
			continue
		case len(f) > 3:
			fl.made = s.create(*fl)
		default:
			fl.made = s.apply(*fl)
		}
		return
	}
	s.Fail("%v is not in flight: %v", f[1:], s.inFlight())
}

// trouble carries out the commands that say how later actions go: "fault pull-image app ErrImagePull" (the pull fails), "heal pull-image
// app" (it no longer fails), "takes pre-stop app 10s", "stubborn app" (app ignores SIGTERM) and "polite app" (app exits with 0 on SIGTERM).
func (s *story) trouble(f []string) {
	switch f[0] {
	case "fault":
		s.faults[strings.Join(f[1:len(f)-1], " ")] = f[len(f)-1]
	case "heal":
		delete(s.faults, strings.Join(f[1:], " "))
	case "takes":
		d, err := time.ParseDuration(f[len(f)-1])
		if err != nil {
			s.Fail("%v", err)
		}
		s.takes[strings.Join(f[1:len(f)-1], " ")] = d
	case "stubborn":
		s.stubborn[f[1]] = true
	case "polite":
		s.polite[f[1]] = true
	}
}

// event carries out the script's commands that make something happen to the pod from outside the agent, for example "exit app 1".
func (s *story) event(f []string) {
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	switch f[0] {
	case "exit": // exit app 1 [finished=unknown|DURATION] [started=unknown]
		s.onContainer(arg(1), func(c *pod.Container) { s.exits(c, f) })
	case "state": // state app unknown|created|cut-short|running
		s.onContainer(arg(1), func(c *pod.Container) {
			c.CutShort = arg(2) == "cut-short"
			c.State = map[string]pod.ContainerState{
				"unknown": pod.StateUnknown, "created": pod.StateCreated, "running": pod.StateRunning}[arg(2)]
		})
	case "hash": // hash app [HASH]: another version of the agent created app, and stored this hash of its definition, or none
		s.onContainer(arg(1), func(c *pod.Container) { c.SpecHash = arg(2) })
	case "stray": // the runtime has a container that the spec does not have
		c := pod.Container{ID: arg(1) + "-0", Name: arg(1), SandboxID: s.sandboxes[0].ID, State: pod.StateRunning, StartedAt: s.now, Grace: -1}
		s.containers = append(s.containers, c)
	case "zombie": // an older instance turns out to be alive beside the newest
		s.onContainer(arg(1), func(c *pod.Container) {
			old := *c
			old.ID, old.State, old.Attempt = "zombie", pod.StateRunning, 0
			c.Attempt++
			s.record(c.Name).tried = int(c.Attempt)
			s.containers = append(s.containers, old)
		})
	case "vanish": // the runtime loses a container, or everything
		s.containers = slices.DeleteFunc(s.containers, func(c pod.Container) bool { return f[1] == "all" || c.Name == f[1] })
		if f[1] == "all" {
			s.sandboxes = nil
		}
	case "sandbox":
		s.onSandbox(arg(1))
	case "probe": // probe app started|unhealthy|healthy
		s.probed(arg(1), arg(2))
	case "delete", "stop", "reject":
		s.ending(f)
	case "gone": // gone [grace=0]: the source no longer has the pod; the pod's last deletion had this grace period
		s.was, s.pod = s.pod, nil
		if val, ok := strings.CutPrefix(arg(1), "grace="); ok {
			n, _ := strconv.ParseInt(val, 10, 64)
			s.lastGrace = &n
		}
	case "back":
		s.pod, s.lastGrace = s.was, nil
	case "change": // change app: a new image; change app back: the image before
		image := s.spec(f[1]).Image
		if s.spec(f[1]).Image = image + "-v2"; arg(2) == "back" {
			s.spec(f[1]).Image = strings.TrimSuffix(image, "-v2")
		}
		s.hashes[f[1]] = specHash(s.spec(f[1]).Image)
	case "resize":
		s.resize(f)
	case "progress": // prints what the status reports about a resize
		s.Print("in progress=%v error=%q", s.mem.Resize.InProgress, s.mem.Resize.Error)
	case "node":
		s.onNode(arg(1))
	case "crash":
		if arg(1) == "lost" { // crash lost: the checkpoint is lost too
			s.saved, s.mem, s.said = decide.Memory{Grant: decide.Grant{StartTime: epoch}}, decide.Memory{}, nil
		}
		s.crash(arg(1) == "done")
	case "admit":
		s.mem.Admitted, s.saved.Admitted = true, true
	case "status": // status app waiting|running|terminated CODE [restarts=N] [id=ID] [started=BOOL] [last=CODE]
		s.status(f)
	case "inspect":
		s.inspect()
	case "hold": // from now on the runtime is inspected only when the script says so
		s.noInspect = true
	case "lingers": // a canceled action ends only when the script says so
		s.lingers = true
	case "shows":
		s.shows(f)
	default:
		s.Fail("unknown command %q", f[0])
	}
	s.look()
}

func (s *story) onContainer(name string, do func(*pod.Container)) {
	c := s.newest(name)
	if c == nil {
		s.Fail("no container %q", name)
		return
	}
	do(c)
}

// exits carries out "exit app 1 finished=-5s started=unknown": app ends with the exit code 1. The options set the times that the runtime
// reports for its end and its start; unknown means that the runtime reports no time.
func (s *story) exits(c *pod.Container, f []string) {
	n, _ := strconv.Atoi(f[2])
	s.exit(c, int32(n))
	for _, opt := range f[3:] {
		key, val, _ := strings.Cut(opt, "=")
		at := time.Time{}
		if val != "unknown" {
			d, err := time.ParseDuration(val)
			if err != nil {
				s.Fail("%v", err)
			}
			at = s.now.Add(d)
		}
		switch key {
		case "finished":
			c.FinishedAt = at
		case "started":
			c.StartedAt = at
		default:
			s.Fail("unknown option %q", opt)
		}
	}
}

func (s *story) onSandbox(what string) {
	if len(s.sandboxes) == 0 {
		s.Fail("no sandbox")
		return
	}
	sb := &s.sandboxes[0]
	switch what {
	case "dies": // all containers of the sandbox die too
		sb.Ready = false
		for i := range s.containers {
			if c := &s.containers[i]; c.SandboxID == sb.ID && c.Alive() {
				s.exit(c, 137)
			}
		}
	case "unready":
		sb.Ready = false
	case "noip":
		sb.IPs = nil
	case "another": // a new sandbox is ready; the containers live on in the old sandbox
		sb.Ready = false
		s.sandboxes = slices.Insert(s.sandboxes, 0, pod.Sandbox{ID: "sb9", Attempt: 9, Ready: true, IPs: []string{"10.0.0.9"}})
	case "twice":
		s.sandboxes = append(s.sandboxes, pod.Sandbox{ID: "older", Ready: true, IPs: []string{"10.0.0.9"}})
	default:
		s.Fail("unknown sandbox event %q", what)
	}
}

func (s *story) probed(name, what string) {
	c := s.newest(name)
	if c == nil {
		s.Fail("no container %q", name)
		return
	}
	said := s.said.Of(c)
	said.Name, said.ID = name, c.ID
	switch what {
	case "started":
		said.Started = true
		s.record(name).upIn = c.SandboxID
	case "unhealthy":
		said.Failed = failedProbe(s.spec(name), said.Started)
	case "healthy":
		said.Failed = decide.FailedProbe{}
	}
	s.said.Set(said)
}

// ending carries out the commands that end the pod: "delete grace=30", "stop Evicted grace=0", "stop Evicted at-once" and "reject OutOfcpu".
func (s *story) ending(f []string) {
	var grace *int64
	reason, atOnce := "", false
	for _, opt := range f[1:] {
		if val, ok := strings.CutPrefix(opt, "grace="); ok {
			n, _ := strconv.ParseInt(val, 10, 64)
			grace = &n
		} else if opt == "at-once" {
			atOnce = true
		} else {
			reason = opt
		}
	}
	switch f[0] {
	case "delete":
		at := metav1.NewTime(s.now)
		s.pod.DeletionTimestamp, s.pod.DeletionGracePeriodSeconds = &at, grace
	default:
		s.mem.Stop = &decide.Stop{Reason: reason, Rejected: f[0] == "reject", AtOnce: atOnce, Since: s.now}
		if grace != nil {
			d := time.Duration(*grace) * time.Second
			s.mem.Stop.Grace = &d
		}
		s.saved = s.mem.Kept()
	}
}

func (s *story) onNode(what string) {
	switch what {
	case "network-down":
		s.node.NetworkReady = false
	case "network-up":
		s.node.NetworkReady = true
	case "sources-unknown":
		s.node.SourcesReady = false
	case "sources-ready":
		s.node.SourcesReady = true
	case "predecessor":
		s.node.Predecessor = true
	case "predecessor-gone":
		s.node.Predecessor = false
	default:
		if id, ok := strings.CutPrefix(what, "excess="); ok {
			s.node.Excess = append(s.node.Excess, id)
			return
		}
		s.Fail("unknown node event %q", what)
	}
}
