package configs

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const sidecarPortsClass = "config of the sandbox of a pod with ports of a sidecar: portMappings: Wherry has those of sidecars, before the others"

// portsOf returns the requests for a sandbox with these ports.
func portsOf(ports ...*runtimeapi.PortMapping) *Requests {
	t := newRequests()
	t.Sandbox = &runtimeapi.PodSandboxConfig{PortMappings: ports}
	return t
}

func port(container, host int32) *runtimeapi.PortMapping {
	return &runtimeapi.PortMapping{ContainerPort: container, HostPort: host}
}

// If a pod has a sidecar with ports, the comparison ignores only these ports, not those of other containers.
func TestPortsOfASidecar(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{
		Name: "side", RestartPolicy: new(v1.ContainerRestartPolicyAlways), Ports: []v1.ContainerPort{{ContainerPort: 53}},
	}}}}
	for name, c := range map[string]struct {
		upstream, wherry *Requests
		want             []string
	}{
		"the sidecar's port":          {portsOf(port(80, 8080)), portsOf(port(53, 5353), port(80, 8080)), []string{sidecarPortsClass}},
		"no other port":               {portsOf(), portsOf(port(53, 5353)), []string{sidecarPortsClass}},
		"none by either":              {portsOf(port(80, 8080)), portsOf(port(80, 8080)), nil},
		"another host port":           {portsOf(port(80, 8080)), portsOf(port(53, 0), port(80, 8081)), []string{`config of the sandbox: portMappings[].hostPort: upstream "8080", Wherry "8081"`, sidecarPortsClass}},
		"a port that ends like it":    {portsOf(port(8080, 0)), portsOf(port(18080, 0)), []string{`config of the sandbox: portMappings in order: upstream "8080", Wherry "18080"`, `config of the sandbox: portMappings[].containerPort: upstream "", Wherry "18080"`, `config of the sandbox: portMappings[].containerPort: upstream "8080", Wherry ""`}},
		"the sidecar's behind others": {portsOf(port(80, 0)), portsOf(port(80, 0), port(53, 0)), []string{`config of the sandbox: portMappings in order: upstream "80", Wherry "80 53"`, `config of the sandbox: portMappings[].containerPort: upstream "", Wherry "53"`}},
	} {
		got := map[string]bool{}
		for _, d := range Compare(p, c.upstream, c.wherry) {
			got[d.Class] = true
		}
		for _, class := range c.want {
			if !got[class] {
				t.Errorf("%s: no class %s", name, class)
			}
			delete(got, class)
		}
		for class := range got {
			t.Errorf("%s: class %s", name, class)
		}
	}
}

// The host IDs of a user namespace may differ between the agents, but each agent has to send one.
func TestHostIDs(t *testing.T) {
	t.Parallel()
	mapped := func(host uint32) *Requests {
		r := newRequests()
		var ids []*runtimeapi.IDMapping
		if host > 0 {
			ids = []*runtimeapi.IDMapping{{HostId: host}}
		}
		r.Sandbox = &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{Uids: ids}}}}}
		return r
	}
	if got := Compare(&v1.Pod{}, mapped(65536), mapped(131072)); len(got) != 0 {
		t.Errorf("two host IDs: %v", got)
	}
	if got := Compare(&v1.Pod{}, mapped(65536), mapped(0)); len(got) != 1 {
		t.Errorf("one host ID: %v", got)
	}
}

// If only upstream's kubelet created the target of a debug container, the missing debug container is not reported as a second difference.
// It is reported if it has no target, or if both agents created the target.
func TestDebugContainerWithoutItsTarget(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		target string
		main   bool // Wherry creates the container main, the target
		want   int
	}{{"main", false, 1}, {"", false, 2}, {"main", true, 1}} {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}, EphemeralContainers: []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}, TargetContainerName: c.target}}}}
		u, w := newRequests(), newRequests()
		u.Containers["main"], u.Containers["debug"] = &runtimeapi.ContainerConfig{}, &runtimeapi.ContainerConfig{}
		if c.main {
			w.Containers["main"] = &runtimeapi.ContainerConfig{}
		}
		w.Failed["debug"] = "unable to find target container main"
		if got := Compare(p, u, w); len(got) != c.want {
			t.Errorf("target %q, main %t: %v, want %d", c.target, c.main, got, c.want)
		}
	}
}
