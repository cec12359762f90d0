package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// simulated are the agent's flags for the simulated runtime, for nodes that need no real containers.
var simulated = []string{"--container-runtime-endpoint=simulated://"}

// apart is a part of a node's configuration. Its taint keeps the pods of other tests away.
const apart = "registerWithTaints: [{key: apart, effect: NoSchedule}]\nrotateCertificates: true\n"

// started starts a node and removes it when the test ends.
func started(t *testing.T, e *env, cfg nodeConfig) *node {
	t.Helper()
	n, err := e.startNode(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.process.stop()
		_ = e.client.CoreV1().Nodes().Delete(context.Background(), cfg.Name, metav1.DeleteOptions{})
		if t.Failed() {
			t.Logf("log of node %s:\n%s", cfg.Name, n.log())
		}
	})
	return n
}

// says waits until one line of the agent's log contains all the parts.
func (n *node) says(t *testing.T, parts ...string) {
	t.Helper()
	err := wait(patience, func() error {
		for _, line := range strings.Split(n.log(), "\n") {
			if containsAll(line, parts) {
				return nil
			}
		}
		if err := n.process.alive(); err != nil {
			return fatal{err}
		}
		return errorf("no such line in\n%s", n.log())
	})
	if err != nil {
		t.Fatalf("node %s should say %q: %v", n.Name, parts, err)
	}
}

func (n *node) mustBeReady(t *testing.T) {
	t.Helper()
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
}

var tokenForm = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}\n$`)

// joinByHand performs the steps with which an agent joins a cluster (token, certificate request, approval, new identity), but only with
// command-line tools.
func joinByHand(t *testing.T, e *env) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must := func(out, errOut string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\n%s%s", err, out, errOut)
		}
		return out
	}
	kubectl := func(kubeconfig string, args ...string) (string, string, error) {
		return output(command(e.kubectl, append([]string{"--kubeconfig", kubeconfig}, args...)...))
	}
	has := func(what, text string, parts ...string) {
		t.Helper()
		if !containsAll(text, parts) {
			t.Errorf("%s should have %q:\n%s", what, parts, text)
		}
	}

	token := must(e.runWherry("token", "create", "--ttl", "10m", "--description", "by hand", "--bootstrap-kubeconfig", in("bootstrap")))
	if !tokenForm.MatchString(token) {
		t.Fatalf("token %q", token)
	}
	token = strings.TrimSpace(token)
	has("token list", must(e.runWherry("token", "list")), "TOKEN", token, "by hand", "authentication,signing", "system:bootstrappers:kubeadm:default-node-token")

	// The function ask does what the agent does: it requests a certificate, waits for the approval, and uses the new identity.
	ask := func(log string, args ...string) *process {
		t.Helper()
		p, err := start(in(log), e.wherry, append([]string{"csr", "--out", dir, "--timeout", "80s"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.stop)
		return p
	}
	waits := regexp.MustCompile(`Waiting for approval: kubectl certificate approve (\S+)`)
	approved := func(p *process, verdict string) string {
		t.Helper()
		var name string
		if err := wait(patience, func() error {
			text, _ := os.ReadFile(p.log)
			if m := waits.FindSubmatch(text); m != nil {
				name = string(m[1])
				return nil
			}
			if err := p.alive(); err != nil {
				return fatal{err}
			}
			return errorf("it says %s", text)
		}); err != nil {
			t.Fatal(err)
		}
		must(kubectl(e.kubeconfig(), "certificate", verdict, name))
		p.end(t)
		text, _ := os.ReadFile(p.log)
		if (p.err == nil) != (verdict == "approve") {
			t.Errorf("after %s wherry csr ends with %v: %s", verdict, p.err, text)
		}
		return string(text)
	}
	text := approved(ask("node.log", "hand", "--kubeconfig", in("bootstrap")), "approve")
	has("wherry csr", text, "The API server knows you as system:node:hand", "system:nodes", in("hand.kubeconfig"))
	has("whoami", must(kubectl(in("hand.kubeconfig"), "auth", "whoami")), "system:node:hand")
	manifest := in("node.yaml")
	if err := os.WriteFile(manifest, []byte("{apiVersion: v1, kind: Node, metadata: {name: hand}}"), 0o644); err != nil {
		t.Fatal(err)
	}
	must(kubectl(in("hand.kubeconfig"), "create", "-f", manifest))
	has("lease renew as the node", must(output(command(e.wherry, "lease", "renew", "hand", "--once", "--ready", "--kubeconfig", in("hand.kubeconfig")))),
		"lease of hand renewed", "Ready of hand is True now")
	if err := wait(patience, func() error {
		out, errOut, err := kubectl(e.kubeconfig(), "get", "node", "hand")
		if err == nil && !strings.Contains(out, " Ready ") { // on a busy machine a heartbeat may be late
			_, _, _ = e.runWherry("lease", "renew", "hand", "--once", "--ready")
		}
		if err != nil || !strings.Contains(out, " Ready ") {
			return errorf("%s %s %v", out, errOut, err)
		}
		return nil
	}); err != nil {
		t.Errorf("get node: %v", err)
	}
	_, errOut, err := kubectl(in("hand.kubeconfig"), "get", "secrets", "-A")
	if err == nil || !strings.Contains(errOut, "Forbidden") {
		t.Errorf("a node may list all secrets: %v %s", err, errOut)
	}

	text = approved(ask("denied.log", "denied", "--kubeconfig", in("bootstrap")), "deny")
	has("a denied wherry csr", text, "was refused", "Denied", "kubectl delete csr")

	// From here on the test asks for the certificate of a person, with a certificate request that openssl made.
	must(output(command("openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", in("jane.key"), "-out", in("jane.csr"), "-subj", "/O=devs/CN=jane")))
	text = approved(ask("jane.log", "--from", in("jane.csr"), "--key", in("jane.key"), "--kubeconfig", e.kubeconfig()), "approve")
	has("wherry csr --from", text, "knows you as jane (devs", in("jane.kubeconfig"))
	if _, errOut, err = kubectl(in("jane.kubeconfig"), "get", "nodes"); err == nil || !strings.Contains(errOut, `User "jane" cannot list resource "nodes"`) {
		t.Errorf("jane without rights: %v %s", err, errOut)
	}
	must(kubectl(e.kubeconfig(), "create", "clusterrolebinding", "jane", "--clusterrole=system:node", "--group=devs"))
	if err := wait(patience, func() error { _, _, err := kubectl(in("jane.kubeconfig"), "get", "nodes"); return err }); err != nil {
		t.Errorf("jane with rights: %v", err)
	}

	has("token delete", must(e.runWherry("token", "delete", token)), "Deleted token "+token[:6])
	if list := must(e.runWherry("token", "list")); strings.Contains(list, token) {
		t.Errorf("a deleted token is listed:\n%s", list)
	}
	if err := wait(patience, func() error {
		_, errOut, err := output(command(e.wherry, "csr", "late", "--out", dir, "--timeout", "20s", "--kubeconfig", in("bootstrap")))
		if err == nil || !containsAll(errOut, []string{"does not accept the credentials", "wherry token create"}) {
			return errorf("%v %s", err, errOut)
		}
		return nil
	}); err != nil {
		t.Errorf("wherry csr with a deleted token: %v", err)
	}
	if _, errOut, err := e.runWherry("token", "delete", token); err == nil || !strings.Contains(errOut, "there is no token with the ID") {
		t.Errorf("deleting it again: %v %s", err, errOut)
	}
}

// rotation checks that the client certificate and the serving certificate are renewed before they expire. The agent does not restart, and
// pods are not affected.
func rotation(t *testing.T, e *env) {
	s := newSpaceOn(t, e)
	n := started(t, e, nodeConfig{Name: "rot", Flags: simulated, Config: "serverTLSBootstrap: true\nrotateCertificates: true\nnodeLeaseDurationSeconds: 8\nnodeStatusUpdateFrequency: 2s\n"})
	n.mustBeReady(t)
	client := n.clientCertificate(t)
	var serving *x509.Certificate
	s.eventually("a serving certificate", func() (err error) { serving, err = n.serving(e); return err })
	if got := serving.Subject.CommonName; got != "system:node:rot" {
		t.Errorf("serving certificate of %s", got)
	}

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failures []string
	asked := 0
	wg.Go(func() {
		_ = wait(time.Hour, func() error {
			if ctx.Err() != nil {
				return nil
			}
			body, err := e.client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/rot/proxy/healthz").DoRaw(context.Background())
			mu.Lock()
			defer mu.Unlock()
			if asked++; err != nil || string(body) != "ok" {
				failures = append(failures, fmt.Sprintf("%s %s %v", time.Now().Format("15:04:05.0"), body, err))
			}
			return errorf("on")
		})
	})
	finish := sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(finish)
	w := s.witnessNode(n)
	s.within(5*time.Minute, "new certificates", func() error {
		if c := n.clientCertificate(t); c.SerialNumber.Cmp(client.SerialNumber) == 0 {
			return errorf("the client certificate is the one until %s", c.NotAfter)
		}
		c, err := n.serving(e)
		if err == nil && c.SerialNumber.Cmp(serving.SerialNumber) == 0 {
			err = errorf("the serving certificate is the one until %s", c.NotAfter)
		}
		return err
	})
	s.within(5*time.Minute, "the first certificates to end", func() error {
		if last := client.NotAfter; time.Now().Before(last) {
			return errorf("they end %s", last)
		}
		return nil
	})
	s.pod("later", `containers: [{name: main, image: $busybox}]`, onNode(n)) // the watch of pods works with the new certificate, too
	s.ready("later")
	w.nothing(s, "over the rotation")
	finish()
	if len(failures) > 0 || asked < 10 {
		t.Errorf("%d of %d requests failed while certificates changed: %s", len(failures), asked, strings.Join(failures, "\n"))
	}
	if n.starts > 0 || n.process.alive() != nil {
		t.Error("the agent was restarted")
	}
	s.kubectl("delete", "pod", "later", "--wait=false")
	s.gone("later")
}

// clientCertificate returns the node's client certificate, which it reads from the disk.
func (n *node) clientCertificate(t *testing.T) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.dir, "pki", "kubelet-client-current.pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// serving returns the certificate with which the node's API answers. It returns an error unless the cluster's CA has signed the certificate
// and it is valid for the node's address.
func (n *node) serving(e *env) (*x509.Certificate, error) {
	obj, err := e.client.CoreV1().Nodes().Get(context.Background(), n.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(e.dir, "cp", "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{RootCAs: pool, ServerName: address(obj)}}
	conn, err := d.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", n.port))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

func address(n *v1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// TestRegister checks how a node registers, and when it takes over a Node object that exists already.
func TestRegister(t *testing.T) {
	e := use(t)
	nodes := e.client.CoreV1().Nodes()
	ctx := context.Background()
	get := func(t *testing.T, name string) *v1.Node {
		t.Helper()
		obj, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
	t.Run("not", func(t *testing.T) {
		t.Parallel()
		n := started(t, e, nodeConfig{Name: "reg-not", Flags: append([]string{"--register-node=false"}, simulated...), Config: apart})
		n.says(t, `node \"reg-not\" does not exist and this agent does not register itself`, "create the Node object, or start with --register-node=true")
		obj := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "reg-not"}, Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "theirs", Effect: v1.TaintEffectNoSchedule}}}}
		if _, err := nodes.Create(ctx, obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		n.mustBeReady(t)
		if obj := get(t, "reg-not"); hasTaint(obj, "apart") || !hasTaint(obj, "theirs") || obj.Status.Capacity.Cpu().Value() != 100 {
			t.Errorf("taints %v capacity %v", obj.Spec.Taints, obj.Status.Capacity)
		}
	})
	t.Run("flags", func(t *testing.T) {
		t.Parallel()
		n := started(t, e, nodeConfig{Name: "reg-flags", Flags: append([]string{"--node-labels=example.com/a=b,node.kubernetes.io/exclude=x", "--register-with-taints=k=v:NoSchedule,apart=:NoExecute",
			"--provider-id=test://here", "--node-ip=127.0.0.1", "--network-plugin=cni", "--cni-bin-dir=/x", "--pod-infra-container-image=pause:1", "--log-dir=/x", "--logtostderr"}, simulated...)})
		n.mustBeReady(t)
		obj := get(t, "reg-flags")
		if obj.Labels["example.com/a"] != "b" || obj.Labels["node.kubernetes.io/exclude"] != "x" || obj.Labels["kubernetes.io/hostname"] != "reg-flags" || obj.Labels["kubernetes.io/os"] != "linux" {
			t.Errorf("labels %v", obj.Labels)
		}
		if !hasTaint(obj, "k") || !hasTaint(obj, "apart") || obj.Spec.ProviderID != "test://here" || address(obj) != "127.0.0.1" {
			t.Errorf("taints %v provider %s addresses %v", obj.Spec.Taints, obj.Spec.ProviderID, obj.Status.Addresses)
		}
		for _, flag := range []string{"--network-plugin", "--cni-bin-dir", "--pod-infra-container-image", "--log-dir", "--logtostderr"} {
			n.says(t, "removed from Kubernetes", `subject="`+flag+`"`)
		}
	})
	t.Run("adopts", func(t *testing.T) {
		t.Parallel()
		obj := &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "reg-adopts", Labels: map[string]string{"theirs": "kept", "kubernetes.io/os": "plan9"}, Annotations: map[string]string{"theirs": "kept"}},
			Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "theirs", Effect: v1.TaintEffectNoSchedule}}, PodCIDR: "10.99.0.0/24", PodCIDRs: []string{"10.99.0.0/24"}},
		}
		made, err := nodes.Create(ctx, obj, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := started(t, e, nodeConfig{Name: "reg-adopts", Flags: append([]string{"--node-labels=mine=new"}, simulated...), Config: apart})
		n.mustBeReady(t)
		n.says(t, "node was registered before: adopted")
		n.says(t, "pod CIDR sent to the runtime", "10.99.0.0/24")
		obj = get(t, "reg-adopts")
		if obj.UID != made.UID || obj.Labels["theirs"] != "kept" || obj.Annotations["theirs"] != "kept" || !hasTaint(obj, "theirs") || obj.Spec.PodCIDR != "10.99.0.0/24" {
			t.Errorf("what others set is gone: %+v %+v", obj.ObjectMeta, obj.Spec)
		}
		if obj.Labels["kubernetes.io/os"] != "linux" || obj.Labels["kubernetes.io/hostname"] != "reg-adopts" {
			t.Errorf("labels %v", obj.Labels)
		}
	})
	t.Run("taken", func(t *testing.T) {
		t.Parallel()
		owner := started(t, e, nodeConfig{Name: "reg-owner", Flags: simulated, Config: apart})
		owner.mustBeReady(t)
		before := get(t, "reg-owner")
		// This agent has a valid certificate of its own, but uses the name of another node.
		thief := started(t, e, nodeConfig{Name: "reg-thief", Flags: simulated, Config: apart})
		thief.mustBeReady(t)
		thief.process.stop()
		thief.process.cmd.Args = append(thief.process.cmd.Args, "--hostname-override=reg-owner")
		if err := thief.restart(); err != nil {
			t.Fatal(err)
		}
		thief.says(t, "The client certificate belongs to another name than this node's", "system:node:reg-thief", "set --hostname-override to the certificate's name")
		thief.says(t, `are not those of node \"reg-owner\"`, "use another one (--hostname-override)", "Trying again")
		if after := get(t, "reg-owner"); after.UID != before.UID || after.Status.NodeInfo != before.Status.NodeInfo {
			t.Error("the owner's Node was changed")
		}
		owner.mustBeReady(t)
	})
	t.Run("deleted", func(t *testing.T) {
		t.Parallel()
		n := started(t, e, nodeConfig{Name: "reg-deleted", Flags: simulated, Config: apart + "nodeStatusUpdateFrequency: 2s\n"})
		n.mustBeReady(t)
		first := get(t, "reg-deleted").UID
		if err := nodes.Delete(ctx, "reg-deleted", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		n.says(t, `node \"reg-deleted\" was deleted while this agent runs`, "registers again when it is restarted")
		n.process.stop()
		if err := n.restart(); err != nil {
			t.Fatal(err)
		}
		n.mustBeReady(t)
		if get(t, "reg-deleted").UID == first {
			t.Error("it is the same Node")
		}
	})
}

func hasTaint(n *v1.Node, key string) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == key {
			return true
		}
	}
	return false
}
