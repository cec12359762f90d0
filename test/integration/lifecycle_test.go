package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A container that fails repeatedly restarts with a growing back-off. The pod's status and events show it.
func TestCrashLoop(t *testing.T) {
	s := newSpace(t)
	s.pod("crasher", `containers: [{name: main, image: $busybox, command: [sh, -c, 'echo going down; exit 2']}]`)
	p := s.until("crasher", "backing off after a restart", func(p *v1.Pod) bool {
		c := p.Status.ContainerStatuses
		return len(c) == 1 && c[0].State.Waiting != nil && c[0].State.Waiting.Reason == "CrashLoopBackOff" && c[0].RestartCount >= 1
	})
	c := p.Status.ContainerStatuses[0]
	backOff := 10 * time.Second << (c.RestartCount - 1) // the test may see a later restart on a busy machine
	s.contains("waiting message", c.State.Waiting.Message, fmt.Sprintf("back-off %s restarting failed container=main pod=crasher_%s", backOff, s.name))
	if last := c.LastTerminationState.Terminated; last == nil || last.ExitCode != 2 || last.Reason != "Error" {
		t.Errorf("lastState %+v", c.LastTerminationState)
	}
	if p.Status.Phase != v1.PodRunning {
		t.Errorf("phase %s, want Running: it restarts", p.Status.Phase)
	}
	var again time.Time
	s.until("crasher", "started again", func(p *v1.Pod) bool {
		now := p.Status.ContainerStatuses[0]
		switch next := now.State; {
		case now.RestartCount <= c.RestartCount || now.ContainerID == c.ContainerID:
			return false
		case next.Running != nil:
			again = next.Running.StartedAt.Time
		case next.Terminated != nil:
			again = next.Terminated.StartedAt.Time
		case now.LastTerminationState.Terminated != nil && now.LastTerminationState.Terminated.ContainerID == now.ContainerID:
			again = now.LastTerminationState.Terminated.StartedAt.Time
		}
		return !again.IsZero()
	})
	if end := c.LastTerminationState.Terminated; end != nil && again.Sub(end.FinishedAt.Time) < backOff-time.Second { // times in the API have whole seconds
		t.Errorf("restarted after %s, want %s", again.Sub(end.FinishedAt.Time), backOff)
	}
	ev := s.event("crasher", "BackOff") // checked last, because events may come late
	if ev.Type != v1.EventTypeWarning || !strings.Contains(ev.Message, "Back-off restarting failed container main in pod crasher_") {
		t.Errorf("event %s %s", ev.Type, ev.Message)
	}
}

// Each restartPolicy leads to the restarts and the phase that the documentation describes.
func TestRestartPolicies(t *testing.T) {
	s := newSpace(t)
	s.pod("never-ok", "restartPolicy: Never\n"+`containers: [{name: main, image: $busybox, command: ["true"]}]`)
	s.pod("never-bad", "restartPolicy: Never\n"+`containers: [{name: main, image: $busybox, command: [sh, -c, exit 42]}, {name: good, image: $busybox, command: ["true"]}]`)
	s.pod("onfailure", `
restartPolicy: OnFailure
volumes: [{name: v, emptyDir: {}}]
containers: [{name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'test -e /v/x || { touch /v/x; exit 1; }']}]`)
	p := s.ended("never-ok", v1.PodSucceeded)
	if end := p.Status.ContainerStatuses[0].State.Terminated; end.Reason != "Completed" || end.ExitCode != 0 {
		t.Errorf("never-ok: %+v", end)
	}
	p = s.ended("never-bad", v1.PodFailed)
	if end := statusOf(p, "main").State.Terminated; end == nil || end.ExitCode != 42 {
		t.Errorf("never-bad: %s", summary(p))
	}
	p = s.ended("onfailure", v1.PodSucceeded)
	if n := p.Status.ContainerStatuses[0].RestartCount; n != 1 {
		t.Errorf("onfailure restarted %d times, want 1", n)
	}
}

// Init containers run one after another, before the main containers. A sidecar keeps running beside them and ends last.
func TestInitContainers(t *testing.T) {
	s := newSpace(t)
	s.pod("staged", `
restartPolicy: Never
terminationGracePeriodSeconds: 60
volumes: [{name: v, emptyDir: {}}]
initContainers:
- {name: first, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'echo first >> /v/order']}
- {name: side, image: $busybox, restartPolicy: Always, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'trap "echo side-end; exit 0" TERM; echo side >> /v/order; while :; do sleep 0.1; done'], startupProbe: {exec: {command: [grep, side, /v/order]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 60}}
- {name: second, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'echo second >> /v/order']}
containers:
- {name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'echo main >> /v/order; cat /v/order']}`)
	p := s.ended("staged", v1.PodSucceeded)
	s.logged("staged", "first\nside\nsecond\nmain\n", "-c", "main")
	s.logged("staged", "side-end\n", "-c", "side")
	if !isTrue(p, v1.PodInitialized) || len(p.Status.InitContainerStatuses) != 3 {
		t.Errorf("status %s", summary(p))
	}
	s.pod("stuck", `
restartPolicy: Never
initContainers: [{name: bad, image: $busybox, command: [sh, -c, exit 9]}]
containers: [{name: main, image: $busybox, command: ["true"]}]`)
	p = s.ended("stuck", v1.PodFailed)
	if w := p.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "PodInitializing" {
		t.Errorf("main of a pod whose init container failed: %+v", p.Status.ContainerStatuses[0].State)
	}
	s.contains("get pod", s.kubectl("get", "pod", "stuck"), "Init:Error")
}

// The termination message is in the container's status. If a container fails and its message file is empty, the message comes from its log
// (FallbackToLogsOnError).
func TestTerminationMessage(t *testing.T) {
	s := newSpace(t)
	s.pod("words", `
restartPolicy: Never
containers:
- {name: file, image: $busybox, command: [sh, -c, 'echo -n farewell > /dev/termination-log']}
- {name: path, image: $busybox, terminationMessagePath: /tmp/last, command: [sh, -c, 'echo -n elsewhere > /tmp/last']}
- {name: log, image: $busybox, terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, 'echo it broke; exit 1']}
- {name: none, image: $busybox, terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, 'echo all well']}`)
	p := s.ended("words", v1.PodFailed)
	want := map[string]string{"file": "farewell", "path": "elsewhere", "log": "it broke\n", "none": ""}
	for _, c := range p.Status.ContainerStatuses {
		s.same("message of "+c.Name, c.State.Terminated.Message, want[c.Name])
	}
}

// A container counts as running only after its postStart hook. The preStop hook runs before SIGTERM. If a postStart hook fails, the
// container is killed.
func TestHooks(t *testing.T) {
	s := newSpace(t)
	s.pod("hooked", `
terminationGracePeriodSeconds: 30
volumes: [{name: v, hostPath: {path: `+s.TempDir()+`}}]
containers:
- name: main
  image: $busybox
  volumeMounts: [{name: v, mountPath: /v}]
  command: [sh, -c, 'trap "echo term >> /v/order; exit 0" TERM; touch /v/up; while :; do sleep 0.1; done']
  readinessProbe: {exec: {command: [test, -e, /v/up]}, periodSeconds: 1, timeoutSeconds: 20}
  lifecycle:
    postStart: {exec: {command: [sh, -c, 'echo post > /v/order']}}
    preStop: {exec: {command: [sh, -c, 'echo pre >> /v/order']}}
- name: web
  image: $web
  lifecycle: {preStop: {httpGet: {path: /healthz, port: 8080}}}
- name: sleeper
  image: $busybox
  command: [sh, -c, 'trap "exit 0" TERM; touch /tmp/up; while :; do sleep 0.1; done']
  readinessProbe: {exec: {command: [test, -e, /tmp/up]}, periodSeconds: 1, timeoutSeconds: 20}
  lifecycle: {preStop: {sleep: {seconds: 1}}}`)
	p := s.ready("hooked")
	s.pod("badhook", `
containers:
- name: main
  image: $busybox
  command: [sleep, "1000"]
  lifecycle: {postStart: {exec: {command: [sh, -c, 'echo no luck; exit 4']}}}`)
	s.kubectl("delete", "pod", "hooked", "--timeout=200s")
	s.same("order", readFile(s, p.Spec.Volumes[0].HostPath.Path+"/order"), "post\npre\nterm\n")
	ev := s.event("badhook", "FailedPostStartHook")
	s.contains("FailedPostStartHook", ev.Message, "PostStartHook failed")
	s.event("badhook", "Killing")
}

// A pod gets its whole grace period, and not more. After a deletion with grace period 0 the API does not wait, but the node still ends the
// pod.
func TestGrace(t *testing.T) {
	s := newSpace(t)
	dir := s.TempDir()
	s.pod("polite", `
terminationGracePeriodSeconds: 300
volumes: [{name: v, hostPath: {path: `+dir+`}}]
containers:
- {name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'trap "sleep 1; echo done > /v/polite; exit 0" TERM; touch /v/up; while :; do sleep 0.1; done'],
   readinessProbe: {exec: {command: [test, -e, /v/up]}, periodSeconds: 1, timeoutSeconds: 20}} # the first process of a container is deaf until it listens`)
	s.pod("deaf", `
terminationGracePeriodSeconds: 3
volumes: [{name: v, hostPath: {path: `+dir+`}}]
containers: [{name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'trap "" TERM; while :; do date +%s > /v/deaf; sleep 0.1; done']}]`)
	s.pod("forced", `
terminationGracePeriodSeconds: 5
containers: [{name: main, image: $busybox, command: [sh, -c, 'trap "" TERM; while :; do sleep 0.1; done']}]`)
	for _, name := range []string{"polite", "deaf", "forced"} {
		s.ready(name)
	}
	s.kubectl("delete", "pod", "polite", "--timeout=200s") // less than the grace period, so the command fails if the pod uses the whole period
	s.same("what it did in its grace", readFile(s, dir+"/polite"), "done\n")
	began := time.Now()
	s.kubectl("delete", "pod", "deaf", "--wait=false")
	s.gone("deaf")
	if took := time.Since(began); took < 2900*time.Millisecond {
		t.Errorf("a pod with a grace of 3s was killed after %s", took)
	}
	ev := s.event("deaf", "Killing")
	s.contains("Killing", ev.Message, "Stopping container main")
	s.kubectl("delete", "pod", "forced", "--grace-period=0", "--force", "--timeout=200s")
	s.eventually("the forced pod's containers to go", func() error {
		return nothing(s.env.node.crictl("pods", "--namespace", s.name, "-q"))
	})
}

// The grace period of a pod that is being deleted may become shorter, but never longer.
func TestGraceShortened(t *testing.T) {
	s := newSpace(t)
	s.pod("slow", `
terminationGracePeriodSeconds: 600
containers: [{name: main, image: $busybox, command: [sh, -c, 'trap "" TERM; while :; do sleep 0.1; done']}]`)
	s.ready("slow")
	s.kubectl("delete", "pod", "slow", "--wait=false")
	s.event("slow", "Killing")
	s.kubectl("delete", "pod", "slow", "--grace-period=1", "--timeout=200s")
}

// activeDeadlineSeconds ends a pod that runs too long.
func TestActiveDeadline(t *testing.T) {
	s := newSpace(t)
	s.pod("late", "activeDeadlineSeconds: 3\n"+`containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`)
	p := s.ended("late", v1.PodFailed)
	s.same("reason", p.Status.Reason, "DeadlineExceeded")
	s.contains("message", p.Status.Message, "Pod was active on the node longer than the specified deadline")
}

// If an image cannot be pulled, the status and an event give the reason, and the pull is tried again.
func TestImageProblems(t *testing.T) {
	s := newSpace(t)
	s.pod("absent", `containers: [{name: main, image: "registry.k8s.io/wherry/web:none", imagePullPolicy: Never}]`)
	s.pod("unreachable", `containers: [{name: main, image: "127.0.0.1:1/no/such:1"}]`)
	s.pod("misnamed", `containers: [{name: main, image: "Not An Image"}]`)
	s.pod("nocommand", `containers: [{name: main, image: $busybox, command: [/no/such/program]}]`)
	s.pod("nouser", `containers: [{name: main, image: $busybox, command: [sleep, "1000"], securityContext: {runAsNonRoot: true}}]`)
	waiting := func(name string, reasons ...string) string {
		p := s.until(name, strings.Join(reasons, " or "), func(p *v1.Pod) bool {
			c := p.Status.ContainerStatuses
			if len(c) != 1 || c[0].State.Waiting == nil {
				return false
			}
			for _, r := range reasons {
				if c[0].State.Waiting.Reason == r {
					return true
				}
			}
			return false
		})
		return p.Status.ContainerStatuses[0].State.Waiting.Message
	}
	s.contains("absent", waiting("absent", "ErrImageNeverPull"), `Container image "registry.k8s.io/wherry/web:none" is not present with pull policy of Never`)
	s.event("absent", "ErrImageNeverPull")
	waiting("unreachable", "ErrImagePull", "ImagePullBackOff")
	waiting("unreachable", "ImagePullBackOff")
	s.event("unreachable", "Failed")
	s.event("unreachable", "BackOff")
	waiting("misnamed", "InvalidImageName")
	s.contains("nouser", waiting("nouser", "CreateContainerConfigError"), "container has runAsNonRoot and image will run as root")
	p := s.until("nocommand", "failed to start", func(p *v1.Pod) bool {
		c := p.Status.ContainerStatuses
		return len(c) == 1 && (c[0].LastTerminationState.Terminated != nil || c[0].State.Terminated != nil || c[0].State.Waiting != nil && c[0].State.Waiting.Reason == "RunContainerError")
	})
	c := p.Status.ContainerStatuses[0]
	end := c.LastTerminationState.Terminated
	if end == nil {
		end = c.State.Terminated
	}
	if end != nil && (end.Reason != "StartError" || end.ExitCode != 128) {
		t.Errorf("end of what could not start: %+v", end)
	}
	s.event("nocommand", "Failed")
}

// A user may change the image of a running container. This restarts that container and no other.
func TestImageChange(t *testing.T) {
	s := newSpace(t)
	s.pod("changed", `
containers:
- {name: web, image: $web}
- {name: other, image: $busybox, command: [sleep, "1000"]}`)
	before := s.ready("changed")
	s.kubectl("set", "image", "pod/changed", "web=registry.k8s.io/wherry/web:2")
	after := s.until("changed", "on the new image", func(p *v1.Pod) bool {
		return isTrue(p, v1.PodReady) && statusOf(p, "web").RestartCount == 1 && statusOf(p, "web").State.Running != nil
	})
	s.contains("image in status", statusOf(after, "web").Image, "web:2")
	if statusOf(after, "other").ContainerID != statusOf(before, "other").ContainerID {
		t.Error("the other container was restarted too")
	}
	s.contains("Killing event", s.event("changed", "Killing").Message, "Container web definition changed, will be restarted")
}

func statusOf(p *v1.Pod, container string) v1.ContainerStatus {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == container {
			return c
		}
	}
	return v1.ContainerStatus{}
}

// An ephemeral container joins a running pod (kubectl debug).
func TestEphemeralContainer(t *testing.T) {
	s := newSpace(t)
	s.pod("subject", `containers: [{name: main, image: $web}]`)
	s.ready("subject")
	s.kubectl("debug", "subject", "--image="+busybox, "--container=dbg", "--target=main", "--", "sh", "-c", "ps | grep -c web; sleep 1000")
	s.eventually("the debug container", func() error {
		p, err := s.client().CoreV1().Pods(s.name).Get(context.Background(), "subject", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.EphemeralContainerStatuses {
			if c.Name == "dbg" && c.State.Running != nil {
				return nil
			}
		}
		return errorf("statuses %v", p.Status.EphemeralContainerStatuses)
	})
	s.eventually("its log", func() error {
		out, _, err := s.try("logs", "subject", "-c", "dbg")
		if err != nil || out == "" || out == "0\n" {
			return errorf("log is %q: it does not see the target's processes; %v", out, err)
		}
		return nil
	})
}
