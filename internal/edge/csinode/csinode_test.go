package csinode_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/csinode"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

func newObject(t *testing.T) (*simkube.Kube, *csinode.Object, *kubeclient.Client) {
	t.Helper()
	k := simkube.New(simkube.Config{})
	c, err := kubeclient.New(k.RESTConfig("test"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return k, csinode.New(csinode.Config{API: c.CSINodes(), Nodes: c.Nodes(), NodeName: "n"}), c
}

// text prints the object and the Node's labels.
func text(t *testing.T, c *kubeclient.Client) string {
	t.Helper()
	o, err := c.CSINodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := c.Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, d := range o.Spec.Drivers {
		count := "any"
		if d.Allocatable != nil {
			count = fmt.Sprint(*d.Allocatable.Count)
		}
		fmt.Fprintf(&b, "%s=%s %v %s; ", d.Name, d.NodeID, d.TopologyKeys, count)
	}
	owner := o.OwnerReferences[0]
	fmt.Fprintf(&b, "owner %s %v; %v %s", owner.Kind, owner.UID == node.UID, node.Labels, node.Annotations["csi.volume.kubernetes.io/nodeid"])
	return b.String()
}

func TestPutAndRemove(t *testing.T) {
	t.Parallel()
	k, o, c := newObject(t)
	a := csinode.Driver{Name: "a", NodeID: "1", MaxVolumes: 25, Topology: map[string]string{"zone": "x", "rack": "y"}}
	for range 2 {
		if err := o.Put(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if n := k.Count("create csinodes") + k.Count("update csinodes") + k.Count("patch nodes"); n != 2 {
		t.Errorf("%d writes, want one for the object and one for the Node: %v", n, k.Counts())
	}
	if got, want := text(t, c), `a=1 [rack zone] 25; owner Node true; map[rack:y zone:x] {"a":"1"}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := o.Put(t.Context(), csinode.Driver{Name: "b", NodeID: "2"}); err != nil {
		t.Fatal(err)
	}
	if err := o.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, c), `b=2 [] any; owner Node true; map[rack:y zone:x] {"a":"1","b":"2"}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	a.Topology["zone"] = "z"
	if err := o.Put(t.Context(), a); err == nil || !strings.Contains(err.Error(), "label zone=z of driver a: the Node has another value") {
		t.Errorf("a driver that moves the node: %v", err)
	}
}

// The removal of a driver from a CSINode that does not exist changes nothing.
func TestRemoveWithoutAnObject(t *testing.T) {
	t.Parallel()
	k, o, _ := newObject(t)
	if err := o.Remove(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if n := k.Count("create csinodes"); n != 0 {
		t.Errorf("%d objects were created", n)
	}
}

// Drivers that register at the same time, also from two agents, are all in the CSINode afterwards.
func TestPutTogether(t *testing.T) {
	t.Parallel()
	_, o, c := newObject(t)
	other := csinode.New(csinode.Config{API: c.CSINodes(), Nodes: c.Nodes(), NodeName: "n"})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for _, obj := range []*csinode.Object{o, other} {
				if err := obj.Put(context.Background(), csinode.Driver{Name: fmt.Sprint("d", i), NodeID: "1"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := text(t, c); !strings.HasPrefix(got, "d0=1 [] any; d1=1 [] any; d2=1 [] any; d3=1 [] any; owner") {
		t.Error(got)
	}
}
