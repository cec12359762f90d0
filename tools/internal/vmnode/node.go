package vmnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/wherry-node/wherry/tools/internal/vm"
)

// nodeConfig is the KubeletConfiguration that kubeadm writes for a node. Fields that are not in it have their defaults.
const nodeConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true, cacheTTL: 0s}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
healthzBindAddress: 127.0.0.1
healthzPort: 10248
resolvConf: /etc/resolv.conf
rotateCertificates: true
staticPodPath: /etc/kubernetes/manifests
`

// Configure writes the node's KubeletConfiguration; extra are additional fields in YAML. The agent reads the file when it starts.
func (e *Env) Configure(ctx context.Context, extra string) error {
	return e.Machine.CopyIn(ctx, "/var/lib/kubelet/config.yaml", 0o644, []byte(nodeConfig+extra))
}

// Install makes the guest a node as an administrator would: it installs the packages, writes the files for joining the cluster, and starts
// kubelet.service.
func (e *Env) Install(ctx context.Context) error {
	m := e.Machine
	for _, step := range []struct{ what, script string }{
		{"containerd", "systemctl start containerd"},
		{"images", "ctr -n k8s.io images import --local /opt/payload/images.tar >/dev/null"},
		{"packages", "apt-get install -q -y --no-install-recommends /opt/payload/packages/wherry_*.deb /opt/payload/packages/wherry-kubelet_*.deb"},
		{"directories", "mkdir -p /etc/kubernetes/pki /etc/kubernetes/manifests /var/lib/kubelet; chmod 700 /var/lib/kubelet"},
	} {
		began := time.Now()
		if _, err := m.Shell(ctx, 8*time.Minute, step.script); err != nil {
			return fmt.Errorf("install %s: %w", step.what, err)
		}
		e.say("%s installed in %.0f s", step.what, time.Since(began).Seconds())
	}
	if err := e.Configure(ctx, ""); err != nil {
		return err
	}
	for from, to := range map[string]string{
		e.path("controlplane", "ca.crt"):               "/etc/kubernetes/pki/ca.crt",
		e.path("controlplane", "bootstrap.kubeconfig"): "/etc/kubernetes/bootstrap-kubelet.conf",
	} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = m.CopyIn(ctx, to, 0o600, data)
		}
		if err != nil {
			return err
		}
	}
	// sync writes the installed files to the disk, so that they survive a power cut, as on a machine that was installed some time ago.
	if _, err := m.Shell(ctx, 5*time.Minute, "systemctl enable -q kubelet; systemctl start kubelet; sync"); err != nil {
		return fmt.Errorf("start the agent: %w\n%s", err, e.Journal(ctx, 20))
	}
	e.say("kubelet.service started")
	return os.WriteFile(e.installed(), nil, 0o644)
}

// Journal returns the last lines of the agent's log.
func (e *Env) Journal(ctx context.Context, lines int) string {
	out, err := e.Machine.Shell(ctx, time.Minute, fmt.Sprintf("journalctl -u kubelet -n %d --no-pager -o cat", lines))
	if err != nil {
		return err.Error()
	}
	return out
}

// Ready reports whether the node's Ready condition is True. state describes the condition.
func (e *Env) Ready(ctx context.Context) (ready bool, state string) {
	out, err := e.Kubectl(ctx, "get", "node", NodeName, "-o", "json", "--request-timeout=10s")
	if err != nil {
		return false, err.Error()
	}
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := json.Unmarshal([]byte(out), &n); err != nil {
		return false, err.Error()
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True", fmt.Sprintf("Ready is %s: %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return false, "the node has no Ready condition yet"
}

// readyBound is how long a node may take from the start of the agent until it is Ready. On a quiet machine a node takes 5 s.
const readyBound = 8 * time.Minute

// AwaitReady waits until the node is Ready. After readyBound it returns an error with the last lines of the agent's log.
func (e *Env) AwaitReady(ctx context.Context) error {
	if err := vm.Await(ctx, "the node", readyBound, time.Second, e.Ready); err != nil {
		return errors.Join(err, fmt.Errorf("last lines of the agent's log:\n%s", e.Journal(ctx, 20)))
	}
	e.say("node %s is Ready", NodeName)
	return nil
}
