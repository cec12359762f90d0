package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// If a node cannot join, the agent logs what is wrong, where, and what to do. It keeps trying, and joins when the problem is solved.
func TestJoinGoesWrong(t *testing.T) {
	e := use(t)
	good, err := os.ReadFile(filepath.Join(e.dir, "cp", "bootstrap.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	token := regexp.MustCompile(`token: (\S+)`).FindStringSubmatch(string(good))[1]
	replaced := func(old, with string) string { return strings.ReplaceAll(string(good), old, with) }
	closed, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	caLine := regexp.MustCompile(`certificate-authority-data: \S+`).FindString(string(good))
	otherCA := func() string {
		a := ownAuthority(t)
		return caLine[:strings.Index(caLine, " ")+1] + base64PEM(a.issueRoot(t))
	}
	expired := "expird.0123456789abcdef"
	if _, errOut, err := e.runWherry("token", "create", expired, "--ttl", "1s"); err != nil {
		t.Fatalf("%v %s", err, errOut)
	}
	_ = wait(2*time.Second, func() error { return errorf("the token has not ended yet") })
	for name, c := range map[string]struct {
		kubeconfig string
		says       []string
	}{
		"wrong token":   {replaced(token, "abcdef.0000000000000000"), []string{"does not accept the credentials in", "wherry token create", "it is read again"}},
		"expired token": {replaced(token, expired), []string{"does not accept the credentials in", "has expired", "wherry token create"}},
		"unreachable":   {replaced(e.config.Host, fmt.Sprintf("https://127.0.0.1:%d", closed)), []string{fmt.Sprint(closed), "cannot be reached", "check that it runs"}},
		"wrong CA":      {replaced(caLine, otherCA()), []string{"is not signed by the authority in", "certificate-authority-data"}},
		"wrong name":    {replaced("server: ", "tls-server-name: elsewhere.example\n    server: "), []string{"is for another name", "tls-server-name"}},
		"not YAML":      {"clusters: [", nil},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "bootstrap.kubeconfig")
			if err := os.WriteFile(file, []byte(c.kubeconfig), 0o600); err != nil {
				t.Fatal(err)
			}
			n := started(t, e, nodeConfig{Name: "join-" + strings.ToLower(strings.ReplaceAll(name, " ", "-")), Config: apart, Flags: append([]string{"--bootstrap-kubeconfig", file}, simulated...)})
			if name == "not YAML" { // the agent may end, because it has started nothing yet
				dead(t, n.process, "TLS bootstrap", file)
				return
			}
			n.says(t, append(c.says, file)...)
			if err := os.WriteFile(file, good, 0o600); err != nil {
				t.Fatal(err)
			}
			n.mustBeReady(t)
		})
	}
}

// If its certificate request is denied, the agent logs that. It makes a new request when the denied one is deleted.
func TestDeniedRequest(t *testing.T) {
	s := newSpace(t)
	const group = "system:bootstrappers:byhand" // members may create certificate requests, and nothing approves their requests automatically
	s.kubectl("create", "clusterrolebinding", "byhand", "--clusterrole=system:node-bootstrapper", "--group="+group)
	t.Cleanup(func() { s.kubectl("delete", "clusterrolebinding", "byhand") })
	file := filepath.Join(t.TempDir(), "bootstrap.kubeconfig")
	if _, errOut, err := s.env.runWherry("token", "create", "--groups", group, "--bootstrap-kubeconfig", file); err != nil {
		t.Fatalf("%v %s", err, errOut)
	}
	n := started(t, s.env, nodeConfig{Name: "denied", Config: apart, Flags: append([]string{"--bootstrap-kubeconfig", file}, simulated...)})
	waits := regexp.MustCompile(`kubectl certificate approve (node-csr-[0-9a-f]+)`)
	request := func() (name string) {
		s.Helper()
		s.eventually("the node to say what it waits for", func() error {
			all := waits.FindAllStringSubmatch(n.log(), -1)
			if all == nil {
				return errorf("it says %s", n.log())
			}
			name = all[len(all)-1][1]
			return nil
		})
		return name
	}
	csr := request()
	s.kubectl("certificate", "deny", csr)
	n.says(t, "request was refused; delete it to let the node ask again", "Denied", "kubectl delete csr "+csr)
	s.kubectl("delete", "csr", csr)
	s.eventually("the node to ask again", func() error {
		_, err := s.client().CertificatesV1().CertificateSigningRequests().Get(context.Background(), csr, metav1.GetOptions{})
		return err
	})
	s.kubectl("certificate", "approve", csr)
	n.mustBeReady(t)
}

// dead waits until a process has ended with an error, and fails the test unless its log contains all the parts.
func dead(t *testing.T, p *process, parts ...string) {
	t.Helper()
	p.end(t)
	text, _ := os.ReadFile(p.log)
	if p.err == nil || !containsAll(string(text), parts) {
		t.Errorf("it ended with %v and should say %q:\n%s", p.err, parts, text)
	}
}

// With an invalid configuration the agent ends at once. The error has the path of the wrong field.
func TestBadConfiguration(t *testing.T) {
	e := use(t)
	taken, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	port := taken.Addr().(*net.TCPAddr).Port
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	cases := []struct {
		name, config string
		flags        []string
		says         []string
	}{
		{"unknown field", head + "maxPodz: 3\n", simulated, []string{"config.yaml", "unknown field maxPodz", `did you mean "maxPods"`}},
		{"field given twice", head + "maxPods: 3\nmaxPods: 4\n", simulated, []string{"config.yaml", "maxPods"}},
		{"wrong type", head + "maxPods: many\n", simulated, []string{"config.yaml", "maxPods"}},
		{"bad value", head + "maxPods: -3\nauthorization: {mode: Sometimes}\n", simulated, []string{"maxPods", "-3", "authorization.mode", "Sometimes", "use one of AlwaysAllow, Webhook"}},
		{"wrong kind", "apiVersion: v1\nkind: Pod\n", simulated, []string{"config.yaml", "KubeletConfiguration"}},
		{"no file", "", append([]string{"--config=/no/such/file"}, simulated...), []string{"/no/such/file", "no such file"}},
		{"unknown flag", head, append([]string{"--no-such-flag"}, simulated...), []string{"unknown flag: --no-such-flag"}},
		{"busy port", head + fmt.Sprintf("port: %d\nhealthzPort: 0\n", port), simulated, []string{fmt.Sprintf(":%d", port), "address already in use", "choose another port"}},
		{"no bootstrap file", head, append([]string{"--bootstrap-kubeconfig=/no/such/file"}, simulated...), []string{"/no/such/file", "wherry token create"}},
	}
	if !unified() {
		cases = append(cases, struct {
			name, config string
			flags        []string
			says         []string
		}{"cgroup v1", head, nil, []string{"failCgroupV1", "failCgroupV1: false"}})
	}
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(c.config), 0o644); err != nil {
				t.Fatal(err)
			}
			args := append([]string{"kubelet", "--config", filepath.Join(dir, "config.yaml"), "--root-dir", dir, "--cert-dir", dir, "--hostname-override", "bad",
				"--bootstrap-kubeconfig", filepath.Join(e.dir, "cp", "bootstrap.kubeconfig"), "--kubeconfig", filepath.Join(dir, "kubeconfig")}, c.flags...)
			p, err := start(filepath.Join(dir, "log"), e.wherry, args...)
			if err != nil {
				t.Fatal(err)
			}
			defer p.stop()
			dead(t, p, c.says...)
		})
	}
}

// If a pod cannot run, its status and its events say why. The pod runs when the problem is solved.
func TestBadPods(t *testing.T) {
	s := newSpace(t)
	file := filepath.Join(s.env.dir, s.name+"-file")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.pod("named", "securityContext: {runAsNonRoot: true}\n"+`containers: [{name: main, image: "registry.k8s.io/wherry/busybox:named", command: [sleep, "1000"]}]`)
	s.pod("file-on-directory", `
volumes: [{name: v, hostPath: {path: `+file+`, type: File}}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /etc}]}]`)
	s.pod("claim", `
volumes: [{name: v, persistentVolumeClaim: {claimName: none}}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /v}]}]`, onNode(s.env.node))
	s.pod("userns", "hostUsers: false\n"+`containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`)
	s.pod("nfs", `
volumes: [{name: v, nfs: {server: nowhere, path: /}}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /v}]}]`)
	s.pod("waits", `
volumes: [{name: v, configMap: {name: later}}, {name: h, hostPath: {path: `+file+`.d, type: Directory}}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /v}, {name: h, mountPath: /h}]}]`)
	s.pod("handler", "runtimeClassName: none\n"+`containers: [{name: main, image: $busybox, command: [sleep, "1000"]}]`, func(p *v1.Pod) {
		name := s.name + "-none"
		p.Spec.RuntimeClassName = &name
		manifest := "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: " + name + "}\nhandler: nosuch\n"
		s.apply(manifest)
		t.Cleanup(func() { s.kubectl("delete", "runtimeclass", name) })
	})

	s.contains("named", s.event("named", "Failed").Message, "runAsNonRoot", "non-numeric user (alice)")
	s.contains("file-on-directory", s.event("file-on-directory", "Failed").Message, "not a directory")
	s.contains("claim", s.event("claim", "FailedMount").Message, `volume "v"`, `persistentvolumeclaim "none" not found`)
	s.contains("nfs", s.event("nfs", "FailedMount").Message, `volume "v"`, "nfs")
	s.contains("handler", s.event("handler", "FailedCreatePodSandBox").Message, "nosuch")
	s.eventually("userns to run or to be refused with its reason", func() error {
		p := s.get("userns")
		if isTrue(p, v1.PodReady) {
			return nil
		}
		list, err := s.client().CoreV1().Events(s.name).List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.name=userns,type=Warning"})
		if err != nil {
			return err
		}
		for _, ev := range list.Items {
			if strings.Contains(ev.Message, "hostUsers") {
				return nil
			}
		}
		return errorf("it is %s", summary(p))
	})

	s.contains("waits", s.event("waits", "FailedMount").Message, "later", "not found")
	s.kubectl("create", "configmap", "later", "--from-literal=a=b")
	s.eventually("the next thing that is missing", func() error {
		out, errOut, err := s.try("get", "events", "--field-selector", "involvedObject.name=waits,reason=FailedMount", "-o", "jsonpath={.items[*].message}")
		if err != nil || !strings.Contains(out, file+".d is not a directory") {
			return errorf("%v %s%s", err, out, errOut)
		}
		return nil
	})
	if err := os.Mkdir(file+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.ready("waits")
	t.Logf("a pod runs %s after the directory that it waited for was made", time.Since(began).Round(100*time.Millisecond))
	for _, name := range []string{"named", "file-on-directory", "claim", "nfs", "handler"} {
		if p := s.get(name); p.Status.Phase != v1.PodPending && name != "file-on-directory" || isTrue(p, v1.PodReady) {
			t.Errorf("%s is %s", name, summary(p))
		}
	}
}
