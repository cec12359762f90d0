package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A pod has the right host name, hosts file and resolver configuration.
func TestNames(t *testing.T) {
	s := newSpace(t)
	s.pod("named", `
hostname: anna
subdomain: sub
hostAliases: [{ip: 10.1.2.3, hostnames: [alpha, beta]}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`)
	s.pod("resolver", `
dnsPolicy: None
dnsConfig: {nameservers: [10.9.9.9], searches: [a.example, b.example], options: [{name: ndots, value: "2"}, {name: edns0}]}
containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`)
	s.pod("host-dns", `
dnsPolicy: Default
containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`)
	s.pod("a.pod.with-dots", `
setHostnameAsFQDN: true
subdomain: sub
hostname: fq
containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`)
	p := s.ready("named")
	s.same("hostname", s.sh("named", "hostname"), "anna\n")
	s.contains("/etc/hosts", s.sh("named", "cat /etc/hosts"), "# Kubernetes-managed hosts file", "127.0.0.1\tlocalhost",
		p.Status.PodIP+"\tanna.sub."+s.name+".svc.cluster.local\tanna\n", "10.1.2.3\talpha\tbeta\n")
	s.same("ClusterFirst", s.sh("named", "cat /etc/resolv.conf"),
		"search "+s.name+".svc.cluster.local svc.cluster.local cluster.local"+hostSearches(s)+"\nnameserver 10.96.0.10\noptions ndots:5\n")
	s.ready("resolver")
	s.same("None", s.sh("resolver", "cat /etc/resolv.conf"), "search a.example b.example\nnameserver 10.9.9.9\noptions ndots:2 edns0\n")
	s.ready("host-dns")
	for _, line := range strings.Split(readFile(s, "/etc/resolv.conf"), "\n") {
		if strings.HasPrefix(line, "nameserver") {
			s.contains("Default", s.sh("host-dns", "cat /etc/resolv.conf"), line)
		}
	}
	s.ready("a.pod.with-dots")
	s.same("FQDN as hostname", s.sh("a.pod.with-dots", "hostname"), "fq.sub."+s.name+".svc.cluster.local\n")
}

func hostSearches(s *space) string {
	for _, line := range strings.Split(readFile(s, "/etc/resolv.conf"), "\n") {
		if rest, ok := strings.CutPrefix(line, "search "); ok {
			return " " + strings.TrimSpace(rest)
		}
	}
	return ""
}

// A pod can use the namespaces of the host, and its containers can share a process namespace.
func TestHostNamespaces(t *testing.T) {
	s := newSpace(t)
	s.pod("host", `
hostNetwork: true
hostPID: true
hostIPC: true
containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`)
	s.pod("shared", `
shareProcessNamespace: true
containers:
- {name: main, image: $busybox, command: [sleep, "1001"]}
- {name: other, image: $busybox, command: [sleep, "1002"]}`)
	p := s.ready("host")
	if p.Status.PodIP != p.Status.HostIP || p.Status.HostIP == "" {
		t.Errorf("pod IP %q, host IP %q", p.Status.PodIP, p.Status.HostIP)
	}
	for _, kind := range []string{"net", "pid", "ipc"} {
		ours, err := os.Readlink("/proc/self/ns/" + kind) // the test and the runtime run in the same namespaces
		if err != nil {
			t.Fatal(err)
		}
		s.same(kind+" namespace", s.sh("host", "readlink /proc/self/ns/"+kind), ours+"\n")
	}
	s.ready("shared")
	s.eventually("main to see all processes", func() error { // shortly after the start of a container, its first process may still be the runtime's own
		return lacks(s.sh("shared", "ps -o args"), "sleep 1001", "sleep 1002", "/pause")
	})
}

// A hostPort leads to the pod for as long as the pod exists.
func TestHostPort(t *testing.T) {
	s := newSpace(t)
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	s.pod("open", fmt.Sprintf(`containers: [{name: main, image: $web, ports: [{containerPort: 8080, hostPort: %d}]}]`, port))
	p := s.ready("open")
	s.contains("answer", s.fetch(fmt.Sprintf("http://%s:%d/", p.Status.HostIP, port)), "host: open")
}
