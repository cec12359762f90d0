package main

import (
	"bytes"
	"context"
	"regexp"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/examples/labs/lab"
	"github.com/wherry-node/wherry/internal/cli/handtools"
)

// said stores the output of the lab, and ends the lab when the output says that the node is Ready.
type said struct {
	bytes.Buffer
	end context.CancelFunc
}

func (s *said) Write(b []byte) (int, error) {
	n, err := s.Buffer.Write(b)
	if bytes.Contains(s.Bytes(), []byte("Ready is True\n")) {
		s.end()
	}
	return n, err
}

// A node whose Ready condition is Unknown becomes Ready again, and its lease is renewed.
func TestLab(t *testing.T) {
	t.Parallel()
	client, _, err := lab.Client("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	given := metav1.NewTime(time.Now().Add(-time.Minute))
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "myjtthink"}}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: given}}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	out := &said{end: cancel}
	if err := run(ctx, client, &handtools.LeaseRenewal{Out: out, Node: "myjtthink", Ready: true, Interval: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^\S+Z lease of myjtthink renewed for 40s; Ready is Unknown\n(.*\n)*?\S+Z lease of myjtthink renewed for 40s; Ready is True\n`)
	if !want.Match(out.Bytes()) {
		t.Errorf("the output is:\n%s", out)
	}
	lease, err := client.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "myjtthink", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "myjtthink" || lease.Spec.RenewTime == nil || time.Since(lease.Spec.RenewTime.Time) > time.Minute {
		t.Errorf("the lease: %+v", lease.Spec)
	}
}
