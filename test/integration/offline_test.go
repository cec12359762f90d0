package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

const offlineSettings = `apiVersion: wherry.dev/v1alpha1
kind: WherryConfiguration
controlSocket: {enabled: true, path: %s}
offlineStart: {enabled: true}
`

// offlineNode is a node that starts without its API server. Its runtime is its own, because a reboot removes all containers.
type offlineNode struct {
	*space
	n      *node
	relay  *relay
	socket string
}

// TestOfflineStart simulates a power cut, which removes every container, while the API server cannot be reached. The pods run again with
// their ConfigMaps, Secrets and tokens before the API server answers. When it answers, only the pod that was deleted in between ends.
func TestOfflineStart(t *testing.T) {
	s := newSpace(t)
	o := startOffline(s)
	s.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: from-a-configmap}}`)
	s.apply(`{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {k: from-a-secret}}`)
	s.pod("reads", `
containers:
- name: main
  image: $busybox
  command: [sh, -c, 'echo "$A $(cat /key/k) token=$(wc -c < /var/run/secrets/kubernetes.io/serviceaccount/token) service=$KUBERNETES_SERVICE_PORT"; exec sleep 100000']
  env: [{name: A, valueFrom: {configMapKeyRef: {name: settings, key: a}}}]
  volumeMounts: [{name: key, mountPath: /key}]
volumes: [{name: key, secret: {secretName: key}}]`, onNode(o.n))
	s.pod("probed", `containers: [{name: http, image: $web, readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 2, timeoutSeconds: 120}}]`, onNode(o.n))
	s.pod("removed", stayingPlain, onNode(o.n))
	names := []string{"probed", "reads", "removed"}
	for _, name := range names {
		s.ready(name)
	}
	o.awaitRecord(time.Now())

	o.relay.become(refuses)
	o.powerCut()
	began := time.Now()
	if err := o.n.restart(); err != nil {
		t.Fatal(err)
	}
	s.eventually("all pods to run without the API server", func() error { return o.run(names...) })
	t.Logf("without the API server all pods run %s after the start of the agent", time.Since(began).Round(100*time.Millisecond))
	s.eventually("the output of the pod", func() error {
		out, errOut, err := o.wherry("logs", "-n", s.name, "reads")
		if err == nil && (!strings.Contains(out, "from-a-configmap from-a-secret token=") || !strings.Contains(out, "service=443") || strings.Contains(out, "token=0")) {
			err = errorf("it is %q %s", out, errOut)
		}
		return err
	})
	_, note, err := o.wherry("ps")
	if err != nil {
		t.Fatal(err)
	}
	s.contains("wherry ps", note, "The API server has not answered since this agent started: its pods are as last known at "+time.Now().Format("2006-"))
	text, _, err := o.wherry("explain", "-n", s.name, "probed")
	if err != nil {
		t.Fatal(err)
	}
	s.contains("wherry explain", text, "offline", "as last known at")

	s.kubectl("delete", "pod", "removed", "--force", "--grace-period=0", "--wait=false")
	before := o.containers()
	if _, err := o.n.crictl("stop", "-t", "0", before["reads"]); err != nil {
		t.Fatal(err)
	}
	s.eventually("a container that was stopped offline to be started again", func() error {
		if now := o.containers(); now["reads"] == "" || now["reads"] == before["reads"] {
			return errorf("containers: %v", now)
		}
		return nil
	})
	before = o.containers()
	o.relay.become(passes)
	s.eventually("the deleted pod to end", func() error {
		if now := o.containers(); now["removed"] != "" {
			return errorf("it runs in %s", now["removed"])
		}
		return nil
	})
	o.n.mustBeReady(t)
	if p := s.until("reads", "reported with its restarts", func(p *v1.Pod) bool { return isTrue(p, v1.PodReady) && p.Status.ContainerStatuses[0].RestartCount >= 1 }); p.Status.Phase != v1.PodRunning {
		t.Errorf("%s", summary(p))
	}
	s.ready("probed")
	delete(before, "removed")
	s.same("containers after the API server's answer", fmt.Sprint(o.containers()), fmt.Sprint(before))
	if _, note, err := o.wherry("ps"); err != nil || strings.Contains(note, "last known") {
		t.Errorf("wherry ps after the API server's answer: %v %s", err, note)
	}
}

// startOffline starts a node that has its own runtime and connects to the API server through a relay.
func startOffline(s *space) *offlineNode {
	s.Helper()
	e := s.env
	rt := filepath.Join(e.dir, "rt-offline")
	e.addRuntime(rt)
	if err := e.runtimeUp(rt, e.subnet(rt)); err != nil {
		s.Fatal(err)
	}
	o := &offlineNode{space: s, socket: filepath.Join(e.dir, "offline.sock")}
	settings := filepath.Join(e.dir, "offline.wherry.yaml")
	if err := os.WriteFile(settings, fmt.Appendf(nil, offlineSettings, o.socket), 0o600); err != nil {
		s.Fatal(err)
	}
	relay, bootstrap := newRelay(s.T, e, "offline")
	o.relay = relay
	o.n = started(s.T, e, nodeConfig{Name: "offline", Runtime: rt, Flags: []string{"--bootstrap-kubeconfig", bootstrap, "--wherry-config", settings}, Config: apart})
	o.n.mustBeReady(s.T)
	return o
}

// awaitRecord waits until the record that the agent keeps on disk for an offline start is newer than since and has all that the pods need.
func (o *offlineNode) awaitRecord(since time.Time) {
	o.Helper()
	dir := filepath.Join(o.n.dir, "root", "offline")
	o.eventually("the record", func() error {
		info, err := os.Stat(filepath.Join(dir, "head.known"))
		if err != nil {
			return err
		}
		files := list(dir)
		// Files: head.known, the Node, Services of two namespaces, three pods and the token of each, two ConfigMaps, a Secret.
		if info.ModTime().Before(since) || len(files) < 1+1+2+3+3+2+1 {
			return errorf("%d files of %s", len(files), info.ModTime().Format(time.TimeOnly))
		}
		return nil
	})
}

// powerCut kills the agent and removes every container. This is like a reboot of a machine whose runtime loses its containers.
func (o *offlineNode) powerCut() {
	o.Helper()
	o.n.kill()
	out, err := o.n.crictl("pods", "-q")
	if err != nil {
		o.Fatal(err)
	}
	for _, id := range strings.Fields(out) {
		if _, err := o.n.crictl("rmp", "-f", id); err != nil {
			o.Fatal(err)
		}
	}
}

// containers returns the running containers of the pods, by the pod's name.
func (o *offlineNode) containers() map[string]string {
	o.Helper()
	out := map[string]string{}
	for _, name := range []string{"probed", "reads", "removed"} {
		ids, err := o.n.crictl("ps", "-q", "--no-trunc", "--label", "io.kubernetes.pod.name="+name)
		if err != nil {
			o.Fatal(err)
		}
		if f := strings.Fields(ids); len(f) > 0 {
			out[name] = strings.Join(f, " ")
		}
	}
	return out
}

// run returns an error unless all pods have a running container.
func (o *offlineNode) run(names ...string) error {
	if err := o.n.process.alive(); err != nil {
		return fatal{err}
	}
	now := o.containers()
	if slices.ContainsFunc(names, func(n string) bool { return now[n] == "" }) {
		return errorf("running: %v", now)
	}
	return nil
}

// wherry runs a command on the node's control socket.
func (o *offlineNode) wherry(args ...string) (stdout, stderr string, err error) {
	return output(command(o.env.wherry, append(args, "--socket", o.socket)...))
}
