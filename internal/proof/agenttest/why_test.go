package agenttest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wherry-node/wherry/internal/core/why"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// whyCase makes one situation happen to pod "web" of a node without an API server, and says which cause the agent must give.
type whyCase struct {
	name string // describes how the situation is made; docs/explain.md shows it
	// before is YAML that comes before the pod's own, such as another object. image is the image of the container; "": the usual one.
	before, image string
	// annotations, spec and container are lines of YAML for the pod's annotations, its spec and its container.
	annotations, spec, container string
	faults                       []simcri.Fault
	// wait is the time from the creation of the pod until the test asks the agent to explain its state. If end is true, the test stops the
	// pod after that time, and asks after the further time later.
	wait  time.Duration
	end   bool
	later time.Duration
	cause why.Cause
	says  string // text that the answer must contain
	shown string // text in the message of the waiting container, which kubectl describe shows
}

func refuses(method, message string) []simcri.Fault {
	return []simcri.Fault{{Method: method, Pod: "web", Effect: simcri.Refuse, Err: status.Error(codes.Unknown, message)}}
}

func slow(method string) []simcri.Fault {
	return []simcri.Fault{{Method: method, Pod: "web", Effect: simcri.Slow, Delay: 90 * time.Second}}
}

// pullRefused returns a fault that makes every pull fail with this message. It names no pod, because the runtime pulls without a pod.
func pullRefused(message string) []simcri.Fault {
	return []simcri.Fault{{Method: "PullImage", Effect: simcri.Refuse, Err: status.Error(codes.Unknown, message)}}
}

var whyCases = []whyCase{
	{name: "nothing is wrong", wait: 10 * time.Second, cause: why.Running},
	{name: "the container ends with exit code 0, and restartPolicy is Never", annotations: `wherry.dev/sim-exit-code: "0", wherry.dev/sim-run-for: 1s`, spec: "restartPolicy: Never", wait: 10 * time.Second, cause: why.Completed},
	{name: "the container ends with exit code 3, and restartPolicy is Never", annotations: `wherry.dev/sim-exit-code: "3", wherry.dev/sim-message: no input`, spec: "restartPolicy: Never", wait: 10 * time.Second, cause: why.Failed, says: "no input"},
	{name: "the container ends with exit code 3 again and again", annotations: `wherry.dev/sim-exit-code: "3", wherry.dev/sim-message: no input`, wait: 60 * time.Second, cause: why.CrashLoop, says: "no input", shown: "back-off 40s restarting failed container=main"},
	{name: "the runtime says OOMKilled of each end of the container", annotations: `wherry.dev/sim-exit-code: "137", wherry.dev/sim-exit-reason: OOMKilled`, wait: 60 * time.Second, cause: why.OutOfMemory, says: "limits.memory"},
	{name: "a pull takes 90 s", faults: []simcri.Fault{{Method: "PullImage", Effect: simcri.Slow, Delay: 90 * time.Second}}, wait: 20 * time.Second, cause: why.Pulling, says: "registry.example/app:1"},
	{name: "the runtime answers a pull with the words: not found", faults: pullRefused("failed to resolve: registry.example/app:1: not found"), wait: 20 * time.Second, cause: why.ImageNotFound, says: "registry.example/app:1", shown: "registry.example/app:1: not found"},
	{name: "the runtime answers a pull with the words: 401 Unauthorized", faults: pullRefused("401 Unauthorized"), wait: 20 * time.Second, cause: why.ImageDenied, says: "imagePullSecret"},
	{name: "the runtime answers a pull with the words: no such host", faults: pullRefused("dial tcp: lookup registry.example: no such host"), wait: 20 * time.Second, cause: why.RegistryAway},
	{name: "the runtime answers a pull with the words: unexpected tar header", faults: pullRefused("unpack: unexpected tar header"), wait: 20 * time.Second, cause: why.PullFails, says: "tar header"},
	{name: "the image is not on the node, and imagePullPolicy is Never", container: "imagePullPolicy: Never", wait: 20 * time.Second, cause: why.ImageNeverPulled},
	{name: "envFrom names a ConfigMap that does not exist", container: "envFrom: [{configMapRef: {name: nowhere}}]", wait: 20 * time.Second, cause: why.ConfigInvalid, says: "nowhere", shown: "nowhere"},
	{name: "a volume names a ConfigMap that does not exist", spec: "volumes: [{name: v, configMap: {name: nowhere}}]", container: "volumeMounts: [{name: v, mountPath: /v}]", wait: 20 * time.Second, cause: why.ConfigMapMissing, says: "nowhere"},
	{name: "the pod has a volume of Ceph RBD", spec: "volumes: [{name: v, rbd: {monitors: [m], image: i}}]", container: "volumeMounts: [{name: v, mountPath: /v}]", wait: 20 * time.Second, cause: why.VolumeUnsupported, says: "rbd"},
	{name: "RunPodSandbox takes 90 s", faults: slow("RunPodSandbox"), wait: 20 * time.Second, cause: why.SandboxStarts},
	{name: "the runtime refuses RunPodSandbox", faults: refuses("RunPodSandbox", "no IP addresses left"), wait: 20 * time.Second, cause: why.SandboxFails, says: "no IP addresses left"},
	{name: "the runtime refuses CreateContainer", faults: refuses("CreateContainer", "snapshot is broken"), wait: 20 * time.Second, cause: why.CreateFails, says: "snapshot is broken", shown: "snapshot is broken"},
	{name: "the runtime refuses StartContainer", annotations: "wherry.dev/sim-start-error: cgroup is gone", wait: 20 * time.Second, cause: why.StartFails, says: "cgroup is gone"},
	{name: "the runtime answers StartContainer with the words: executable file not found", annotations: "wherry.dev/sim-start-error: 'exec nope: executable file not found in $PATH'", wait: 20 * time.Second, cause: why.CommandNotFound, says: "nope"},
	{name: "StartContainer takes 90 s", faults: slow("StartContainer"), wait: 20 * time.Second, cause: why.ContainerStarts},
	{name: "the postStart hook takes 90 s", container: "lifecycle: {postStart: {exec: {command: [sleep, '90']}}}", faults: slow("ExecSync"), wait: 20 * time.Second, cause: why.PostStartRuns},
	{name: "the postStart hook exits with code 3", container: "lifecycle: {postStart: {exec: {command: [exit, '3']}}}", wait: 60 * time.Second, cause: why.PostStartFails},
	{name: "the init container does not end", spec: "initContainers: [{name: first, image: registry.example/app:1}]", wait: 20 * time.Second, cause: why.InitRuns, says: "first"},
	{name: "an init container exits with code 2, and restartPolicy is Never", spec: "restartPolicy: Never\n  initContainers: [{name: first, image: registry.example/app:1, command: [exit, '2']}]", wait: 20 * time.Second, cause: why.InitFailed, says: "first"},
	{name: "the startup probe fails less often than its failureThreshold", annotations: "wherry.dev/sim-ready-after: 5m", container: "startupProbe: {exec: {command: ['true']}, periodSeconds: 5, failureThreshold: 100}", wait: 30 * time.Second, cause: why.StartupPending, says: "of 100 failures"},
	{name: "the readiness probe fails more often than its failureThreshold", annotations: "wherry.dev/sim-ready-after: 5m", container: "readinessProbe: {exec: {command: ['true']}, periodSeconds: 5}", wait: 30 * time.Second, cause: why.ReadinessFails, says: "readiness probe, "},
	{name: "the liveness probe fails, and the container takes 20 s to end", annotations: "wherry.dev/sim-fail-after: 5s, wherry.dev/sim-stop-after: 20s", container: "livenessProbe: {exec: {command: ['true']}, periodSeconds: 1, failureThreshold: 2}", wait: 12 * time.Second, cause: why.LivenessRestarts},
	{name: "nobody sets the condition of the pod's readiness gate", spec: "readinessGates: [{conditionType: example.com/lb}]", wait: 10 * time.Second, cause: why.GateMissing, says: "example.com/lb"},
	{name: "a stopped container ignores SIGTERM", annotations: "wherry.dev/sim-stop-after: never", wait: 10 * time.Second, end: true, later: 5 * time.Second, cause: why.GraceRuns, says: "8s after signal SIGTERM, and may take its grace period of 30s"},
	{name: "the preStop hook takes 90 s", container: "lifecycle: {preStop: {exec: {command: [sleep, '90']}}}", faults: slow("ExecSync"), wait: 10 * time.Second, end: true, cause: why.PreStopRuns},
	{name: "StopPodSandbox takes 90 s", faults: slow("StopPodSandbox"), wait: 10 * time.Second, end: true, cause: why.SandboxStops},
	{name: "PodSandboxStatus of the pod hangs", faults: []simcri.Fault{{Method: "PodSandboxStatus", Pod: "web", Effect: simcri.Hang}}, wait: 60 * time.Second, cause: why.RuntimeHangs},
	{name: "the runtime refuses PodSandboxStatus of the pod", faults: refuses("PodSandboxStatus", "database is locked"), wait: 20 * time.Second, cause: why.InspectionFailed, says: "database is locked"},
	{name: "the pod requests 10000 CPUs", container: "resources: {requests: {cpu: '10000'}}", wait: 10 * time.Second, cause: why.DoesNotFit, says: "cpu"},
	{name: "the pod sets a sysctl that the node does not allow", spec: "securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}", wait: 10 * time.Second, cause: why.SysctlForbidden, says: "allowedUnsafeSysctls"},
	{name: "the pod wants an AppArmor profile, and the machine has no AppArmor", spec: "securityContext: {appArmorProfile: {type: RuntimeDefault}}", wait: 10 * time.Second, cause: why.AppArmorRefuses, says: "AppArmor is not enabled"},
	{name: "the pod is for Windows, and the node has Linux", spec: "os: {name: windows}", wait: 10 * time.Second, cause: why.OSDiffers, says: "the pod is for windows, and this node has linux"},
	{name: "activeDeadlineSeconds is 10", spec: "activeDeadlineSeconds: 10", wait: 60 * time.Second, cause: why.DeadlineExceeded},
	{name: "a volume names a Secret that does not exist", spec: "volumes: [{name: v, secret: {secretName: nowhere}}]", container: "volumeMounts: [{name: v, mountPath: /v}]", wait: 20 * time.Second, cause: why.SecretMissing, says: "nowhere"},
	{name: "a volume names a key that its ConfigMap does not have", before: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n---\n", spec: "volumes: [{name: v, configMap: {name: settings, items: [{key: other, path: other}]}}]", container: "volumeMounts: [{name: v, mountPath: /v}]", wait: 20 * time.Second, cause: why.KeyMissing, says: "other"},
	{name: "the runtime answers a pull with the words: SignatureValidationFailed", faults: pullRefused("SignatureValidationFailed: no signature of a trusted key"), wait: 20 * time.Second, cause: why.ImageUnverified, says: "trusted key"},
	{name: "the image's name has capital letters", image: "registry.example/APP:1", wait: 20 * time.Second, cause: why.ImageNameInvalid, says: "registry.example/APP:1"},
	{name: "the runtime answers StartContainer with the words: permission denied", annotations: "wherry.dev/sim-start-error: 'exec /app: permission denied'", wait: 20 * time.Second, cause: why.CommandDenied, says: "/app"},
	{name: "the startup probe fails, and the container takes 20 s to end", annotations: "wherry.dev/sim-ready-after: 5m, wherry.dev/sim-stop-after: 20s", container: "startupProbe: {exec: {command: ['true']}, periodSeconds: 1, failureThreshold: 2}", wait: 12 * time.Second, cause: why.StartupRestarts},
	{name: "the readiness probe waits for its initialDelaySeconds", container: "readinessProbe: {exec: {command: ['true']}, initialDelaySeconds: 60}", annotations: "wherry.dev/sim-ready-after: 5m", wait: 20 * time.Second, cause: why.ReadinessPending},
	{name: "the container that wherry stop ends has ended", wait: 10 * time.Second, end: true, cause: why.StoppedByUser, says: "wherry rm"},
	{name: "a stopped container ignores SIGTERM, and StopContainer hangs", annotations: "wherry.dev/sim-stop-after: never", spec: "terminationGracePeriodSeconds: 2", faults: slow("StopContainer"), wait: 10 * time.Second, end: true, later: 30 * time.Second, cause: why.StopOverdue, says: "main"},
}

// The whole agent gives the right cause for each situation, for one pod and in the list of all pods.
func TestWhy(t *testing.T) {
	t.Parallel()
	for _, c := range whyCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			runAlone(t, func(l *lone) { c.check(l) })
		})
	}
}

func (c *whyCase) check(l *lone) {
	time.Sleep(time.Second) // the agent refuses pushed pods until it has read the pods of the agent before it
	for _, f := range c.faults {
		l.runtime.Inject(f)
	}
	if code, text := l.send(http.MethodPost, "/pods", c.manifest()); code/100 != 2 {
		l.Fatalf("push: %d %s", code, text)
	}
	time.Sleep(c.wait)
	if c.end {
		if code, text := l.send(http.MethodPost, "/pods/default/web/stop", ""); code/100 != 2 {
			l.Fatalf("stop: %d %s", code, text)
		}
		time.Sleep(c.later)
	}
	var one explainedPod
	if code := l.ask(http.MethodGet, "/explain/default/web", "", &one); code != http.StatusOK {
		l.Fatalf("explain: %d", code)
	}
	a := &one.Answer
	if a.Cause != c.cause || !strings.Contains(textOf(a), c.says) {
		l.Errorf("%s, want %s with %q:\n%s", a.Cause, c.cause, c.says, textOf(a))
	}
	if c.shown != "" {
		if s := l.pod("web").Status.ContainerStatuses[0].State.Waiting; s == nil || !strings.Contains(s.Message, c.shown) {
			l.Errorf("the container's status says %+v, want a message with %q", s, c.shown)
		}
	}
	var list []explainedPod
	if l.ask(http.MethodGet, "/explain", "", &list); len(list) != 1 || list[0].Name != "web" || list[0].Answer.Cause != c.cause {
		l.Errorf("the list of all pods: %+v", list)
	}
}

// textOf returns all texts of an answer, one per line.
func textOf(a *why.Answer) string {
	return strings.Join(append(append([]string{a.Line, a.Next}, a.Facts...), a.Do...), "\n")
}

func (c *whyCase) manifest() string {
	var b strings.Builder
	image := "registry.example/app:1"
	if c.image != "" {
		image = c.image
	}
	b.WriteString(c.before + "apiVersion: v1\nkind: Pod\nmetadata: {name: web, annotations: {" + c.annotations + "}}\nspec:\n")
	if c.spec != "" {
		b.WriteString("  " + c.spec + "\n")
	}
	b.WriteString("  containers:\n  - name: main\n    image: " + image + "\n")
	if c.container != "" {
		b.WriteString("    " + c.container + "\n")
	}
	return b.String()
}
