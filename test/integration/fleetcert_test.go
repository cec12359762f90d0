package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/identity"
)

// auditPolicy logs the metadata of what nodes do with Nodes and leases.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
  resources:
  - {group: "", resources: [nodes, nodes/status]}
  - {group: coordination.k8s.io, resources: [leases]}
- level: None
`

// audited is a line of the API server's audit log.
type audited struct {
	Verb      string
	ObjectRef struct{ Resource, Subresource, Name string }
	User      struct {
		Username string
		Groups   []string
		Extra    map[string][]string
	}
	ImpersonatedUser *struct{ Username string }
	ResponseStatus   struct{ Code int }
}

// credential returns how the user was recognized, for example by which certificate.
func (a *audited) credential() string {
	return strings.Join(a.User.Extra["authentication.kubernetes.io/credential-id"], " ")
}

// readAudit returns the lines of an audit log.
func readAudit(t *testing.T, file string) (out []audited) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a audited
		if json.Unmarshal(lines.Bytes(), &a) == nil { // the last line may be incomplete
			out = append(out, a)
		}
	}
	return out
}

// The nodes of a fleet with certificates join a cluster by TLS bootstrap, as the kubelet does, and renew their certificates. The audit log of
// the API server shows that each request has the certificate of its node, and NodeRestriction refuses what a node may not do. At the end
// neither the token nor the bindings nor the certificate requests are left.
func TestFleetCertificates(t *testing.T) {
	dir := t.TempDir()
	policy, audit := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(policy, []byte(auditPolicy), 0o600))
	e := newPlane(t, use(t), "fleetcert", "--signing-duration", "120s",
		"--apiserver-arg", "audit-policy-file="+policy, "--apiserver-arg", "audit-log-path="+audit)
	fleet, err := start(filepath.Join(e.dir, "cert.log"), e.wherry, "fleet", "--name", "cert", "--identity", "certificate", "--kubeconfig", e.kubeconfig(), "--yes",
		"--no-taint", "--no-serve", "--nodes", "3", "--pods", "6")
	must(err)
	t.Cleanup(fleet.stop)
	must(wait(2*time.Minute, func() error {
		pods, err := e.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err == nil && len(pods.Items) != 6 {
			err = errorf("%d of 6 pods run: %v", len(pods.Items), fleet.alive())
		}
		return err
	}))
	checkRequests(t, e)
	checkRefusal(t, e)

	// Certificates are valid for two minutes, so each node renews its certificate after at most 108 s.
	must(wait(4*time.Minute, func() error {
		for n := 1; n <= 3; n++ {
			user, seen := fmt.Sprintf("system:node:cert-node-%d", n), map[string]bool{}
			for _, a := range readAudit(t, audit) {
				if a.User.Username != user {
					continue
				}
				if a.ImpersonatedUser != nil || !strings.HasPrefix(a.credential(), "X509SHA256=") || !slices.Contains(a.User.Groups, "system:nodes") {
					return fatal{errorf("a request without the node's certificate: %+v", a)}
				}
				seen[a.credential()] = true
			}
			if len(seen) < 2 {
				return errorf("%s has used %d certificates: %v", user, len(seen), fleet.alive())
			}
		}
		return nil
	}))
	fleet.stop()
	selector := metav1.ListOptions{LabelSelector: "wherry.dev/fleet"}
	secrets, err := e.client.CoreV1().Secrets("kube-system").List(t.Context(), selector)
	must(err)
	bindings, err := e.client.RbacV1().ClusterRoleBindings().List(t.Context(), selector)
	must(err)
	csrs, err := e.client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	must(err)
	nodes, err := e.client.CoreV1().Nodes().List(t.Context(), selector)
	must(err)
	if s, b, c, n := len(secrets.Items), len(bindings.Items), len(csrs.Items), len(nodes.Items); s+b+c+n != 0 {
		t.Errorf("left: %d tokens, %d bindings, %d certificate requests, %d nodes", s, b, c, n)
	}
}

// checkRequests checks the certificate requests of the three nodes, and the token with which the nodes made them.
func checkRequests(t *testing.T, e *env) {
	t.Helper()
	selector := metav1.ListOptions{LabelSelector: "wherry.dev/fleet=cert"}
	secrets, err := e.client.CoreV1().Secrets("kube-system").List(t.Context(), selector)
	if err != nil || len(secrets.Items) != 1 || secrets.Items[0].Type != v1.SecretTypeBootstrapToken || len(secrets.Items[0].Data["expiration"]) == 0 {
		t.Fatalf("bootstrap tokens: %+v, %v", secrets, err)
	}
	csrs, err := e.client.CertificatesV1().CertificateSigningRequests().List(t.Context(), selector)
	if err != nil || len(csrs.Items) < 3 {
		t.Fatalf("%d certificate requests, want 3: %v", len(csrs.Items), err)
	}
	byToken := 0
	token := "system:bootstrap:" + string(secrets.Items[0].Data["token-id"])
	for i := range csrs.Items {
		c := &csrs.Items[i]
		approved := slices.ContainsFunc(c.Status.Conditions, func(s certificates.CertificateSigningRequestCondition) bool {
			return s.Type == certificates.CertificateApproved && s.Reason == "AutoApproved"
		})
		if c.Spec.Username == token {
			byToken++
		} else if !strings.HasPrefix(c.Spec.Username, "system:node:cert-node-") { // if the machine is slow, nodes have renewed their certificates already
			t.Errorf("request %s: user %s", c.Name, c.Spec.Username)
		}
		if c.Spec.SignerName != certificates.KubeAPIServerClientKubeletSignerName || !approved || len(c.Status.Certificate) == 0 {
			t.Errorf("request %s: signer %s, user %s, conditions %+v, %d bytes of certificate", c.Name, c.Spec.SignerName, c.Spec.Username, c.Status.Conditions, len(c.Status.Certificate))
		}
	}
	if byToken < 3 {
		t.Errorf("%d requests with the token, want one of each of 3 nodes", byToken)
	}
}

// checkRefusal gets a certificate as the nodes of the fleet do, with its token, and checks that the API server lets its user change no other
// node.
func checkRefusal(t *testing.T, e *env) {
	t.Helper()
	secrets, err := e.client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "wherry.dev/fleet=cert"})
	if err != nil || len(secrets.Items) != 1 {
		t.Fatalf("bootstrap tokens: %+v, %v", secrets, err)
	}
	client := func(change func(*rest.Config)) *kubeclient.Client {
		cfg := rest.AnonymousClientConfig(e.config)
		change(cfg)
		c, err := kubeclient.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	data := secrets.Items[0].Data
	boot := client(func(c *rest.Config) { c.BearerToken = string(data["token-id"]) + "." + string(data["token-secret"]) })
	id, err := identity.NewMemory(identity.MemoryConfig{
		Server: e.config, NodeName: "cert-other", Labels: map[string]string{"wherry.dev/fleet": "cert"}, Log: slog.New(slog.DiscardHandler),
		Bootstrap: func() (identity.CSRs, error) { return boot.CertificateSigningRequests(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := id.Join(ctx); err != nil {
		t.Fatal(err)
	}
	defer id.CloseAll()
	node := client(func(c *rest.Config) { c.TLSClientConfig, c.Transport = rest.TLSClientConfig{}, id.Transport() })
	who, err := node.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "system:node:cert-other" || !slices.Contains(who.Status.UserInfo.Groups, "system:nodes") {
		t.Errorf("the user is %+v, %v", who.Status.UserInfo, err)
	}
	patch := []byte(`{"metadata":{"labels":{"x":"y"}}}`)
	_, err = node.Nodes().Patch(ctx, "cert-node-1", types.MergePatchType, patch, metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `is not allowed to modify node "cert-node-1"`) {
		t.Errorf("patch another node: %v, want a refusal by NodeRestriction", err)
	}
}
