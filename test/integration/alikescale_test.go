package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	autoscaling "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scalingFlags let the control plane look at each HorizontalPodAutoscaler every 3 s, and count pods that have just started. Otherwise it looks
// every 15 s.
func scalingFlags() []string {
	return []string{
		"--controller-manager-arg", "horizontal-pod-autoscaler-sync-period=3s",
		"--controller-manager-arg", "horizontal-pod-autoscaler-cpu-initialization-period=1s",
		"--controller-manager-arg", "horizontal-pod-autoscaler-initial-readiness-delay=1s",
	}
}

// metricsAPI lets the API server answer for metrics.k8s.io through a metrics-server on a port of this machine.
const metricsAPI = `
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec: {service: {name: metrics-server, namespace: kube-system, port: %d}, group: metrics.k8s.io, version: v1beta1, insecureSkipTLSVerify: true, groupPriorityMinimum: 100, versionPriority: 100}
`

// measured starts the real metrics-server, which reads the usage of the pods from the nodes, for the rest of the test. In the end its log must
// have no reading of these nodes that it refused.
func measured(t *testing.T, e *env, nodes ...string) {
	t.Helper()
	program := e.tool("metrics-server")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("needs %s: bin/wherry-dev build metrics-server", program)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	port, err := freePort()
	must(err)
	log := filepath.Join(e.dir, "metrics-server.log")
	p, err := start(log, program, "--secure-port", strconv.Itoa(port), "--cert-dir", filepath.Join(e.dir, "metrics-server"),
		"--kubeconfig", e.kubeconfig(), "--authentication-kubeconfig", e.kubeconfig(), "--authorization-kubeconfig", e.kubeconfig(),
		"--kubelet-insecure-tls", "--kubelet-use-node-status-port", "--kubelet-preferred-address-types", "InternalIP",
		"--metric-resolution", "10s", "--kubelet-request-timeout", "5s", "--node-selector", "kubernetes.io/hostname in ("+strings.Join(nodes, ",")+")", "-v=1")
	must(err)
	t.Cleanup(p.stop)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	must(wait(patience, func() error { // while the API of an APIService does not answer, no namespace of another test goes away
		if err := p.alive(); err != nil {
			return fatal{err}
		}
		resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/livez", port))
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				err = errorf("it answers %s", resp.Status)
			}
		}
		return err
	}))
	manifest := fmt.Sprintf(metricsAPI, port)
	t.Cleanup(func() {
		if _, err := e.runKubectl(e.kubeconfig(), manifest, "delete", "--ignore-not-found", "-f", "-"); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "Skipping ") || strings.Contains(line, "Failed getting complete node metric") {
				t.Errorf("metrics-server refused a measurement: %s", line)
			}
		}
	})
	_, err = e.runKubectl(e.kubeconfig(), manifest, "apply", "-f", "-")
	must(err)
	_, err = e.runKubectl(e.kubeconfig(), "", "wait", "--for=condition=Available", "apiservice/v1beta1.metrics.k8s.io", "--timeout=120s")
	must(err)
}

// A container that would use a whole core uses all of what it requests, because that is also its limit. It is little, so that it gets it on a busy
// machine too.
const alikeScaled = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: work}
spec:
  selector: {matchLabels: {app: work}}
  template:
    metadata: {labels: {app: work}, annotations: {wherry.dev/sim-cpu: "$cores"}}
    spec: {$on, terminationGracePeriodSeconds: 1,
      containers: [{name: main, image: $busybox, command: [sh, -c, '$command'], resources: {requests: {cpu: 50m}, limits: {cpu: 50m}}}]}
`

const alikeScaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: work}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: work}
  minReplicas: 1
  maxReplicas: 3
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 30}}}]
  behavior: {scaleUp: {stabilizationWindowSeconds: 0}, scaleDown: {stabilizationWindowSeconds: 0}}
`

// autoscaled runs a Deployment with a HorizontalPodAutoscaler. Its pods use all of their CPU, so it is scaled up as far as it may be; then it is
// updated to pods that use none, and is scaled down again.
func (a *alike) autoscaled() string {
	app := func(cores, command string) string {
		return strings.NewReplacer("$cores", cores, "$command", command).Replace(alikeScaled)
	}
	a.make(app("1", "while :; do :; done") + "---" + alikeScaler)
	said := "busy:\n" + a.scaled(3, "TooManyReplicas", 40, 110)
	a.make(app("0", "sleep 100000"))
	a.kubectl("rollout", "status", "deployment/work", "--timeout=180s")
	said += "idle:\n" + a.scaled(1, "TooFewReplicas", 0, 10)
	return said + "events of the autoscaler: " + strings.Join(a.normal("work"), ", ") + "\n"
}

// scaled waits until the autoscaler has settled on this number of pods for this reason, with a utilization in percent between two bounds. It
// returns what a user sees of the autoscaler and of the pods.
func (a *alike) scaled(pods int, reason string, least, most int32) string {
	a.Helper()
	var said strings.Builder
	a.eventually(fmt.Sprintf("%d pods", pods), func() error {
		h, err := a.client().AutoscalingV2().HorizontalPodAutoscalers(a.name).Get(context.Background(), "work", metav1.GetOptions{})
		if err != nil {
			return err
		}
		said.Reset()
		fmt.Fprintf(&said, "%d pods, wanted %d", h.Status.CurrentReplicas, h.Status.DesiredReplicas)
		limited := false
		for _, c := range h.Status.Conditions {
			fmt.Fprintf(&said, ", %s=%s %s", c.Type, c.Status, c.Reason)
			limited = limited || c.Type == autoscaling.ScalingLimited && c.Reason == reason
		}
		used := int32(-1)
		for _, m := range h.Status.CurrentMetrics {
			if m.Resource != nil && m.Resource.Current.AverageUtilization != nil {
				used = *m.Resource.Current.AverageUtilization
			}
		}
		if int(h.Status.CurrentReplicas) != pods || int(h.Status.DesiredReplicas) != pods || !limited || used < least || used > most {
			return errorf("it is %s, with %d %% used", said.String(), used)
		}
		fmt.Fprintf(&said, ", %d to %d %% used\n", least, most)
		return nil
	})
	a.count("work", pods)
	a.eventually("the usage of the node", func() error {
		out, errOut, err := a.try("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes/"+a.on)
		if err != nil {
			return errorf("%v: %s", err, errOut)
		}
		_, usage, _ := strings.Cut(out, `"cpu":"`)
		usage, _, _ = strings.Cut(usage, `"`)
		if q, err := resource.ParseQuantity(usage); err != nil || q.MilliValue() < int64(pods-1)*45 {
			return errorf("it is %s", out)
		}
		return nil
	})
	return said.String() + a.settled("work")
}

// normal returns the reasons of the events about an object that are no warnings. A warning, that there are no measurements yet, comes by chance.
func (a *alike) normal(object string) (out []string) {
	a.Helper()
	for _, reason := range a.reasons(object) {
		if r, ok := strings.CutPrefix(reason, "Normal "); ok {
			out = append(out, r)
		}
	}
	return out
}
