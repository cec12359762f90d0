package handtools_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/wherry-node/wherry/internal/cli/handtools"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	c := fake.NewClientset()
	token, err := handtools.CreateToken(t.Context(), c.CoreV1().Secrets(metav1.NamespaceSystem), handtools.Token{TTL: 24 * time.Hour, Groups: []string{handtools.DefaultTokenGroup},
		Usages: []string{"signing", "authentication"}, Description: "for n1"})
	if err != nil {
		t.Fatal(err)
	}
	id, key, _ := strings.Cut(token, ".")
	s, err := c.CoreV1().Secrets("kube-system").Get(t.Context(), "bootstrap-token-"+id, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, s.StringData["expiration"])
	if left := time.Until(at); err != nil || left < 23*time.Hour || left > 24*time.Hour {
		t.Errorf("expires in %s, %v", left, err)
	}
	delete(s.StringData, "expiration")
	want := map[string]string{"token-id": id, "token-secret": key, "usage-bootstrap-signing": "true", "usage-bootstrap-authentication": "true",
		"auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token", "description": "for n1"}
	if diff := cmp.Diff(want, s.StringData); diff != "" || s.Type != "bootstrap.kubernetes.io/token" {
		t.Errorf("secret of type %s (-want +got):\n%s", s.Type, diff)
	}
	if _, err := handtools.CreateToken(t.Context(), c.CoreV1().Secrets(metav1.NamespaceSystem), handtools.Token{Value: "zzzzzz.0123456789abcdef", Usages: []string{"signing"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := handtools.CreateToken(t.Context(), c.CoreV1().Secrets(metav1.NamespaceSystem), handtools.Token{Value: "zzzzzz.0123456789abcdef", Usages: []string{"signing"}}); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a second time: %v", err)
	}
	var out bytes.Buffer
	if err := handtools.ListTokens(t.Context(), c.CoreV1().Secrets(metav1.NamespaceSystem), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"TTL", token, "23h", "authentication,signing", "for n1", "zzzzzz.0123456789abcdef", "<forever>"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("list lacks %q:\n%s", want, out.String())
		}
	}
	for _, name := range []string{token, "zzzzzz"} {
		if err := handtools.DeleteToken(t.Context(), c.CoreV1().Secrets(metav1.NamespaceSystem), name); err != nil {
			t.Error(err)
		}
		if err := handtools.DeleteToken(t.Context(), c.CoreV1().Secrets(metav1.NamespaceSystem), name); err == nil || !strings.Contains(err.Error(), "there is no token") {
			t.Errorf("delete %s twice: %v", name, err)
		}
	}
}

func TestBadTokens(t *testing.T) {
	t.Parallel()
	good := handtools.Token{Value: "abcdef.0123456789abcdef", Usages: []string{"signing"}}
	for want, change := range map[string]func(*handtools.Token){
		"separated by a dot": func(t *handtools.Token) { t.Value = "abc" },
		"--ttl":              func(t *handtools.Token) { t.TTL = -time.Hour },
		"--groups masters":   func(t *handtools.Token) { t.Groups = []string{"masters"} },
		"--usages signin":    func(t *handtools.Token) { t.Usages = []string{"signin"} },
		"--usages :":         func(t *handtools.Token) { t.Usages = nil },
	} {
		token := good
		change(&token)
		if _, err := handtools.CreateToken(t.Context(), fake.NewClientset().CoreV1().Secrets(metav1.NamespaceSystem), token); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// CreateToken accepts the same tokens and groups as Kubernetes does (tokenutil).
func TestTokensAsTheFieldReadsThem(t *testing.T) {
	t.Parallel()
	create := func(token handtools.Token) error {
		_, err := handtools.CreateToken(t.Context(), fake.NewClientset().CoreV1().Secrets(metav1.NamespaceSystem), token)
		return err
	}
	for _, v := range []string{"abcdef.0123456789abcdef", "abcde.0123456789abcdef", "abcdef.0123456789abcde", "abcdef0123456789abcdefg", "ABCDEF.0123456789abcdef",
		"abcdef.0123456789abcdeé", "abcdef.0123456789abcdef\n", "abcdef.0123456789abcdef.", ".", "000000.zzzzzzzzzzzzzzzz"} {
		if err := create(handtools.Token{Value: v, Usages: []string{"signing"}}); (err == nil) != tokenutil.IsValidBootstrapToken(v) {
			t.Errorf("%q: %v", v, err)
		}
	}
	for range 20 { // random tokens are valid too
		token := handtools.Token{Usages: []string{"signing", "authentication"}}
		c := fake.NewClientset().CoreV1().Secrets(metav1.NamespaceSystem)
		if v, err := handtools.CreateToken(t.Context(), c, token); err != nil || !tokenutil.IsValidBootstrapToken(v) {
			t.Errorf("%q: %v", v, err)
		}
	}
	const p = "system:bootstrappers:"
	for _, g := range []string{p, p + "a", p + "a-", p + "-a", p + "a:b", p + "A", p + "a b", p + "é", p + strings.Repeat("a", 256), p + strings.Repeat("a", 257),
		"system:masters", "x" + p + "a", p + "a\n", handtools.DefaultTokenGroup} {
		err := create(handtools.Token{Value: "abcdef.0123456789abcdef", Usages: []string{"signing"}, Groups: []string{g}})
		if (err == nil) != (tokenutil.ValidateBootstrapGroupName(g) == nil) {
			t.Errorf("%q: %v", g, err)
		}
	}
}

func nodeWith(ready v1.ConditionStatus) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1"}, Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
		{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse, Reason: "Somebody"},
		{Type: v1.NodeMemoryPressure, Status: ready}, {Type: v1.NodeReady, Status: ready, Reason: "NodeStatusUnknown"},
	}}}
}

func conditions(t *testing.T, c *fake.Clientset) map[string]string {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, x := range n.Status.Conditions {
		got[string(x.Type)] = string(x.Status)
	}
	return got
}

// For a Ready node, the lease is renewed at its interval and nothing else is written.
func TestLeaseOfReadyNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientset(nodeWith(v1.ConditionTrue))
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		var out bytes.Buffer
		if err := (&handtools.LeaseRenewal{Nodes: c.CoreV1().Nodes(), Leases: c.CoordinationV1().Leases(v1.NamespaceNodeLease), Node: "n1", Out: &out}).Run(ctx); err != nil {
			t.Fatal(err)
		}
		lease, err := c.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(lease.Spec.RenewTime.Time); *lease.Spec.HolderIdentity != "n1" || *lease.Spec.LeaseDurationSeconds != 40 || age != 5*time.Second {
			t.Errorf("lease %+v, %s old", lease.Spec, age)
		}
		if lease.OwnerReferences[0].UID != "u1" {
			t.Errorf("owners %v", lease.OwnerReferences)
		}
		if n := strings.Count(out.String(), "renewed"); n != 4 {
			t.Errorf("renewed %d times in 35 s, want 4:\n%s", n, out.String())
		}
		for _, a := range c.Actions() {
			if a.GetVerb() == "patch" {
				t.Errorf("wrote %v", a)
			}
		}
	})
}

// If the control plane has already marked the node Unknown, a new lease is not enough: the conditions must be written too.
// Without --ready the tool returns an error that says so.
func TestLeaseOfUnknownNode(t *testing.T) {
	t.Parallel()
	c := fake.NewClientset(nodeWith(v1.ConditionUnknown))
	var out bytes.Buffer
	err := (&handtools.LeaseRenewal{Nodes: c.CoreV1().Nodes(), Leases: c.CoordinationV1().Leases(v1.NamespaceNodeLease), Node: "n1", Out: &out}).Run(t.Context())
	if !errors.Is(err, handtools.ErrUnknown) || !strings.Contains(err.Error(), "--ready") {
		t.Fatalf("without --ready: %v", err)
	}
	if err := (&handtools.LeaseRenewal{Nodes: c.CoreV1().Nodes(), Leases: c.CoordinationV1().Leases(v1.NamespaceNodeLease), Node: "n1", Out: &out, Ready: true, Once: true}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "NetworkUnavailable": "False"}
	if diff := cmp.Diff(want, conditions(t, c)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

// After a temporary error the tool tries again, with a wait that doubles from 200 ms to 7 s. A permanent error is returned.
func TestLeaseTrouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientset(nodeWith(v1.ConditionTrue))
		var at []time.Duration
		begin := time.Now()
		c.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			at = append(at, time.Since(begin))
			return true, nil, errors.New("connection refused")
		})
		ctx, cancel := context.WithTimeout(t.Context(), 22*time.Second)
		defer cancel()
		var out bytes.Buffer
		if err := (&handtools.LeaseRenewal{Nodes: c.CoreV1().Nodes(), Leases: c.CoordinationV1().Leases(v1.NamespaceNodeLease), Node: "n1", Out: &out}).Run(ctx); err != nil {
			t.Fatal(err)
		}
		ms := time.Millisecond
		if diff := cmp.Diff([]time.Duration{0, 200 * ms, 600 * ms, 1400 * ms, 3000 * ms, 6200 * ms, 12600 * ms, 19600 * ms}, at); diff != "" {
			t.Errorf("tried at (-want +got):\n%s", diff)
		}
	})
	err := (&handtools.LeaseRenewal{Nodes: fake.NewClientset().CoreV1().Nodes(), Node: "n1", Out: &bytes.Buffer{}}).Run(t.Context())
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "there is no node n1") {
		t.Errorf("no node: %v", err)
	}
}

// The tool prints a line once when the node's own agent renews the lease too.
func TestLeaseOfTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientset(nodeWith(v1.ConditionTrue))
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		go func() {
			<-time.After(5 * time.Second)
			now := metav1.NowMicro()
			name := "n1"
			lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n1"}, Spec: coordination.LeaseSpec{HolderIdentity: &name, RenewTime: &now}}
			if _, err := c.CoordinationV1().Leases("kube-node-lease").Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
		}()
		var out bytes.Buffer
		if err := (&handtools.LeaseRenewal{Nodes: c.CoreV1().Nodes(), Leases: c.CoordinationV1().Leases(v1.NamespaceNodeLease), Node: "n1", Out: &out}).Run(ctx); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "Somebody else renews"); n != 1 {
			t.Errorf("noticed %d times, want once:\n%s", n, out.String())
		}
	})
}
