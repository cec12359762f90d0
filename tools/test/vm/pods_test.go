package vm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// pod has the fields of a pod that the tests check.
type pod struct {
	Metadata struct{ Name, UID string }
	Status   struct {
		Phase, Reason, QosClass, PodIP string
		Conditions                     []struct{ Type, Status string }
		ContainerStatuses              []struct {
			Name, ContainerID string
			Ready             bool
			RestartCount      int
			State, LastState  containerState
		}
	}
}

type containerState struct {
	Running    *struct{ StartedAt string }
	Terminated *struct {
		ExitCode int
		Reason   string
	}
}

func (p *pod) ready() bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c struct{ Type, Status string }) bool { return c.Type == "Ready" && c.Status == "True" })
}

func (p *pod) String() string {
	s := p.Metadata.Name + " " + p.Status.Phase
	for _, c := range p.Status.ContainerStatuses {
		s += fmt.Sprintf(" %s(ready %t, restarts %d)", c.Name, c.Ready, c.RestartCount)
	}
	return s
}

// number returns the number at the beginning of text, the content of a file or a field.
func (n *node) number(text string) int {
	n.Helper()
	var v int
	if _, err := fmt.Sscan(text, &v); err != nil {
		n.Errorf("%q is not a number", text)
	}
	return v
}

// pods returns the pods of the default namespace, by name.
func (n *node) pods() map[string]*pod {
	n.Helper()
	var list struct{ Items []*pod }
	if err := json.Unmarshal([]byte(n.kubectl("get", "pods", "-o", "json")), &list); err != nil {
		n.Fatal(err)
	}
	pods := map[string]*pod{}
	for _, p := range list.Items {
		pods[p.Metadata.Name] = p
	}
	return pods
}

// create creates a pod with a busybox container on the node. container and spec are additional fields of the container and of the pod's
// spec: container in YAML's flow style, spec in lines.
func (n *node) create(name, container, spec string) {
	n.Helper()
	n.createIn("default", name, container, spec)
}

func (n *node) createIn(namespace, name, container, spec string) {
	n.Helper()
	if !strings.Contains(spec, "terminationGracePeriodSeconds") {
		spec = "  terminationGracePeriodSeconds: 2\n" + spec
	}
	if !strings.Contains(spec, "tolerations:") {
		spec = "  tolerations: [{operator: Exists}]\n" + spec // the control plane deletes other pods of a node that has been away for five minutes, as in a slow boot
	}
	manifest := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec:
  nodeName: %s
%s
  automountServiceAccountToken: false
  enableServiceLinks: false
  containers:
  - {name: main, image: "docker.io/library/busybox:1.36", %s}
`, name, namespace, vmnode.NodeName, spec, container)
	if _, err := n.KubectlApply(n.Context(), manifest, "create", "-f", "-"); err != nil {
		n.Fatal(err)
	}
}

// idle is the command of a container that waits and exits on SIGTERM.
const idle = `command: [sh, -c, "trap 'exit 0' TERM; echo up; while :; do sleep 1; done"]`

// podBound is how long a few pods may take to start or to end, under emulation on a busy machine.
const podBound = 10 * time.Minute

// awaitReady waits until the pods are Ready, and returns them.
func (n *node) awaitReady(names ...string) map[string]*pod {
	n.Helper()
	var pods map[string]*pod
	n.await("pods to be Ready: "+strings.Join(names, " "), podBound, func() (bool, string) {
		pods = n.pods()
		var left []string
		for _, name := range names {
			if p := pods[name]; p == nil || !p.ready() {
				left = append(left, fmt.Sprint(p))
			}
		}
		return len(left) == 0, strings.Join(left, "; ")
	})
	return pods
}

// noPods deletes all pods of the default namespace and waits until they are gone.
func (n *node) noPods() {
	n.Helper()
	n.kubectl("delete", "pods", "--all", "--wait=false")
	n.await("pods to go", podBound, func() (bool, string) {
		pods := n.pods()
		return len(pods) == 0, fmt.Sprint(pods)
	})
}

// containers returns a line for each running container and sandbox: its ID, the PID and the start time of its process. A restart of the
// container changes all three.
func (n *node) containers() string {
	n.Helper()
	return n.sh(`ctr -n k8s.io tasks ls | awk '$3 == "RUNNING" {print $1, $2}' | sort | while read -r id pid; do echo $id $pid $(cut -d' ' -f22 /proc/$pid/stat); done`)
}
