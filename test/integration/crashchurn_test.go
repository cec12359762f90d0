package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// crashKind is a kind of pod in TestCrash: its spec, and what may happen to such a pod.
type crashKind struct {
	spec   string
	expect v1.PodPhase // phase that the pod reaches (a Running pod also becomes Ready); "": any
	// again has the names of the containers that exit by themselves and are restarted. No other container may restart.
	again []string
	// killed is true if the agent may end a container before the pod is deleted.
	killed bool
	// graceful is true if the pod's container, once Ready, exits in time after SIGTERM. Then it must not be killed.
	graceful bool
	// hook is true if the pod has a preStop hook, which creates a file.
	hook bool
	// alone is true if the pod does not belong to a Deployment.
	alone bool
}

const steady = `{name: main, image: $busybox, command: [sleep, "100000"]`

var crashKinds = map[string]crashKind{
	"plain": {spec: "containers: [" + steady + "}]", expect: v1.PodRunning},
	"probed": {expect: v1.PodRunning, spec: `
containers:
- {name: main, image: $web, ports: [{containerPort: 8080}],
   readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2, timeoutSeconds: 20},
   livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 2, timeoutSeconds: 20, failureThreshold: 60}}
- {name: shell, image: $busybox, command: [sleep, "100000"],
   startupProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 30},
   readinessProbe: {exec: {command: ["true"]}, periodSeconds: 3, timeoutSeconds: 20}}`},
	"init": {expect: v1.PodRunning, spec: `
initContainers:
- {name: first, image: $busybox, command: [sh, -c, sleep 0.5]}
- {name: second, image: $busybox, command: ["true"]}
containers: [` + steady + `}]`},
	"retry": {expect: v1.PodRunning, again: []string{"first"}, spec: `
volumes: [{name: v, emptyDir: {}}]
initContainers: [{name: first, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'test -e /v/x || { touch /v/x; exit 1; }']}]
containers: [` + steady + `}]`},
	"sidecar": {expect: v1.PodRunning, spec: `
initContainers:
- {name: side, image: $busybox, restartPolicy: Always, command: [sh, -c, 'trap "exit 0" TERM; sleep 100000 & wait'],
   startupProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 30}}
- {name: after, image: $busybox, command: ["true"]}
containers: [` + steady + `}]`},
	"hooks": {expect: v1.PodRunning, hook: true, spec: `
terminationGracePeriodSeconds: 60
volumes: [{name: h, hostPath: {path: $hooks, type: Directory}}]
containers:
- {name: main, image: $busybox, command: [sh, -c, 'trap "exit 0" TERM; sleep 100000 & wait'], volumeMounts: [{name: h, mountPath: /h}],
   env: [{name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}],
   lifecycle: {postStart: {exec: {command: [sh, -c, sleep 0.2]}}, preStop: {exec: {command: [sh, -c, 'echo >> /h/$POD_UID; sleep 0.5']}}}}`},
	"drain": {expect: v1.PodRunning, graceful: true, spec: `
terminationGracePeriodSeconds: 60
containers:
- {name: main, image: $busybox, command: [sh, -c, 'trap "sleep 2; exit 0" TERM; touch /tmp/up; sleep 100000 & while :; do wait; done'],
   readinessProbe: {exec: {command: [test, -e, /tmp/up]}, periodSeconds: 1, timeoutSeconds: 20}}`},
	"three": {expect: v1.PodRunning, spec: `
volumes: [{name: c, configMap: {name: settings}}, {name: m, emptyDir: {medium: Memory}}]
containers: [` + steady + `, volumeMounts: [{name: c, mountPath: /c}]}, {name: two, image: $busybox, command: [sleep, "100000"], volumeMounts: [{name: m, mountPath: /m}]},
 {name: three, image: $busybox, command: [sleep, "100000"], envFrom: [{configMapRef: {name: settings}}]}]`},
	"job": {expect: v1.PodSucceeded, alone: true, spec: `
restartPolicy: Never
containers: [{name: main, image: $busybox, command: [sleep, "1"]}, {name: other, image: $busybox, command: ["true"]}]`},
	"second": {expect: v1.PodSucceeded, again: []string{"main"}, alone: true, spec: `
restartPolicy: OnFailure
volumes: [{name: v, emptyDir: {}}]
containers: [{name: main, image: $busybox, volumeMounts: [{name: v, mountPath: /v}], command: [sh, -c, 'test -e /v/x || { touch /v/x; exit 1; }']}]`},
	"crasher": {again: []string{"main"}, spec: `containers: [{name: main, image: $busybox, command: [sh, -c, sleep 1; exit 3]}, {name: calm, image: $busybox, command: [sleep, "100000"]}]`},
	"sick": {again: []string{"main"}, killed: true, spec: `
containers: [` + steady + `, livenessProbe: {exec: {command: ["false"]}, periodSeconds: 2, timeoutSeconds: 20, failureThreshold: 2}}]`},
	"deadline": {expect: v1.PodFailed, killed: true, alone: true, spec: `
activeDeadlineSeconds: 6
containers: [` + steady + `}]`},
}

// podSpec returns the spec of a pod of this kind (a key of crashKinds).
func (c *crash) podSpec(kind string) v1.PodSpec {
	var spec v1.PodSpec
	text := strings.NewReplacer("$busybox", busybox, "$web", web, "$hooks", c.hooks).Replace(crashKinds[kind].spec)
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		panic(fmt.Sprintf("%s: %v", kind, err))
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	return spec
}

// churn creates and deletes pods at random times.
type churn struct {
	*crash
	rng         *rand.Rand
	next        int
	kinds       []string
	deployments []string
	wg          sync.WaitGroup
	stop        context.CancelFunc
}

func newChurn(c *crash, rng *rand.Rand) *churn {
	ch := &churn{crash: c, rng: rng, stop: func() {}}
	for k := range crashKinds {
		ch.kinds = append(ch.kinds, k)
	}
	slices.Sort(ch.kinds)
	if _, err := c.client().CoreV1().ConfigMaps(c.name).Create(context.Background(),
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"COLOUR": "blue"}}, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	return ch
}

// begin starts to create and delete pods, until pause is called.
func (ch *churn) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	ch.stop = cancel
	ch.wg.Go(func() {
		for {
			alive := ch.eyes.alive()
			pause := time.Duration(200+ch.rng.IntN(600)) * time.Millisecond
			if len(alive) < *crashPods*3/4 {
				pause /= 3
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			ch.step(alive)
		}
	})
}

// pause stops the creation and deletion of pods, and returns when the last request has ended.
func (ch *churn) pause() {
	ch.stop()
	ch.wg.Wait()
}

func (ch *churn) step(alive []*v1.Pod) {
	if len(alive) < *crashPods {
		if ch.rng.IntN(8) == 0 && ch.next >= len(ch.kinds) {
			ch.deploy()
		} else {
			ch.create()
		}
	}
	if len(alive) < *crashPods*3/4 || ch.rng.IntN(3) == 0 {
		return
	}
	if ch.rng.IntN(6) == 0 && len(ch.deployments) > 0 {
		ch.changeDeployment()
		return
	}
	p := alive[ch.rng.IntN(len(alive))]
	var o metav1.DeleteOptions
	if g := []int64{-1, -1, -1, 0, 1, 3}[ch.rng.IntN(6)]; g >= 0 && (g == 0 || !crashKinds[p.Labels["kind"]].graceful && !crashKinds[p.Labels["kind"]].hook) {
		o.GracePeriodSeconds = &g
		if g == 0 {
			ch.eyes.forced(p)
		}
	}
	ch.answered(ch.client().CoreV1().Pods(ch.name).Delete(context.Background(), p.Name, o))
}

// answered records a finding if err is an error of the API server that the test does not expect.
func (ch *churn) answered(err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		ch.eyes.finding("", "the API server: %v", err)
	}
}

func (ch *churn) create() {
	kind := ch.kinds[ch.rng.IntN(len(ch.kinds))]
	if ch.next < len(ch.kinds) { // at first, one pod of each kind
		kind = ch.kinds[ch.next]
	}
	ch.next++
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", kind, ch.next), Labels: map[string]string{"kind": kind, "bare": "yes"}}, Spec: ch.podSpec(kind)}
	p.Spec.NodeName = ch.node.Name
	_, err := ch.client().CoreV1().Pods(ch.name).Create(context.Background(), p, metav1.CreateOptions{})
	ch.answered(err)
}

func (ch *churn) deploy() {
	kind := ch.kinds[ch.rng.IntN(len(ch.kinds))]
	if crashKinds[kind].alone || len(ch.deployments) >= max(1, *crashPods/8) {
		return
	}
	ch.next++
	name := fmt.Sprintf("dep-%s-%d", kind, ch.next)
	labels := map[string]string{"kind": kind, "app": name}
	spec := ch.podSpec(kind)
	spec.NodeSelector = map[string]string{v1.LabelHostname: ch.node.Name}
	_, err := ch.client().AppsV1().Deployments(ch.name).Create(context.Background(), &apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apps.DeploymentSpec{Replicas: new(int32(1 + ch.rng.IntN(3))), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
	}, metav1.CreateOptions{})
	ch.answered(err)
	ch.deployments = append(ch.deployments, name)
}

// changeDeployment scales a random Deployment, changes its pod template, or deletes it.
func (ch *churn) changeDeployment() {
	i := ch.rng.IntN(len(ch.deployments))
	name, api, ctx := ch.deployments[i], ch.client().AppsV1().Deployments(ch.name), context.Background()
	switch ch.rng.IntN(3) {
	case 0:
		background := metav1.DeletePropagationBackground
		ch.answered(api.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}))
		ch.deployments = slices.Delete(ch.deployments, i, i+1)
		return
	case 1, 2:
		d, err := api.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			ch.answered(err)
			return
		}
		if ch.rng.IntN(2) == 0 {
			d.Spec.Replicas = new(int32(ch.rng.IntN(4)))
		} else {
			d.Spec.Template.Annotations = map[string]string{"rolled": fmt.Sprint(ch.rng.IntN(1000))}
		}
		_, err = api.Update(ctx, d, metav1.UpdateOptions{})
		ch.answered(err)
	}
}
