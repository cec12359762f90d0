package agenttest

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dialer is the network between the agent and its pods. It reports the results of probes to the Witness, the observer of the test run. Each
// probe of a pod has a port of its own (portProbes), by which the Witness recognizes the probe.
type dialer struct {
	w *World
	l *line
}

// DialContext connects to a pod.
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.w.Runtime.DialContext(ctx, network, address)
	report := func(ok bool) {
		if !d.l.isCut() {
			d.w.Witness.probed(address, ok)
		}
	}
	if err != nil {
		report(false)
		return nil, err
	}
	return &probeConn{Conn: conn, report: report}, nil
}

// probeConn is a connection on which the agent reads the answer to one probe.
type probeConn struct {
	net.Conn
	report func(ok bool)
	once   sync.Once
}

// Read returns data of the answer. Status 200 is a success; the first Read reports the result to the Witness.
func (c *probeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > len("HTTP/1.1 200") {
		c.once.Do(func() { c.report(string(p[len("HTTP/1.1 "):len("HTTP/1.1 200")]) == "200") })
	}
	return n, err
}

// Close reports a failure if the agent has read no answer, because the probe has timed out.
func (c *probeConn) Close() error {
	c.once.Do(func() { c.report(false) })
	return c.Conn.Close()
}

// firstPort is the port of a pod's first probe.
const firstPort = 10000

// portProbes gives each httpGet probe of port 80 a port of its own. A simulated pod answers on every port.
func portProbes(s *v1.PodSpec) {
	port := int32(firstPort)
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			for _, p := range []*v1.Probe{list[i].StartupProbe, list[i].LivenessProbe, list[i].ReadinessProbe} {
				port++
				if p != nil && p.HTTPGet != nil && p.HTTPGet.Port.IntVal == 80 {
					p.HTTPGet.Port.IntVal = port
				}
			}
		}
	}
}

// streak counts how often a probe has failed in a row, since its container or the agent started.
type streak struct {
	failures int32
}

type probeKey struct {
	uid  types.UID
	port int32
}

// probed records a probe result that the agent has received. address is the pod's IP address and the port.
func (w *Witness) probed(address string, ok bool) {
	host, service, err := net.SplitHostPort(address)
	port, perr := strconv.ParseInt(service, 10, 32)
	if err != nil || perr != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, uid := range w.users[host] { // during the probe the IP address may have passed from one pod to another
		key := probeKey{uid, int32(port)}
		s := w.streaks[key]
		if s == nil {
			s = &streak{}
			w.streaks[key] = s
		}
		if ok {
			s.failures = 0
			continue
		}
		s.failures++
		w.checkProbe(key, s.failures)
	}
}

// checkProbe records the effect of a number of consecutive failures of a probe, if it has reached the failure threshold: the pod is not
// ready, or the container has to end.
func (w *Witness) checkProbe(key probeKey, failures int32) {
	spec := w.specOf(key.uid)
	if spec == nil {
		return
	}
	for _, c := range allContainers(spec) {
		for _, p := range []*v1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if p == nil || p.HTTPGet == nil || p.HTTPGet.Port.IntVal != key.port || failures < max(1, p.FailureThreshold) {
				continue
			}
			if p == c.ReadinessProbe {
				w.unreadyAt[key.uid] = time.Now()
				continue
			}
			grace := graceOf(spec)
			if p.TerminationGracePeriodSeconds != nil {
				grace = time.Duration(*p.TerminationGracePeriodSeconds) * time.Second
			}
			w.doom(w.newest(key.uid, c.Name), "a probe failed", grace)
		}
	}
}

// doom records that the agent has to end a running container, for example because a probe failed.
func (w *Witness) doom(in *Instance, why string, grace time.Duration) {
	if in == nil || !in.Running {
		return
	}
	if _, is := w.doomed[in.ID]; !is {
		w.doomed[in.ID] = cause{why, time.Now(), grace, false}
		w.unreadyAt[in.UID] = time.Now()
		w.suspects = slices.DeleteFunc(w.suspects, func(s suspect) bool { return s.id == in.ID && s.At.Equal(time.Now()) })
	}
}

// resetProbes forgets the probe results of a container that starts.
func (w *Witness) resetProbes(uid types.UID, container string) {
	spec := w.specOf(uid)
	if spec == nil {
		return
	}
	for _, c := range allContainers(spec) {
		for _, p := range []*v1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if c.Name == container && p != nil && p.HTTPGet != nil {
				delete(w.streaks, probeKey{uid, p.HTTPGet.Port.IntVal})
			}
		}
	}
}

// did records the result of a call to the runtime that changes something. If a postStart hook has failed, its container has to end.
func (w *Witness) did(in, out any, err error) {
	r, ok := in.(*runtimeapi.ExecSyncRequest)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.containers[r.ContainerId]
	if c == nil {
		return
	}
	spec := w.specOf(c.UID)
	if answer, _ := out.(*runtimeapi.ExecSyncResponse); spec == nil || err == nil && answer.GetExitCode() == 0 {
		return
	}
	for _, s := range allContainers(spec) {
		hook := s.Lifecycle != nil && s.Lifecycle.PostStart != nil && s.Lifecycle.PostStart.Exec != nil
		if s.Name == c.Name && hook && slices.Equal(s.Lifecycle.PostStart.Exec.Command, r.Cmd) {
			w.doom(c, "its postStart hook failed", graceOf(spec))
		}
	}
}

// specOf returns the spec of a pod of the API or of a static pod; nil: the Witness does not know the pod.
func (w *Witness) specOf(uid types.UID) *v1.PodSpec {
	if s := w.pods[uid]; s != nil {
		return &s.pod.Spec
	}
	if st := w.statics[uid]; st != nil && st.pod != nil {
		return &st.pod.Spec
	}
	return nil
}

// graceOf returns the terminationGracePeriodSeconds of a pod's spec.
func graceOf(s *v1.PodSpec) time.Duration {
	if s.TerminationGracePeriodSeconds == nil {
		return 30 * time.Second
	}
	return time.Duration(*s.TerminationGracePeriodSeconds) * time.Second
}
