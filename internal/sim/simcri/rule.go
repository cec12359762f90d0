package simcri

import (
	"encoding/binary"
	"encoding/hex"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simrules"
)

// ReasonOOM is the reason of a container that the kernel has killed for lack of memory.
const ReasonOOM = "OOMKilled"

// ruleOf returns what a container does by an annotation of its pod, or by the first rule of the runtime that matches; nil: neither says it.
func (r *Runtime) ruleOf(c *container) (*simrules.Do, error) {
	if text, ok := c.note(AnnotationDo); ok {
		return simrules.ParseDo("annotation "+AnnotationDo, []byte(text))
	}
	if r.cfg.Rules == nil {
		return nil, nil
	}
	return r.cfg.Rules.Find(simrules.Subject{
		Namespace: c.sb.meta.Namespace, Pod: c.sb.meta.Name, Container: c.meta.Name, Image: imageName(c), Labels: c.sb.labels.asMap(), Annotations: c.sb.annotations.asMap(),
	}), nil
}

// imageName returns the name of a container's image as its pod has it, if the runtime knows it.
func imageName(c *container) string {
	if name := c.spec.GetUserSpecifiedImage(); name != "" {
		return name
	}
	return c.spec.GetImage()
}

// apply adds what the rule of a container says to what its annotations say. The caller holds the lock.
func (r *Runtime) apply(c *container, b *Behavior) {
	if b.StartError == "" {
		b.StartError = c.do.StartError
	}
	if b.Exits {
		return
	}
	e := c.do.Exit(c.meta.Attempt, r.chance("exit", c.name, 0))
	switch {
	case e == nil:
	case e.Runs:
		b.Serves = true
	default:
		b.Exits, b.ExitCode, b.Reason, b.Message = true, e.Code, e.Reason, e.Message
		b.RunFor = e.After.Duration + around(e.Jitter.Duration, r.chance("exit time", c.name, 0))
		if e.OOM {
			b.ExitCode, b.Reason = killed.code, ReasonOOM
		}
	}
}

// startWait returns for how long the start of a container has to wait, because its rule says that the pod's containers do not start earlier. The caller
// holds the lock.
func (r *Runtime) startWait(id string, now time.Time) time.Duration {
	c := find(r.containers, id)
	if c == nil || c.do == nil || c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return 0
	}
	return max(0, time.Unix(0, c.sb.created).Add(c.do.StartAfter.Duration).Sub(now))
}

// output returns the output that a rule says, as a program without an end; nil: no rule says any. The container's end is not its matter.
func (c *container) output() *program {
	if c.do == nil || len(c.do.Log.Lines)+len(c.do.Log.Repeat) == 0 {
		return nil
	}
	p := &program{}
	add := func(lines []simrules.Line) {
		for i := range lines {
			l := &lines[i]
			p.took += l.After.Duration
			p.steps = append(p.steps, step{p.took, []byte(l.Text + "\n"), l.Stderr})
		}
	}
	add(c.do.Log.Lines)
	p.loopFrom, p.period = len(p.steps), -p.took
	add(c.do.Log.Repeat)
	if p.period += p.took; p.period == 0 {
		p.loopFrom = 0
	}
	return p
}

// noted reports whether the pod has one of the annotations for the container.
func (c *container) noted(names ...string) bool {
	for _, name := range names {
		if _, ok := c.note(name); ok {
			return true
		}
	}
	return false
}

// memoryUsage returns the usage that annotations or a rule say; nil: neither says it.
func (c *container) memoryUsage() *simrules.Usage {
	if c.noted(AnnotationMemory, AnnotationMemoryGrows) {
		return simrules.Constant(c.amount(AnnotationMemory, 10<<20), c.amount(AnnotationMemoryGrows, 0))
	}
	if c.do != nil {
		return c.do.Memory
	}
	return nil
}

// ownEnd returns when and how a running container ends by itself; the zero time: never.
func (c *container) ownEnd(b *Behavior) (time.Time, exit) {
	started := time.Unix(0, c.started)
	switch {
	case b.Exits:
		return started.Add(b.RunFor), exit{b.ExitCode, b.Reason, b.Message}
	case !b.Serves && c.prog != nil && !c.prog.forever:
		return started.Add(c.prog.took), exit{code: c.prog.code, message: c.prog.message}
	}
	return time.Time{}, exit{}
}

// limitMemory makes a running container end as out of memory at the time when its usage exceeds its limit, if a rule or an annotation says its usage.
// The caller holds the lock, and plans the next change.
func (r *Runtime) limitMemory(c *container) {
	limit := c.resources.GetMemoryLimitInBytes()
	usage := c.memoryUsage()
	if limit <= 0 || usage == nil {
		return
	}
	after, ok := usage.Exceeds(float64(limit), c.seed())
	if at := time.Unix(0, c.started).Add(after); ok && (c.endsAt.IsZero() || at.Before(c.endsAt)) {
		c.noRoom = true
		c.endsAt, c.ending = at, exit{code: killed.code, reason: ReasonOOM}
	}
}

// seed returns the seed of the noise of a container's usage.
func (c *container) seed() uint64 {
	var b [8]byte
	_, _ = hex.Decode(b[:], []byte(c.id[:min(16, len(c.id))])) // an ID has hexadecimal digits
	return binary.LittleEndian.Uint64(b[:])
}
