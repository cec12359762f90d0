package kubeadm

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"text/template"

	"github.com/wherry-node/wherry/tools/internal/build"
)

// registration is the part of kubeadm's configuration that init and join have in common. The check SystemVerification is left out, because it
// refuses cgroup v1 and wants the configuration of the kernel.
const registration = `nodeRegistration:
  name: {{.Node.Name}}
  criSocket: unix://{{.Node.Socket}}
  ignorePreflightErrors: [SystemVerification]
  kubeletExtraArgs:
  - {name: node-ip, value: "{{.Node.Address}}"}
  - {name: cgroup-root, value: "{{.Node.Cgroup}}"}
`

var initConfig = template.Must(template.New("init").Parse(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens:
- {token: "{{.Token}}"}
localAPIEndpoint: {advertiseAddress: "{{.Node.Address}}"}
` + registration + `---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: {{.Version}}
networking: {podSubnet: "{{.PodCIDR}}"}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
serverTLSBootstrap: true
# Builds may fill the disk of the machine to more than 85 %.
evictionHard: {memory.available: 100Mi, nodefs.available: 1Gi, nodefs.inodesFree: 1%, imagefs.available: 1Gi, imagefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
# Only the first network namespace of a machine can set these sysctls.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`))

var joinConfig = template.Must(template.New("join").Parse(`apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {token: "{{.Token}}", apiServerEndpoint: "{{.Server}}:6443", caCertHashes: ["{{.CAHash}}"]}
` + registration))

// configure writes the configuration of kubeadm for the node, and returns its path, which is the same on the node and on the machine. more
// are the values that only this template has.
func (n *node) configure(t *template.Template, more map[string]any) (string, error) {
	values := map[string]any{
		"Node": map[string]string{
			"Name": n.name, "Address": n.address, "Socket": n.containerd().Socket(), "Cgroup": n.cgroup(),
		},
		"Version": build.KubernetesVersion, "PodCIDR": podCIDR,
	}
	for name, value := range more {
		values[name] = value
	}
	var text strings.Builder
	if err := t.Execute(&text, values); err != nil {
		return "", err
	}
	file := n.path("kubeadm.yaml")
	return file, os.WriteFile(file, []byte(text.String()), 0o600)
}

// newToken returns a random bootstrap token.
func newToken() string {
	text := strings.ToLower(rand.Text())
	return text[:6] + "." + text[6:22]
}

// caHash returns the hash of the public key of the cluster's authority, as kubeadm join wants it.
func (c *Cluster) caHash() (string, error) {
	file := c.first().own("etc/kubernetes/pki/ca.crt")
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return "", fmt.Errorf("read %s: no certificate", file)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", file, err)
	}
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}
