package kubecontract

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Case is one rule that every API server has to keep, with the test of it.
type Case struct {
	Name string
	run  func(*testing.T, *env)
}

// Cases returns the rules that a node agent relies on.
func Cases() []Case {
	return []Case{
		{"a new pod is pending, defaulted, of generation 1", newPod},
		{"a pod in a namespace that is not there is not found", noNamespace},
		{"a deletion with grace sets the time first, and grace 0 removes", gracefulDelete},
		{"a grace period only gets shorter", shorterGrace},
		{"an unbound or finished pod is removed at once", deleteAtOnce},
		{"a deletion for another UID is a conflict, a patch invalid", otherUID},
		{"a status patch changes the status alone", statusPatch},
		{"a patch that changes nothing makes no version", emptyPatch},
		{"conditions merge by type, and $patch replaces and deletes", patchDirectives},
		{"an update with an old version is a conflict", staleUpdate},
		{"managed fields that an update overwrites with one empty entry are stripped, and stay so", strippedFields},
		{"a watch from a version tells what came after it, selected by node", watchSelected},
		{"a streamed list ends with a bookmark that says so", streamedList},
		{"a list selects by field and label", listSelected},
		{"a field that cannot be selected by is a bad request", badField},
		{"a node's status is apart from its spec", nodeStatus},
		{"a token is bound to its pod", boundToken},
		{"an object with a finalizer is removed when the finalizer is gone", finalizer},
		{"a mirror pod has no service account and may not reference secrets", mirrorPod},
		{"a name that is taken already exists, and a generated one is made unique", names},
		{"lists of a status merge by their key, and those without one are replaced", mergedLists},
		{"a patch or deletion of an old version is a conflict", stalePatch},
		{"what is not there is not found, also with a precondition", notThere},
		{"a pod created again under a name has another UID, and a deletion for the old UID does not touch it", madeAgain},
		{"a deletion with a longer grace changes nothing, and a mirror has one too", shortestGrace},
		{"a token for a pod or of an account that is not there is not found", tokens},
		{"a resize changes resources alone, and nothing else does", resized},
		{"an ephemeral container is added and never taken away", ephemeral},
		{"a watch from a version that is forgotten tells that it has expired", watchTooOld},
		{"a watch of one object by its name", watchOne},
		{"a terminated container leaves this state only if its restart policy starts it again", finalEnds},
		{"the same holds for init containers, and an ephemeral container stays terminated", finalInitEnds},
		{"if a rule may restart all containers, every terminated container may leave this state", endsOfRestartAll},
		{"a status whose class, addresses, users or generations cannot be is invalid", invalidStatus},
		{"an observed generation that a status leaves out stays", generationsStay},
		{"a restart count may fall, and any phase may follow any other", unchecked},
		{"of a pod's spec only the image, the deadline and tolerations change", immutableSpec},
		{"an update with an object of another namespace is a bad request", otherNamespace},
		{"the status of a pod cannot be deleted", deletedStatus},
		{"the status of a claim is apart from its spec", claimStatus},
		{"a merge patch keeps large whole numbers", largeNumbers},
		{"a deletion of a collection removes what it selects", deletedCollection},
	}
}

// Subject is an API server to test.
type Subject struct {
	// Client is the client of an administrator.
	Client kubernetes.Interface
	// Compact makes the server forget its history of changes; nil: the server cannot.
	Compact func()
}

// Run tests the rule against a server, in a namespace of its own.
func (c Case) Run(t *testing.T, s Subject) {
	t.Helper()
	c.run(t, newEnv(t, s))
}

// env is a server to test, with a namespace for one test.
type env struct {
	kubernetes.Interface
	compact  func()
	ns, node string
}

func newEnv(t *testing.T, s Subject) *env {
	t.Helper()
	c := s.Client
	ns, err := c.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "simkube-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2400 { // controllers create the service account a moment later
		if _, err = c.CoreV1().ServiceAccounts(ns.Name).Get(t.Context(), "default", metav1.GetOptions{}); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	e := &env{c, s.Compact, ns.Name, ns.Name + "-node"}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		pods, err := c.CoreV1().Pods(e.ns).List(ctx, metav1.ListOptions{})
		if err == nil {
			for i := range pods.Items {
				_ = e.Interface.CoreV1().Pods(e.ns).Delete(ctx, pods.Items[i].Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
			}
		}
		_ = c.CoreV1().Nodes().Delete(ctx, e.node, metav1.DeleteOptions{})    // the node may be missing
		_ = c.CoreV1().Namespaces().Delete(ctx, e.ns, metav1.DeleteOptions{}) // simkube does not delete namespaces
	})
	return e
}

func (e *env) spec(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		NodeName: e.node, AutomountServiceAccountToken: new(bool), Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
		Containers: []v1.Container{{Name: "c", Image: "i", LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}}}}}}
}

func (e *env) pod(t *testing.T, name string, with ...func(*v1.Pod)) *v1.Pod {
	t.Helper()
	p := e.spec(name)
	for _, f := range with {
		f(p)
	}
	got, err := e.CoreV1().Pods(e.ns).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (e *env) get(t *testing.T, name string) *v1.Pod {
	t.Helper()
	p, err := e.CoreV1().Pods(e.ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (e *env) delete(t *testing.T, name string, o metav1.DeleteOptions) {
	t.Helper()
	if err := e.CoreV1().Pods(e.ns).Delete(t.Context(), name, o); err != nil {
		t.Fatal(err)
	}
}

func (e *env) gone(t *testing.T, name string) {
	t.Helper()
	if _, err := e.CoreV1().Pods(e.ns).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get pod %s: %v, want not found", name, err)
	}
}

func (e *env) patch(t *testing.T, name, body, sub string) *v1.Pod {
	t.Helper()
	p, err := e.CoreV1().Pods(e.ns).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, sub)
	if err != nil {
		t.Fatalf("patch: %v", err)
	}
	return p
}
