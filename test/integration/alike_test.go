package integration

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// alikeRules say of simulated images what is true of real ones: no registry has this image.
const alikeRules = `
apiVersion: wherry.dev/v1alpha1
kind: SimulationRules
images:
- {image: "*/missing:*", error: not found}
`

// alikeTemplate is the simulated node. Its disk is small, and is watched in the same way as that of the real node.
const alikeTemplate = `
apiVersion: wherry.dev/v1alpha1
kind: FleetTemplate
groups:
- name: alike
  count: 1
  storage: 1Gi
  kubelet:
    evictionHard: {nodefs.available: 40%, memory.available: 128Mi}
    evictionPressureTransitionPeriod: 15s
`

// alikeScripts are what users do with their workloads. Each returns what a user sees in the end. $on in a manifest stands for the fields of a
// pod's spec that let it run on the node.
var alikeScripts = []struct {
	name string
	run  func(*alike) string
}{
	{"rollout", (*alike).rollout},
	{"failing job", (*alike).failingJob},
	{"job with a sidecar", (*alike).sidecarJob},
	{"service with a readiness gate", (*alike).gatedService},
	{"stateful set", (*alike).statefulSet},
	{"crash loop", (*alike).crashLoop},
	{"drain", (*alike).drain},
	{"eviction", (*alike).eviction},
	{autoscaled, (*alike).autoscaled},
}

// autoscaled is the name of the script that needs metrics-server.
const autoscaled = "autoscaler"

// The same scripts have the same outcome on a simulated node as on a real one: conditions, phases, reasons, exit codes, restarts, and which
// events there are.
func TestSimulatedNodesAreLikeRealOnes(t *testing.T) {
	e := use(t)
	rt := filepath.Join(e.dir, "rt-alike")
	e.addRuntime(rt)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(e.runtimeUp(rt, e.subnet(rt)))
	smallRoot(t, e, "alike")
	n, err := e.startNode(nodeConfig{Name: "alike", Runtime: rt, Config: evictionConfig})
	must(err)
	dir := t.TempDir()
	files := map[string]string{"rules": alikeRules, "template": alikeTemplate}
	for name, text := range files {
		files[name] = filepath.Join(dir, name+".yaml")
		must(os.WriteFile(files[name], []byte(text), 0o600))
	}
	fleet, err := start(filepath.Join(e.dir, "fleet-alike.log"), e.wherry, "fleet", "--name", "alike", "--template", files["template"], "--rules", files["rules"],
		"--kubeconfig", e.kubeconfig(), "--yes", "--socket", filepath.Join(dir, "fleet.sock"))
	must(err)
	defer fleet.stop()
	must(n.waitReady(patience))
	must(wait(patience, func() error { return e.nodesReady(1) }))
	nodes, err := e.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "wherry.dev/fleet=alike"})
	must(err)

	// The scripts run in pairs, one pair after another, because drain and eviction concern everything on the node.
	for _, script := range alikeScripts {
		outcomes := map[string]string{}
		t.Run(script.name, func(t *testing.T) {
			if script.name == autoscaled {
				measured(t, e, n.Name, nodes.Items[0].Name)
			}
			for _, node := range []string{n.Name, nodes.Items[0].Name} {
				a := &alike{newSpaceOn(t, e), node}
				outcomes[node] = script.run(a)
			}
			if real, simulated := outcomes[n.Name], outcomes[nodes.Items[0].Name]; real != simulated {
				t.Errorf("on the real node:\n%s\non the simulated node:\n%s", real, simulated)
			} else {
				t.Logf("on both:\n%s", real)
			}
		})
	}
}

// alike runs scripts on one node.
type alike struct {
	*space
	on string // the node
}

// make applies a manifest whose pods run on the node.
func (a *alike) make(manifest string) {
	a.Helper()
	a.apply(strings.NewReplacer(
		"$on", "nodeSelector: {kubernetes.io/hostname: "+a.on+"}, tolerations: [{key: short, operator: Exists}, {key: wherry.dev/simulated, operator: Exists}]",
		"$busybox", busybox, "$web", web).Replace(manifest))
}

// outcome returns what a user sees of the pods of an app, sorted by it: their states, and which events they have.
func (a *alike) outcome(app string) string {
	a.Helper()
	pods := a.withApp(app)
	var each []string
	for i := range pods {
		p := &pods[i]
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s", p.Status.Phase, p.Status.Reason)
		for _, c := range p.Status.Conditions {
			fmt.Fprintf(&b, ", %s=%s %s", c.Type, c.Status, c.Reason)
		}
		for _, c := range append(slices.Clone(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...) {
			fmt.Fprintf(&b, "\n  %s ready=%t started=%t restarts=%d: %s, before: %s", c.Name, c.Ready, c.Started != nil && *c.Started, c.RestartCount, stateOf(&c.State), stateOf(&c.LastTerminationState))
		}
		fmt.Fprintf(&b, "\n  events: %s\n", strings.Join(a.reasons(p.Name), ", "))
		each = append(each, b.String())
	}
	slices.Sort(each)
	return strings.Join(each, "")
}

func stateOf(s *v1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("ended %s %d", s.Terminated.Reason, s.Terminated.ExitCode)
	}
	return "-"
}

// reasons returns the reasons of a pod's events. It leaves out Pulling, because the real node has its images from the start, and Unhealthy, because
// on a busy machine a readiness probe also comes between the end of a real server's process and the end of its container.
func (a *alike) reasons(object string) []string {
	a.Helper()
	list, err := a.events(object)
	if err != nil {
		a.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range list {
		if list[i].Reason != "Pulling" && list[i].Reason != "Unhealthy" {
			seen[list[i].Type+" "+list[i].Reason] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// settled waits until the outcome has not changed for two seconds, because events come later than statuses.
func (a *alike) settled(app string) string {
	a.Helper()
	last := a.outcome(app)
	for since := time.Now(); time.Since(since) < 2*time.Second; time.Sleep(200 * time.Millisecond) {
		if now := a.outcome(app); now != last {
			last, since = now, time.Now()
		}
	}
	return last
}

// count waits until the app has this number of pods.
func (a *alike) count(app string, want int) {
	a.Helper()
	a.eventually(fmt.Sprintf("%d pods of %s", want, app), func() error {
		if pods := a.withApp(app); len(pods) != want {
			return errorf("there are %v", podNames(pods))
		}
		return nil
	})
}

const alikeDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  progressDeadlineSeconds: 600
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {$on, terminationGracePeriodSeconds: 5,
      containers: [{name: web, image: $web, ports: [{containerPort: 8080}], readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}]}
`

// rollout updates a Deployment to another image, then to one that does not exist, and back.
func (a *alike) rollout() string {
	a.make(alikeDeployment)
	status := func() { a.kubectl("rollout", "status", "deployment/web", "--timeout=180s") }
	status()
	a.kubectl("set", "image", "deployment/web", "web=registry.k8s.io/wherry/web:2")
	status()
	a.count("web", 2)
	said := "updated:\n" + a.settled("web")
	a.kubectl("set", "image", "deployment/web", "web=registry.k8s.io/wherry/missing:1")
	a.count("web", 3)
	a.eventually("the missing image to be noticed", func() error {
		pods := a.withApp("web")
		for i := range pods {
			c := pods[i].Status.ContainerStatuses
			if len(c) > 0 && c[0].State.Waiting != nil && c[0].State.Waiting.Reason == "ImagePullBackOff" && isTrue(&pods[i], v1.PodReadyToStartContainers) {
				return nil // the sandbox is made beside the pull, and on a busy machine it comes later
			}
		}
		return errorf("no pod with a sandbox waits for its image")
	})
	said += "missing:\n" + a.settled("web")
	a.kubectl("rollout", "undo", "deployment/web")
	status()
	a.count("web", 2)
	return said + "undone:\n" + a.settled("web")
}

// failingJob runs a Job whose pods fail until its limit.
func (a *alike) failingJob() string {
	a.make(`
apiVersion: batch/v1
kind: Job
metadata: {name: fails}
spec:
  backoffLimit: 1
  template:
    metadata: {labels: {app: fails}}
    spec: {$on, restartPolicy: Never, containers: [{name: main, image: $busybox, command: [sh, -c, 'sleep 1; exit 3']}]}
`)
	return a.jobEnds("fails", "Failed")
}

// sidecarJob runs a Job whose pod has a sidecar, which ends when the Job's container has ended.
func (a *alike) sidecarJob() string {
	a.make(`
apiVersion: batch/v1
kind: Job
metadata: {name: works}
spec:
  template:
    metadata: {labels: {app: works}}
    spec: {$on, restartPolicy: Never, terminationGracePeriodSeconds: 2,
      initContainers: [{name: sidecar, image: $web, restartPolicy: Always, startupProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}, {name: first, image: $busybox, command: ["true"]}],
      containers: [{name: main, image: $busybox, command: [sh, -c, 'sleep 2; exit 0']}]}
`)
	return a.jobEnds("works", "Complete")
}

// jobEnds waits until the Job has the condition, and returns its conditions and its pods.
func (a *alike) jobEnds(name, condition string) string {
	a.Helper()
	a.kubectl("wait", "--for=condition="+condition, "job/"+name, "--timeout=180s")
	return a.kubectl("get", "job", name, "-o", `jsonpath={range .status.conditions[*]}{.type} {.reason}{"\n"}{end}{.status.succeeded} {.status.failed}{"\n"}`) + a.settled(name)
}

// gatedService runs a pod with a readiness gate behind a Service. The pod is ready while the gate's condition is true.
func (a *alike) gatedService() string {
	a.make(`
apiVersion: v1
kind: Service
metadata: {name: gated}
spec: {selector: {app: gated}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: gated, labels: {app: gated}}
spec: {$on, readinessGates: [{conditionType: example.com/open}], terminationGracePeriodSeconds: 1, containers: [{name: web, image: $web, readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}]}
`)
	a.until("gated", "ready but for its gate", func(p *v1.Pod) bool { return isTrue(p, v1.ContainersReady) })
	said := ""
	for _, status := range []string{"", "True", "False"} {
		want := 0
		if status == "True" {
			want = 1
		}
		if status != "" {
			patch := fmt.Sprintf(`{"status": {"conditions": [{"type": "example.com/open", "status": %q}]}}`, status)
			if _, err := a.client().CoreV1().Pods(a.name).Patch(context.Background(), "gated", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
				a.Fatal(err)
			}
		}
		a.until("gated", "as its gate says", func(p *v1.Pod) bool { return isTrue(p, v1.PodReady) == (want == 1) })
		a.eventually("the endpoints", func() error { return a.endpoints("gated", want) })
		said += fmt.Sprintf("gate %q, %d ready endpoints:\n%s", status, want, a.settled("gated"))
	}
	return said
}

// statefulSet makes a StatefulSet, whose second pod starts when the first is ready, deletes a pod, and scales the set down.
func (a *alike) statefulSet() string {
	a.make(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {$on, terminationGracePeriodSeconds: 2, containers: [{name: db, image: $web, readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}]}
`)
	status := func() { a.kubectl("rollout", "status", "statefulset/db", "--timeout=180s") }
	status()
	first, second := a.get("db-0"), a.get("db-1")
	for _, c := range first.Status.Conditions {
		if c.Type == v1.PodReady && second.CreationTimestamp.Before(&c.LastTransitionTime) {
			a.Errorf("db-1 was created at %v, before db-0 was ready at %v", second.CreationTimestamp, c.LastTransitionTime)
		}
	}
	a.kubectl("delete", "pod", "db-0")
	a.eventually("another db-0", func() error {
		p, err := a.client().CoreV1().Pods(a.name).Get(context.Background(), "db-0", metav1.GetOptions{})
		if err == nil && (p.UID == first.UID || !isTrue(p, v1.PodReady)) {
			err = errorf("it is %s", summary(p))
		}
		return err
	})
	status()
	a.kubectl("scale", "statefulset/db", "--replicas=1")
	a.gone("db-1")
	return strings.Join(podNames(a.withApp("db")), "")[len(a.name):] + "\n" + a.settled("db")
}

// crashLoop runs a container that ends at once, until it has been restarted twice.
func (a *alike) crashLoop() string {
	a.make(`
apiVersion: v1
kind: Pod
metadata: {name: crashes, labels: {app: crashes}}
spec: {$on, containers: [{name: main, image: $busybox, command: [sh, -c, 'exit 7']}]}
`)
	a.until("crashes", "restarted twice", func(p *v1.Pod) bool {
		c := p.Status.ContainerStatuses
		return len(c) == 1 && c[0].RestartCount == 2 && c[0].State.Waiting != nil
	})
	return a.settled("crashes")
}

// drain drains the node with a disruption budget. The first pod goes. The second has to stay, because the first one's successor finds no node.
func (a *alike) drain() string {
	a.make(alikeDeployment + `---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
`)
	a.kubectl("rollout", "status", "deployment/web", "--timeout=180s")
	a.eventually("the budget to be known", func() error {
		if out := a.kubectl("get", "pdb", "web", "-o", "jsonpath={.status.disruptionsAllowed}"); out != "1" {
			return errorf("it allows %q", out)
		}
		return nil
	})
	defer a.kubectl("uncordon", a.on)
	_, errOut, err := a.try("drain", a.on, "--pod-selector=app=web", "--timeout=15s")
	said := fmt.Sprintf("drained: %t, refused for the budget: %t\n", err == nil, strings.Contains(errOut, "would violate the pod's disruption budget"))
	a.count("web", 2)
	said += a.settled("web")
	a.kubectl("uncordon", a.on)
	a.kubectl("rollout", "status", "deployment/web", "--timeout=180s")
	return said + "uncordoned:\n" + a.settled("web")
}

// eviction runs a pod that fills the node's disk, and one that does not.
func (a *alike) eviction() string {
	a.make(`
apiVersion: v1
kind: Pod
metadata: {name: modest, labels: {app: modest}}
spec: {$on, terminationGracePeriodSeconds: 1, containers: [{name: main, image: $web}]}
`)
	a.ready("modest")
	a.make(`
apiVersion: v1
kind: Pod
metadata: {name: fills, labels: {app: fills}, annotations: {wherry.dev/sim-disk-grows: 100Mi}}
spec: {$on, terminationGracePeriodSeconds: 1, volumes: [{name: v, emptyDir: {}}],
  containers: [{name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'sleep 5; head -c 5500000 /dev/zero > /v/file; sleep 100000']}]}
`)
	p := a.ended("fills", v1.PodFailed)
	message, _, _ := strings.Cut(p.Status.Message, "Threshold quantity")
	said := message + "\n" + a.settled("fills") + a.settled("modest")
	a.eventually("the end of the pressure", func() error {
		obj, err := a.client().CoreV1().Nodes().Get(context.Background(), a.on, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range obj.Status.Conditions {
			if c.Type == v1.NodeDiskPressure && c.Status != v1.ConditionFalse {
				return errorf("DiskPressure is %s: %s", c.Status, c.Message)
			}
		}
		return nil
	})
	return said
}
