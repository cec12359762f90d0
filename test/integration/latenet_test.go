package integration

import (
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Without a pod network a node is not Ready, and the condition says why. Pods with hostNetwork run. When a CNI configuration appears, the
// node becomes Ready without a restart of the agent, and the pods that wait start.
func TestNetworkArrivesLater(t *testing.T) {
	s := newSpace(t)
	dir := filepath.Join(s.env.dir, "rt2")
	subnet := s.env.subnet(dir)
	s.env.addRuntime(dir)
	if err := s.env.runtimeUp(dir, subnet, "--no-network"); err != nil {
		t.Fatal(err)
	}
	n, err := s.env.startNode(nodeConfig{Name: "late", Runtime: dir, Config: "registerWithTaints: [{key: late, effect: NoSchedule}]\n"})
	if err != nil {
		t.Fatal(err)
	}
	var ready v1.NodeCondition
	s.eventually("the node to say why it is not Ready", func() error {
		if err := n.process.alive(); err != nil {
			return fatal{err}
		}
		ready, err = n.ready()
		if err == nil && (ready.Status != v1.ConditionFalse || !strings.Contains(ready.Message, "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady")) {
			err = errorf("Ready is %+v", ready)
		}
		return err
	})
	s.same("reason", ready.Reason, "KubeletNotReady")

	here := func(p *v1.Pod) { p.Spec.NodeName = n.Name }
	s.pod("waits", "tolerations: [{operator: Exists}]\n"+`containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`, here)
	s.pod("host", "tolerations: [{operator: Exists}]\n"+`hostNetwork: true
containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`, here)
	s.ready("host")
	s.contains("NetworkNotReady", s.event("waits", "NetworkNotReady").Message, "network is not ready: container runtime network not ready")
	if w := s.get("waits"); isTrue(w, v1.PodReady) || w.Status.Phase != v1.PodPending {
		t.Errorf("a pod runs without a network: %s", summary(w))
	}

	if out, err := command(s.env.tool("wherry-dev"), "runtime", "network", "--dir", dir, "--pod-subnet", subnet, "--flavor", s.env.flavor).CombinedOutput(); err != nil {
		t.Fatalf("write the CNI configuration: %v\n%s", err, out)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	p := s.ready("waits")
	if !strings.HasPrefix(p.Status.PodIP, strings.TrimSuffix(subnet, "0/24")) {
		t.Errorf("pod IP %s is not of %s", p.Status.PodIP, subnet)
	}
	s.eventually("the node's events", func() error {
		out, _, err := s.try("get", "events", "-n", "default", "--field-selector", "involvedObject.name="+n.Name)
		if err == nil && !strings.Contains(out, "NodeReady") {
			err = errorf("%s", out)
		}
		return err
	})
}
