package simcri

import (
	"strconv"
	"time"
)

// These annotations of a pod script its containers. An annotation may end in "." and a container's name. It then applies to
// this container and takes precedence over the one without a name.
const (
	AnnotationRunFor       = "wherry.dev/sim-run-for"       // exit by itself after this duration ("10s")
	AnnotationExitCode     = "wherry.dev/sim-exit-code"     // exit with this code; without sim-run-for: at once
	AnnotationExitReason   = "wherry.dev/sim-exit-reason"   // the reason of the end, for example OOMKilled
	AnnotationMessage      = "wherry.dev/sim-message"       // the termination message
	AnnotationFailAttempts = "wherry.dev/sim-fail-attempts" // only attempts below this number exit like this; later ones run until they are stopped
	AnnotationStopAfter    = "wherry.dev/sim-stop-after"    // time from the stop signal to the exit; "never": it runs until it is killed
	AnnotationStartError   = "wherry.dev/sim-start-error"   // StartContainer fails with this message
	AnnotationReadyAfter   = "wherry.dev/sim-ready-after"   // until this time has passed, requests to the container and commands without output fail
	AnnotationFailAfter    = "wherry.dev/sim-fail-after"    // after this time, requests to the container and commands without output fail
	AnnotationCPU          = "wherry.dev/sim-cpu"           // usage in cores ("0.25", "250m"); default 0.001
	AnnotationMemory       = "wherry.dev/sim-memory"        // working set in bytes ("100Mi"); default 10 MiB
	AnnotationMemoryGrows  = "wherry.dev/sim-memory-grows"  // bytes by which the working set grows in each second that it runs
	AnnotationDisk         = "wherry.dev/sim-disk"          // bytes in its writable layer; default 8 KiB
	AnnotationDo           = "wherry.dev/sim-do"            // what a rule of a file has in its field do, as YAML or JSON: see docs/fleet-rules.md
	AnnotationDiskGrows    = "wherry.dev/sim-disk-grows"    // bytes by which the writable layer grows in each second that it runs
)

// ContainerInfo describes a container to Config.Behave. The maps must not be modified.
type ContainerInfo struct {
	PodNamespace, PodName, PodUID string
	Name, ID                      string
	Attempt                       uint32
	Image                         string
	PodAnnotations                map[string]string
	Annotations                   map[string]string
	// Running is how long the container has run; 0 before it starts.
	Running time.Duration
}

// Behavior is the behaviour of a container. The zero value leaves the behaviour to the container's command.
type Behavior struct {
	// Exits makes the container exit after RunFor with ExitCode, Reason and Message.
	Exits           bool
	RunFor          time.Duration
	ExitCode        int32
	Reason, Message string
	// Serves makes the container run until it is stopped, whatever its command.
	Serves bool
	// StopAfter is the time from the stop signal to the exit with StopCode.
	StopAfter  time.Duration
	StopCode   int32
	IgnoreStop bool
	// StartError makes StartContainer fail.
	StartError string
}

func (r *Runtime) info(c *container) ContainerInfo {
	info := ContainerInfo{
		PodNamespace: c.sb.meta.Namespace, PodName: c.sb.meta.Name, PodUID: c.sb.meta.Uid,
		Name: c.meta.Name, ID: c.id, Attempt: c.meta.Attempt, Image: c.spec.GetImage(),
		PodAnnotations: c.sb.annotations.asMap(), Annotations: c.annotations.asMap(),
	}
	if c.started != 0 {
		info.Running = time.Since(time.Unix(0, c.started))
	}
	return info
}

// note returns the value of the annotation that applies to this container.
func (c *container) note(name string) (string, bool) {
	if c.sb.annotations.empty() {
		return "", false
	}
	if v, ok := c.sb.annotations.get(name + "." + c.meta.Name); ok {
		return v, true
	}
	return c.sb.annotations.get(name)
}

func (c *container) duration(name string) (time.Duration, bool) {
	v, ok := c.note(name)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(v)
	return d, err == nil
}

// behavior returns the container's behaviour. It is called with the lock held.
func (r *Runtime) behavior(c *container) Behavior {
	if r.cfg.Behave != nil {
		if b, ok := r.cfg.Behave(r.info(c)); ok {
			return b
		}
	}
	var b Behavior
	if v, ok := c.note(AnnotationExitCode); ok {
		if n, err := strconv.ParseInt(v, 10, 32); err == nil {
			b.Exits, b.ExitCode = true, int32(n)
		}
	}
	if d, ok := c.duration(AnnotationRunFor); ok {
		b.Exits, b.RunFor = true, d
	}
	if b.Exits {
		b.Reason, _ = c.note(AnnotationExitReason)
		b.Message, _ = c.note(AnnotationMessage)
	}
	b.StartError, _ = c.note(AnnotationStartError)
	if c.do != nil {
		r.apply(c, &b)
	}
	if v, ok := c.note(AnnotationFailAttempts); ok {
		if n, err := strconv.ParseUint(v, 10, 32); err == nil && uint64(c.meta.Attempt) >= n {
			b = Behavior{Serves: true}
		}
	}
	if v, ok := c.note(AnnotationStopAfter); ok {
		b.IgnoreStop = v == "never"
		b.StopAfter, _ = c.duration(AnnotationStopAfter)
	} else if c.do != nil {
		if after, never, set := c.do.Stop(); set {
			b.StopAfter, b.IgnoreStop, b.StopCode = after, never, c.do.StopCode
		}
	}
	return b
}

// healthy reports whether requests to the container, and commands in it without output, succeed now.
func (c *container) healthy(now time.Time) bool {
	ran := now.Sub(time.Unix(0, c.started))
	ready, isSet := c.duration(AnnotationReadyAfter)
	if !isSet && c.do != nil {
		ready = c.do.ReadyAfter.Duration
	}
	fails, isSet := c.duration(AnnotationFailAfter)
	if !isSet && c.do != nil {
		fails, isSet = c.do.FailAfter.Duration, c.do.FailAfter.Duration > 0
	}
	return ran >= ready && (!isSet || ran < fails)
}
