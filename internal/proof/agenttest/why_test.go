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

// explained is the part of the answer of /explain that tests read.
type explained struct {
	Name   string
	Answer why.Answer
}

// whyCase makes one situation happen to pod "web" and says which cause the agent must give.
type whyCase struct {
	name string
	// annotations, spec and container are YAML that is added to the pod's annotations, to its spec and to its container.
	annotations, spec, container string
	faults                       []simcri.Fault
	// wait is the time between the pod's creation and the question to the agent. If end is set, the test first stops the pod, and
	// asks the agent three seconds later.
	wait  time.Duration
	end   bool
	cause why.Cause
	says  string // text that the answer must contain
}

func refuses(method, message string) []simcri.Fault {
	return []simcri.Fault{{Method: method, Pod: "web", Effect: simcri.Refuse, Err: status.Error(codes.Unknown, message)}}
}

func slow(method string) []simcri.Fault {
	return []simcri.Fault{{Method: method, Pod: "web", Effect: simcri.Slow, Delay: 90 * time.Second}}
}

// pullRefused makes pulls fail; the runtime does not know for which pod it pulls.
func pullRefused(message string) []simcri.Fault {
	return []simcri.Fault{{Method: "PullImage", Effect: simcri.Refuse, Err: status.Error(codes.Unknown, message)}}
}

var whyCases = []whyCase{
	{name: "it runs", wait: 10 * time.Second, cause: why.Running},
	{name: "it has completed", annotations: `wherry.dev/sim-exit-code: "0", wherry.dev/sim-run-for: 1s`, spec: "restartPolicy: Never", wait: 10 * time.Second, cause: why.Completed},
	{name: "it has failed", annotations: `wherry.dev/sim-exit-code: "3", wherry.dev/sim-message: no input`, spec: "restartPolicy: Never", wait: 10 * time.Second, cause: why.Failed, says: "no input"},
	{name: "it crashes again and again", annotations: `wherry.dev/sim-exit-code: "3", wherry.dev/sim-message: no input`, wait: 60 * time.Second, cause: why.CrashLoop, says: "no input"},
	{name: "it has too little memory", annotations: `wherry.dev/sim-exit-code: "137", wherry.dev/sim-exit-reason: OOMKilled`, wait: 60 * time.Second, cause: why.OutOfMemory, says: "limits.memory"},
	{name: "its image is pulled", faults: []simcri.Fault{{Method: "PullImage", Effect: simcri.Slow, Delay: 90 * time.Second}}, wait: 20 * time.Second, cause: why.Pulling, says: "registry.example/app:1"},
	{name: "its image does not exist", faults: pullRefused("failed to resolve: registry.example/app:1: not found"), wait: 20 * time.Second, cause: why.ImageNotFound, says: "registry.example/app:1"},
	{name: "its registry wants a login", faults: pullRefused("401 Unauthorized"), wait: 20 * time.Second, cause: why.ImageDenied, says: "imagePullSecret"},
	{name: "its registry is away", faults: pullRefused("dial tcp: lookup registry.example: no such host"), wait: 20 * time.Second, cause: why.RegistryAway},
	{name: "its pull breaks", faults: pullRefused("unpack: unexpected tar header"), wait: 20 * time.Second, cause: why.PullFails, says: "tar header"},
	{name: "its image may not be pulled", container: "imagePullPolicy: Never", wait: 20 * time.Second, cause: why.ImageNeverPulled},
	{name: "its ConfigMap is missing", container: "envFrom: [{configMapRef: {name: nowhere}}]", wait: 20 * time.Second, cause: why.ConfigInvalid, says: "nowhere"},
	{name: "its volume's ConfigMap is missing", spec: "volumes: [{name: v, configMap: {name: nowhere}}]", container: "volumeMounts: [{name: v, mountPath: /v}]", wait: 20 * time.Second, cause: why.ConfigMapMissing, says: "nowhere"},
	{name: "its volume is of a kind that the agent does not have", spec: "volumes: [{name: v, nfs: {server: s, path: /}}]", container: "volumeMounts: [{name: v, mountPath: /v}]", wait: 20 * time.Second, cause: why.VolumeUnsupported, says: "nfs"},
	{name: "its sandbox takes long", faults: slow("RunPodSandbox"), wait: 20 * time.Second, cause: why.SandboxStarts},
	{name: "its sandbox fails", faults: refuses("RunPodSandbox", "no IP addresses left"), wait: 20 * time.Second, cause: why.SandboxFails, says: "no IP addresses left"},
	{name: "its container cannot be created", faults: refuses("CreateContainer", "snapshot is broken"), wait: 20 * time.Second, cause: why.CreateFails, says: "snapshot is broken"},
	{name: "its container cannot be started", annotations: "wherry.dev/sim-start-error: cgroup is gone", wait: 20 * time.Second, cause: why.StartFails, says: "cgroup is gone"},
	{name: "its command does not exist", annotations: "wherry.dev/sim-start-error: 'exec nope: executable file not found in $PATH'", wait: 20 * time.Second, cause: why.CommandNotFound, says: "nope"},
	{name: "its start takes long", faults: slow("StartContainer"), wait: 20 * time.Second, cause: why.ContainerStarts},
	{name: "its postStart hook runs", container: "lifecycle: {postStart: {exec: {command: [sleep, '90']}}}", faults: slow("ExecSync"), wait: 20 * time.Second, cause: why.PostStartRuns},
	{name: "its postStart hook fails", container: "lifecycle: {postStart: {exec: {command: [exit, '3']}}}", wait: 60 * time.Second, cause: why.PostStartFails},
	{name: "its init container runs", spec: "initContainers: [{name: first, image: registry.example/app:1}]", wait: 20 * time.Second, cause: why.InitRuns, says: "first"},
	{name: "its init container failed", spec: "restartPolicy: Never\n  initContainers: [{name: first, image: registry.example/app:1, command: [exit, '2']}]", wait: 20 * time.Second, cause: why.Failed, says: "first"},
	{name: "its startup probe has not succeeded", annotations: "wherry.dev/sim-ready-after: 5m", container: "startupProbe: {exec: {command: ['true']}, periodSeconds: 5, failureThreshold: 100}", wait: 30 * time.Second, cause: why.StartupPending, says: "of 100 failures"},
	{name: "its readiness probe fails", annotations: "wherry.dev/sim-ready-after: 5m", container: "readinessProbe: {exec: {command: ['true']}, periodSeconds: 5}", wait: 30 * time.Second, cause: why.ReadinessFails, says: "readiness probe, "},
	{name: "its liveness probe failed", annotations: "wherry.dev/sim-fail-after: 5s, wherry.dev/sim-stop-after: 20s", container: "livenessProbe: {exec: {command: ['true']}, periodSeconds: 1, failureThreshold: 2}", wait: 12 * time.Second, cause: why.LivenessRestarts},
	{name: "its readiness gate is missing", spec: "readinessGates: [{conditionType: example.com/lb}]", wait: 10 * time.Second, cause: why.GateMissing, says: "example.com/lb"},
	{name: "it takes its grace period", annotations: "wherry.dev/sim-stop-after: never", wait: 10 * time.Second, end: true, cause: why.GraceRuns, says: "30s"},
	{name: "its preStop hook runs", container: "lifecycle: {preStop: {exec: {command: [sleep, '90']}}}", faults: slow("ExecSync"), wait: 10 * time.Second, end: true, cause: why.PreStopRuns},
	{name: "its sandbox does not stop", faults: slow("StopPodSandbox"), wait: 10 * time.Second, end: true, cause: why.SandboxStops},
	{name: "the runtime hangs", faults: []simcri.Fault{{Method: "PodSandboxStatus", Pod: "web", Effect: simcri.Hang}}, wait: 60 * time.Second, cause: why.RuntimeHangs},
	{name: "the runtime cannot say what runs", faults: refuses("PodSandboxStatus", "database is locked"), wait: 20 * time.Second, cause: why.InspectionFailed, says: "database is locked"},
	{name: "it needs more than the node has", container: "resources: {requests: {cpu: '10000'}}", wait: 10 * time.Second, cause: why.DoesNotFit, says: "cpu"},
	{name: "it wants a sysctl that is not allowed", spec: "securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}", wait: 10 * time.Second, cause: why.Refused, says: "SysctlForbidden"},
	{name: "its deadline is over", spec: "activeDeadlineSeconds: 10", wait: 60 * time.Second, cause: why.DeadlineExceeded},
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
	time.Sleep(time.Second) // the agent refuses pushed pods until it has read the pods of an earlier agent
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
	}
	var one explained
	if code := l.ask(http.MethodGet, "/explain/default/web", "", &one); code != http.StatusOK {
		l.Fatalf("explain: %d", code)
	}
	a := &one.Answer
	all := strings.Join(append(append([]string{a.Line, a.Next}, a.Facts...), a.Do...), "\n")
	if a.Cause != c.cause || !strings.Contains(all, c.says) {
		l.Errorf("%s, want %s with %q:\n%s", a.Cause, c.cause, c.says, all)
	}
	var list []explained
	if l.ask(http.MethodGet, "/explain", "", &list); len(list) != 1 || list[0].Name != "web" || list[0].Answer.Cause != c.cause {
		l.Errorf("the list of all pods: %+v", list)
	}
}

func (c *whyCase) manifest() string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Pod\nmetadata: {name: web, annotations: {" + c.annotations + "}}\nspec:\n")
	if c.spec != "" {
		b.WriteString("  " + c.spec + "\n")
	}
	b.WriteString("  containers:\n  - name: main\n    image: registry.example/app:1\n")
	if c.container != "" {
		b.WriteString("    " + c.container + "\n")
	}
	return b.String()
}
