package integration

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (e *eyes) podSeen(old, p *v1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	uid := string(p.UID)
	s := e.pods[uid]
	if s == nil {
		s = &podStory{kind: p.Labels["kind"], failed: map[string]bool{}}
		e.pods[uid] = s
	}
	s.pod = p
	if isDeleted(p) && s.deleted.IsZero() {
		s.deleted = time.Now()
	}
	if crashKinds[s.kind].expect == v1.PodRunning && !isDeleted(p) {
		switch ready := isTrue(p, v1.PodReady); {
		case ready:
			s.ready = true
		case s.ready && isTrue(p, v1.ContainersReady):
			s.ready = false // the node lifecycle controller marked the pod as not ready while no agent ran; the agent will mark it as ready again
			e.taken++
		case s.ready && !s.forced:
			s.ready = false
			e.findingLocked(uid, "pod %s was Ready and is not: %s", p.Name, summary(p))
		}
	}
	if old == nil {
		return
	}
	if ended(old) && p.Status.Phase != old.Status.Phase {
		e.findingLocked(uid, "pod %s left the phase %s for %s", p.Name, old.Status.Phase, p.Status.Phase)
	}
	for _, a := range statuses(old) {
		for _, b := range statuses(p) {
			if a.Name == b.Name && b.RestartCount < a.RestartCount {
				e.findingLocked(uid, "pod %s: the restart count of %s fell from %d to %d", p.Name, a.Name, a.RestartCount, b.RestartCount)
			}
		}
	}
}

func ended(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

func statuses(p *v1.Pod) []v1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// podGone checks that nothing runs any more in a pod that has left the API, and that its preStop hook ran.
func (e *eyes) podGone(p *v1.Pod) {
	uid := string(p.UID)
	e.mu.Lock()
	s := e.pods[uid]
	if s == nil {
		e.mu.Unlock()
		return
	}
	s.gone = true
	if s.deleted.IsZero() {
		s.deleted = time.Now()
	}
	forced, started := s.forced || p.DeletionGracePeriodSeconds == nil, false
	for _, i := range e.containers {
		started = started || i.uid == uid && !i.started.IsZero() && i.name == "main"
	}
	e.mu.Unlock()
	if forced {
		return
	}
	if crashKinds[s.kind].hook && started {
		if _, err := os.Stat(filepath.Join(e.hooks, uid)); err != nil {
			e.finding(uid, "pod %s went without its preStop hook", p.Name)
		}
	}
	list, err := e.runtime.ListContainers(context.Background(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": uid}}})
	if err == nil && len(list.Containers) > 0 {
		e.finding(uid, "pod %s was removed from the API while %d of its containers run", p.Name, len(list.Containers))
	}
}

// check checks the history of one container: its instances, in the order of their starts.
func (e *eyes) check(s *podStory, uid, name string) {
	var all []*instance
	for _, i := range e.containers {
		if i.uid == uid && i.name == name && !i.started.IsZero() {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b *instance) int { return a.started.Compare(b.started) })
	spec := crashKinds[s.kind]
	bad := func(i *instance, format string, args ...any) {
		if !s.failed[i.id] {
			s.failed[i.id] = true
			e.findingLocked(uid, "pod %s: "+format, append([]any{s.pod.Name}, args...)...)
		}
	}
	init := slices.ContainsFunc(s.pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name && c.RestartPolicy == nil })
	for n, i := range all {
		if late := i.started.Sub(s.deleted); !s.deleted.IsZero() && late > time.Minute {
			bad(i, "%s was started %s after the deletion", i, late)
		}
		if killed := i.exit == 137 && !i.finished.IsZero(); killed && !spec.killed && (s.deleted.IsZero() && !s.forced && s.pod.Status.Phase != v1.PodFailed && !e.leaving(uid) || spec.graceful && s.ready && !s.forced) {
			bad(i, "%s was killed and should not be", i)
		}
		if n == 0 {
			continue
		}
		prev := all[n-1]
		if prev.finished.IsZero() {
			e.again(prev)
		}
		switch {
		case prev.finished.IsZero() || i.started.Before(prev.finished):
			bad(i, "two instances run at once: %s and %s", prev, i)
		case i.attempt <= prev.attempt:
			bad(i, "the attempts do not grow: %s and %s", prev, i)
		case init && prev.exit == 0:
			bad(i, "an init container that had succeeded was run again: %s and %s", prev, i)
		case e.lostInRestart(prev):
			e.lostAt[prev.id] = true
		case !slices.Contains(spec.again, name):
			bad(i, "it was restarted and should not be: %s and %s", prev, i)
		case s.pod.Spec.RestartPolicy == v1.RestartPolicyOnFailure && prev.exit == 0:
			bad(i, "it was restarted after it had succeeded: %s and %s", prev, i)
		}
	}
}

// again reads the status of an instance once more. The instance was last seen running, and a newer running instance of the same container
// was seen since, so it should have ended.
func (e *eyes) again(i *instance) {
	resp, err := e.runtime.ContainerStatus(context.Background(), &runtimeapi.ContainerStatusRequest{ContainerId: i.id})
	switch {
	case err == nil && resp.Status.FinishedAt != 0:
		i.finished, i.state, i.exit, i.reason = time.Unix(0, resp.Status.FinishedAt), resp.Status.State, resp.Status.ExitCode, resp.Status.Reason
	case grpcstatus.Code(err) == codes.NotFound: // the instance was removed, so it ended at some unknown time
		i.finished, i.state, i.gone = i.started, runtimeapi.ContainerState_CONTAINER_EXITED, true
	}
}

// leaving reports whether a pod is being deleted or gone. It asks the API server, because the watch may be late.
func (e *eyes) leaving(uid string) bool {
	p, err := e.client().CoreV1().Pods(e.name).Get(context.Background(), e.pods[uid].pod.Name, metav1.GetOptions{})
	return err != nil || string(p.UID) != uid || isDeleted(p)
}

// settled returns an error unless the API and the runtime agree, every pod is in the state that its kind expects, and the runtime has no
// other containers.
func (e *eyes) settled() error {
	list, err := e.runtime.ListContainers(context.Background(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	running := map[string]map[string]*runtimeapi.Container{}
	for _, c := range list.Containers {
		uid := c.Labels["io.kubernetes.pod.uid"]
		if running[uid] == nil {
			running[uid] = map[string]*runtimeapi.Container{}
		}
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running[uid][c.Id] = c
		}
	}
	for _, o := range e.store.List() {
		p := o.(*v1.Pod)
		if isDeleted(p) {
			return errorf("pod %s is on its way out", p.Name)
		}
		if err := asExpected(p, running[string(p.UID)]); err != nil {
			e.unsettled = string(p.UID)
			return fmt.Errorf("pod %s: %w", p.Name, err)
		}
		delete(running, string(p.UID))
	}
	if len(running) > 0 {
		return errorf("the runtime has containers of pods %v that the API has not", slices.Sorted(maps.Keys(running)))
	}
	return nil
}

func asExpected(p *v1.Pod, running map[string]*runtimeapi.Container) error {
	expect := crashKinds[p.Labels["kind"]].expect
	if expect == "" {
		return nil
	}
	if ended(p) && p.Status.Phase != expect {
		return fatal{errorf("it is %s for good, want %s: %s", p.Status.Phase, expect, summary(p))}
	}
	if p.Status.Phase != expect {
		return errorf("it is %s, want %s: %s", p.Status.Phase, expect, summary(p))
	}
	reported := 0
	for _, c := range statuses(p) {
		if c.State.Running == nil {
			continue
		}
		reported++
		_, id, _ := strings.Cut(c.ContainerID, "://")
		r := running[id]
		if r == nil {
			return errorf("the API says that %s %.12s runs, the runtime does not", c.Name, id)
		}
		if int32(r.Metadata.Attempt) != c.RestartCount {
			return errorf("%s is attempt %d and has restart count %d", c.Name, r.Metadata.Attempt, c.RestartCount)
		}
	}
	if reported != len(running) {
		return errorf("%d containers run, %d by the API", len(running), reported)
	}
	if expect == v1.PodRunning && !isTrue(p, v1.PodReady) {
		return errorf("it is not Ready: %s", summary(p))
	}
	return nil
}
