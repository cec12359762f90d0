package integration

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// describes waits until the output of kubectl describe contains each text in wanted. It waits because events come later than the status.
func (s *space) describes(kind, name string, wanted ...string) {
	s.Helper()
	s.eventually("describe "+kind, func() error {
		out, errOut, err := s.try("describe", kind, name)
		if err != nil {
			return fmt.Errorf("%w: %s", err, errOut)
		}
		for _, want := range wanted {
			if !regexp.MustCompile(want).MatchString(out) {
				return fmt.Errorf("describe %s lacks %s:\n%s", kind, want, out)
			}
		}
		return nil
	})
}

// In the output of kubectl describe node, no section is empty.
func TestDescribeNode(t *testing.T) {
	s := newSpace(t)
	s.pod("here", `containers: [{name: c, image: $busybox, command: [sleep, "1000"], resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 16Mi}}}]`)
	s.ready("here")
	name := s.env.node.Name
	s.eventually("node-controller's event", func() error { // the node lifecycle controller sends it within its period of 5 s
		out, _, err := s.try("get", "events", "-n", "default", "--field-selector", "reason=RegisteredNode")
		if err == nil && !strings.Contains(out, "node/"+name) {
			err = errors.New(out)
		}
		return err
	})
	s.describes("node", name,
		`(?m)^Name:\s+`+name,
		`(?m)^Labels:\s+beta.kubernetes.io/arch=amd64$`,
		`(?m)^\s+beta.kubernetes.io/os=linux$`, `(?m)^\s+kubernetes.io/arch=amd64$`,
		`(?m)^\s+kubernetes.io/hostname=`+name+`$`, `(?m)^\s+kubernetes.io/os=linux$`,
		`node.alpha.kubernetes.io/ttl: 0`, `volumes.kubernetes.io/controller-managed-attach-detach: true`,
		`(?m)^CreationTimestamp:\s+\S`, `(?m)^Taints:\s+<none>`, `(?m)^Unschedulable:\s+false`,
		`HolderIdentity:\s+`+name, `RenewTime:\s+[A-Z][a-z]{2}, `,
		`MemoryPressure\s+False .* KubeletHasSufficientMemory\s+kubelet has sufficient memory available`,
		`DiskPressure\s+False .* KubeletHasNoDiskPressure\s+kubelet has no disk pressure`,
		`PIDPressure\s+False .* KubeletHasSufficientPID\s+kubelet has sufficient PID available`,
		`Ready\s+True .* KubeletReady\s+kubelet is posting ready status`,
		`InternalIP:\s+\d+\.\d+\.\d+\.\d+`, `Hostname:\s+`+name,
		`(?s)Capacity:\n\s+cpu:\s+\d+\n\s+ephemeral-storage:\s+\d+Ki\n.*memory:\s+\d+Ki\n\s+pods:\s+110\nAllocatable:\n\s+cpu:\s+\d+\n\s+ephemeral-storage:\s+\d+\n.*memory:\s+\d+Ki\n\s+pods:\s+110\nSystem Info:`,
		`Machine ID:\s+[0-9a-f]{32}\n`, `System UUID:\s+\S+\n`, `Boot ID:\s+[0-9a-f-]{36}\n`, `Kernel Version:\s+\d\S+`, `OS Image:\s+\S+`,
		`Operating System:\s+linux`, `Architecture:\s+amd64`, `Container Runtime Version:\s+containerd://\S+`,
		`Kubelet Version:\s+v1\.36\.\d+\+wherry\.\d+\.\d+\.\d+`,
		`PodCIDR:\s+10\.244\.\d+\.0/24`, `PodCIDRs:\s+10\.244\.\d+\.0/24`,
		`Non-terminated Pods:\s+\(\d+ in total\)`, s.name+`\s+here\s+10m \(0%\)\s+0 \(0%\)\s+16Mi \(0%\)\s+16Mi \(0%\)`,
		`Allocated resources:`,
		`Normal\s+Starting\s.*kubelet\s+Starting kubelet\.`,
		`Normal\s+NodeHasSufficientMemory\s.*kubelet\s+Node `+name+` status is now: NodeHasSufficientMemory`,
		`Normal\s+NodeHasNoDiskPressure\s.*kubelet\s`, `Normal\s+NodeHasSufficientPID\s.*kubelet\s`,
		`Normal\s+NodeAllocatableEnforced\s.*kubelet\s+Updated Node Allocatable limit across pods`,
		`Normal\s+RegisteredNode\s.*node-controller`, `Normal\s+NodeReady\s.*kubelet\s+Node `+name+` status is now: NodeReady`,
	)
	wide := s.kubectl("get", "node", name, "-o", "wide")
	s.contains("get node", wide, " Ready ", "containerd://", "v1.36.")
}

// kubectl get and kubectl describe show the important facts about a pod.
func TestDescribePod(t *testing.T) {
	s := newSpace(t)
	s.pod("shown", `containers:
- name: web
  image: $web
  ports: [{containerPort: 8080}]
  resources: {limits: {cpu: 100m, memory: 64Mi}}`)
	p := s.ready("shown")
	wide := s.kubectl("get", "pod", "shown", "-o", "wide")
	s.contains("get pod -o wide", wide, "1/1", "Running", p.Status.PodIP, s.env.node.Name)
	s.describes("pod", "shown",
		`Node:\s+`+s.env.node.Name+`/\d+\.`, `Status:\s+Running`, `IP:\s+10\.`, `Container ID:\s+containerd://[0-9a-f]{64}`,
		`Image ID:\s+\S*sha256:[0-9a-f]{64}`, `State:\s+Running\n\s+Started:\s+\S`, `Ready:\s+True`, `Restart Count:\s+0`,
		`PodReadyToStartContainers\s+True`, `Initialized\s+True`, `\n\s+Ready\s+True`, `ContainersReady\s+True`, `PodScheduled\s+True`,
		`QoS Class:\s+Guaranteed`, `/var/run/secrets/kubernetes.io/serviceaccount from kube-api-access-\w+ \(ro\)`,
		`Normal\s+Scheduled`, `Normal\s+Pulled\s.*kubelet\s.*Container image "`+regexp.QuoteMeta(web)+`" already present on machine`,
		`Normal\s+Created\s.*kubelet\s`, `Normal\s+Started\s.*kubelet\s`,
	)
	if p.Status.QOSClass != "Guaranteed" || p.Status.StartTime == nil || p.Status.HostIP == "" || len(p.Status.PodIPs) != 1 || len(p.Status.HostIPs) != 1 {
		t.Errorf("status lacks something: %+v", p.Status)
	}
	if p.Status.ObservedGeneration != p.Generation {
		t.Errorf("observedGeneration %d, generation %d", p.Status.ObservedGeneration, p.Generation)
	}
	if got := p.Status.ContainerStatuses[0].Image; !strings.HasPrefix(got, "registry.k8s.io/wherry/web") {
		t.Errorf("image in status is %s", got)
	}
}
