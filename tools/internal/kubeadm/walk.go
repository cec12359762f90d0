package kubeadm

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/build"
	"github.com/wherry-node/wherry/tools/internal/proc"
)

//go:embed workload.yaml
var workload string

type step struct {
	title string
	do    func(ctx context.Context) error
}

// steps are the life of a cluster, from its init to its reset.
func (c *Cluster) steps() []step {
	return []step{
		{"kubeadm init and join: the control plane is static pods of the first node", c.show},
		{"The nodes ask for serving certificates: a person approves the first one, deploy/csrapprover the second one", c.approve},
		{"A Deployment on both nodes: pods find its Service by name, from both nodes", c.deploy},
		{"systemctl restart kubelet on both nodes: no container restarts, and no node is NotReady", c.restartAgents},
		{"kubeadm certs renew all: the control plane restarts with the new certificates", c.renew},
		{"kubectl drain and kubeadm upgrade: of the control plane, then of the second node", c.upgrade},
		{"kubeadm reset on both nodes: nothing is left", c.reset},
	}
}

// Walk makes a new cluster, carries out all steps, and ends the cluster. If keep is true, it leaves out the reset and the end, so that the
// cluster stays up. After an error the cluster stays too; Down ends it.
func (c *Cluster) Walk(ctx context.Context, keep bool) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.up(ctx); err != nil {
		return err
	}
	steps := c.steps()
	if keep {
		steps = steps[:len(steps)-1]
	}
	for i, step := range steps {
		fmt.Fprintf(c.Progress, "\n%d. %s\n", i+1, step.title)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w (everything stays as it is for a look: bin/wherry-dev kubeadm kubectl, kubeadm on one sh; kubeadm down ends it)", step.title, err)
		}
	}
	if keep {
		c.say("the cluster stays up: bin/wherry-dev kubeadm kubectl get pods -A; bin/wherry-dev kubeadm down ends it")
		return nil
	}
	return c.down(ctx)
}

// print prints what kubectl says.
func (c *Cluster) print(ctx context.Context, args ...string) error {
	out, err := c.Kubectl(ctx, "", args...)
	if err == nil {
		fmt.Fprintf(c.Progress, "$ kubectl %s\n%s", strings.Join(args, " "), out)
	}
	return err
}

func (c *Cluster) show(ctx context.Context) error {
	return errors.Join(c.print(ctx, "get", "nodes", "-o", "wide"), c.print(ctx, "get", "pods", "-A", "-o", "wide"))
}

// approve lets the administrator approve the request of the first node, and the program of deploy/csrapprover that of the second one.
func (c *Cluster) approve(ctx context.Context) error {
	if err := c.awaitServing(ctx, c.nodes[:1], c.approveByHand); err != nil {
		return err
	}
	if err := c.awaitServing(ctx, c.nodes, c.runApprover); err != nil {
		return err
	}
	return c.print(ctx, "get", "csr")
}

// Approve approves the requests for serving certificates, and waits until each node has its certificate. Until then the API server cannot
// connect to the nodes.
func (c *Cluster) Approve(ctx context.Context) error {
	return c.awaitServing(ctx, c.nodes, c.approveByHand)
}

// awaitServing waits until each of the nodes has its serving certificate. Meanwhile it calls approve with these nodes.
func (c *Cluster) awaitServing(ctx context.Context, nodes []*node, approve func(context.Context, []*node) error) error {
	var names []string
	for _, n := range nodes {
		names = append(names, n.name)
	}
	return c.await(ctx, "serving certificates of "+strings.Join(names, " and "), func(ctx context.Context) (bool, string) {
		if err := approve(ctx, nodes); err != nil {
			return false, err.Error()
		}
		for _, n := range nodes {
			if _, err := os.Lstat(n.own("var/lib/kubelet/pki/kubelet-server-current.pem")); err != nil {
				return false, n.name + " has none"
			}
		}
		return true, ""
	})
}

// approveByHand approves the requests of the nodes that wait.
func (c *Cluster) approveByHand(ctx context.Context, nodes []*node) error {
	waiting, err := c.Kubectl(ctx, "", "get", "csr", "-o",
		`go-template={{range .items}}{{if and (eq .spec.signerName "kubernetes.io/kubelet-serving") (not .status.conditions)}}{{.spec.username}} {{.metadata.name}}{{"\n"}}{{end}}{{end}}`)
	if err != nil {
		return err
	}
	for line := range strings.Lines(waiting) {
		user, request, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.ContainsFunc(nodes, func(n *node) bool { return user == "system:node:"+n.name }) {
			continue
		}
		if _, err := c.Kubectl(ctx, "", "certificate", "approve", request); err != nil {
			return err
		}
	}
	return nil
}

// runApprover runs the approver once. It looks at the requests of all nodes.
func (c *Cluster) runApprover(ctx context.Context, _ []*node) error {
	cmd, err := c.Command(ctx, c.bin("csrapprover"), "--kubeconfig="+c.Kubeconfig(), "--once")
	if err != nil {
		return err
	}
	out, err := proc.Output(cmd, "csrapprover")
	fmt.Fprint(c.Progress, out)
	return err
}

func (c *Cluster) deploy(ctx context.Context) error {
	if _, err := c.Kubectl(ctx, workload, "apply", "-f", "-"); err != nil {
		return err
	}
	if err := errors.Join(c.awaitRollout(ctx, "default", "deployment/web"), c.awaitRollout(ctx, "default", "daemonset/client")); err != nil {
		return err
	}
	return c.reach(ctx)
}

// reach lets a pod on each node ask for the Service by its name, until each replica has answered.
func (c *Cluster) reach(ctx context.Context) error {
	clients, err := c.Kubectl(ctx, "", "get", "pods", "-l", "app=client", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}`)
	if err != nil {
		return err
	}
	for line := range strings.Lines(clients) {
		pod, node, _ := strings.Cut(strings.TrimSpace(line), " ")
		if err := c.await(ctx, "both replicas answer "+pod+" on "+node, func(ctx context.Context) (bool, string) {
			out, err := c.Kubectl(ctx, "", "exec", pod, "--", "sh", "-c", askByName)
			if err != nil {
				return false, err.Error()
			}
			return strings.Count(out, "\n") == 2, out
		}); err != nil {
			return err
		}
	}
	return nil
}

// askByName is a shell script that looks up the Service web and prints the names of the pods that answer there. Debian's static busybox
// crashes in wget, so the script speaks HTTP itself.
const askByName = `address=$(nslookup web.default.svc.cluster.local | awk '/^Address:/ {last=$2} END {print last}')
for i in 1 2 3 4 5 6 7 8 9 10; do printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 $address 80 || exit 1; done | grep '^host:' | sort -u`

// parseContainers returns the containers in the output of `crictl ps -o json`: ID by pod and name.
func parseContainers(text string) (map[string]string, error) {
	var list struct {
		Containers []struct {
			ID       string                `json:"id"`
			Metadata struct{ Name string } `json:"metadata"`
			Labels   map[string]string     `json:"labels"`
		} `json:"containers"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("read the list of containers: %w", err)
	}
	found := map[string]string{}
	for _, c := range list.Containers {
		found[c.Labels["io.kubernetes.pod.name"]+"/"+c.Metadata.Name] = c.ID
	}
	return found, nil
}

// transitions returns when the Ready condition of each node last changed.
func (c *Cluster) transitions(ctx context.Context) (string, error) {
	return c.Kubectl(ctx, "", "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].lastTransitionTime} {end}`)
}

func (c *Cluster) restartAgents(ctx context.Context) error {
	ready, err := c.transitions(ctx)
	if err != nil {
		return err
	}
	for _, n := range c.nodes {
		before, err := n.running(ctx)
		if err != nil {
			return err
		}
		if _, err := n.run(ctx, "systemctl", "restart", "kubelet"); err != nil {
			return err
		}
		if err := c.await(ctx, "the node agent of "+n.name+" is healthy", n.healthy); err != nil {
			return err
		}
		select { // what an agent does wrong after its start, it does in its first seconds
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
		}
		after, err := n.running(ctx)
		if err != nil {
			return err
		}
		if !maps.Equal(before, after) {
			return fmt.Errorf("containers of %s before the restart: %v; after it: %v", n.name, before, after)
		}
		c.say("%s: the same %d containers run", n.name, len(after))
	}
	now, err := c.transitions(ctx)
	if err == nil && now != ready {
		err = fmt.Errorf("the Ready condition changed: before the restarts %s, after them %s", ready, now)
	}
	return err
}

func (n *node) healthy(ctx context.Context) (bool, string) {
	out, err := n.run(ctx, "sh", "-c", `printf 'GET /healthz HTTP/1.0\r\n\r\n' | busybox nc -w 5 127.0.0.1 10248`)
	if err != nil {
		return false, err.Error()
	}
	return strings.HasSuffix(strings.TrimSpace(out), "ok"), out
}

const manifests = "/etc/kubernetes/manifests/"

// staticPods are the names of the manifests of the control plane, without ".yaml".
func staticPods() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
}

// renew renews all certificates, and restarts the static pods as the documentation of kubeadm says: each manifest is moved away until the
// pod is gone.
func (c *Cluster) renew(ctx context.Context) error {
	const aside = "/etc/kubernetes/renewed/"
	n := c.first()
	old, err := n.served(ctx)
	if err != nil {
		return err
	}
	if err := n.kubeadm(ctx, "certs", "renew", "all"); err != nil {
		return err
	}
	renewed, err := n.run(ctx, "openssl", "x509", "-noout", "-serial", "-in", "/etc/kubernetes/pki/apiserver.crt")
	if err != nil {
		return err
	}
	if renewed == old {
		return fmt.Errorf("kubeadm did not renew the API server's certificate %s", old)
	}
	if _, err := n.run(ctx, "mkdir", aside); err != nil {
		return err
	}
	if err := n.moveManifests(ctx, manifests, aside); err != nil {
		return err
	}
	if err := c.await(ctx, "the pods of the control plane have ended", func(ctx context.Context) (bool, string) {
		now, err := n.running(ctx)
		left := slices.DeleteFunc(slices.Sorted(maps.Keys(now)), func(name string) bool { return !isStatic(name) })
		return err == nil && len(left) == 0, fmt.Sprint(left, err)
	}); err != nil {
		return err
	}
	if err := n.moveManifests(ctx, aside, manifests); err != nil {
		return err
	}
	if err := c.await(ctx, "the API server serves the renewed certificate", func(ctx context.Context) (bool, string) {
		now, err := n.served(ctx)
		return err == nil && now == renewed, fmt.Sprint(now, err)
	}); err != nil {
		return err
	}
	if err := c.takeKubeconfig(); err != nil {
		return err
	}
	return c.awaitControlPlane(ctx)
}

// moveManifests moves the manifests of the control plane from one directory of the node to another one.
func (n *node) moveManifests(ctx context.Context, from, to string) error {
	for _, name := range staticPods() {
		if _, err := n.run(ctx, "mv", from+name+".yaml", to); err != nil {
			return err
		}
	}
	return nil
}

func isStatic(container string) bool {
	return slices.ContainsFunc(staticPods(), func(name string) bool { return strings.HasSuffix(container, "/"+name) })
}

// served returns the serial number of the certificate that the API server serves.
func (n *node) served(ctx context.Context) (string, error) {
	return n.run(ctx, "sh", "-c", "openssl s_client -connect "+n.address+":6443 </dev/null 2>/dev/null | openssl x509 -noout -serial")
}

// awaitControlPlane waits until the mirrors of the static pods are Ready in the API.
func (c *Cluster) awaitControlPlane(ctx context.Context) error {
	return c.await(ctx, "the pods of the control plane are Ready", func(ctx context.Context) (bool, string) {
		out, err := c.Kubectl(ctx, "", "get", "pods", "-n", "kube-system", "-l", "tier=control-plane", "-o",
			`jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}`)
		if err != nil {
			return false, err.Error()
		}
		ready := strings.Fields(out)
		return len(ready) == len(staticPods()) && !slices.ContainsFunc(ready, func(s string) bool { return s != "True" }), out
	})
}

func (c *Cluster) upgrade(ctx context.Context) error {
	if err := c.first().kubeadm(ctx, "upgrade", "apply", build.KubernetesVersion, "--yes", "--force", "--ignore-preflight-errors=SystemVerification"); err != nil {
		return err
	}
	second := c.nodes[1]
	if _, err := c.Kubectl(ctx, "", "drain", second.name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout="+patience.String()); err != nil {
		return err
	}
	if err := second.kubeadm(ctx, "upgrade", "node", "--ignore-preflight-errors=SystemVerification"); err != nil {
		return err
	}
	if _, err := second.run(ctx, "systemctl", "restart", "kubelet"); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "", "uncordon", second.name); err != nil {
		return err
	}
	if err := errors.Join(c.awaitSystem(ctx), c.awaitControlPlane(ctx), c.awaitRollout(ctx, "default", "deployment/web")); err != nil {
		return err
	}
	return c.reach(ctx)
}

// reset resets the second node and then the first one, and looks for what is left.
func (c *Cluster) reset(ctx context.Context) error {
	if _, err := c.Kubectl(ctx, "", "delete", "node", c.nodes[1].name); err != nil {
		return err
	}
	for _, n := range slices.Backward(c.nodes) {
		if err := n.kubeadm(ctx, "reset", "--force", "--cri-socket=unix://"+n.containerd().Socket()); err != nil {
			return err
		}
		if n.alive() {
			return fmt.Errorf("the node agent of %s runs after the reset", n.name)
		}
		pods, err := n.crictl(ctx, "pods", "-q")
		if err != nil {
			return err
		}
		left, err := n.run(ctx, "sh", "-c", "ls "+manifests+"; grep -o ' /var/lib/kubelet/[^ ]*' /proc/self/mounts || true")
		if err != nil {
			return err
		}
		if left = strings.TrimSpace(pods + left); left != "" {
			return fmt.Errorf("after the reset of %s are left:\n%s", n.name, left)
		}
		c.say("%s has no pods, no manifests and no mounts", n.name)
	}
	return nil
}
