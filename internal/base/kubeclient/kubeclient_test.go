package kubeclient_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// Each method of a resource works with the fake API server of client-go.
func TestVerbs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	kube := simkube.New(simkube.Config{})
	c, err := kubeclient.New(kube.RESTConfig("t"))
	if err != nil {
		t.Fatal(err)
	}
	leases := c.Leases(v1.NamespaceNodeLease)
	w, err := leases.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	name := "n1"
	made, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Labels = map[string]string{"l": "1"}
	if _, err = leases.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if made, err = leases.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"l":"2"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(made, got); diff != "" || got.Labels["l"] != "2" || *got.Spec.HolderIdentity != name {
		t.Errorf("%s\n%s", got, diff)
	}
	list, err := leases.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil || len(list.Items) != 1 || list.ResourceVersion == "" {
		t.Errorf("%v, %v", list, err)
	}
	other := types.UID("another")
	if err := leases.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}); !apierrors.IsConflict(err) {
		t.Errorf("delete of another's UID: %v", err)
	}
	if err := leases.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := leases.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of what is gone: %v", err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Modified, watch.Deleted} {
		e := <-w.ResultChan()
		if l, ok := e.Object.(*coordinationv1.Lease); e.Type != want || !ok || l.Name != name {
			t.Errorf("the watch said %v, want %s", e, want)
		}
	}
}

// Requests whose answers are not read change objects, and have errors, as others do.
func TestUnread(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, err := kubeclient.New(simkube.New(simkube.Config{}).RESTConfig("t"))
	if err != nil {
		t.Fatal(err)
	}
	events := c.Events("default").Unread()
	ev := &v1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}, InvolvedObject: v1.ObjectReference{Namespace: "default"}, Count: 1}
	if err := events.Create(ctx, ev, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := events.Create(ctx, ev, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same event again: %v", err)
	}
	if err := events.Patch(ctx, "e", types.StrategicMergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := events.Patch(ctx, "other", types.StrategicMergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("patch of another event: %v", err)
	}
	if got, err := c.Events("default").Get(ctx, "e", metav1.GetOptions{}); err != nil || got.Count != 2 {
		t.Errorf("count %d, %v; want 2", got.Count, err)
	}
}

// Client sends the same requests as client-go's own client.
func TestSameRequests(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, strings.Join([]string{r.Method, r.URL.String(), r.Header.Get("Accept"), r.Header.Get("Content-Type"), string(body)}, " "))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTeapot)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: "Teapot", Code: http.StatusTeapot})
	}))
	t.Cleanup(server.Close)
	for _, content := range []rest.ContentConfig{{}, {ContentType: "application/json"}} {
		cfg := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: content}
		own, err := kubeclient.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		all := kubernetes.NewForConfigOrDie(cfg)
		seconds, zero := int64(7), int64(0)
		lo := metav1.ListOptions{FieldSelector: "spec.nodeName=n", ResourceVersion: "5", AllowWatchBookmarks: true, TimeoutSeconds: &seconds, SendInitialEvents: new(bool)}
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: v1.PodSpec{NodeName: "n"}}
		del := metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: metav1.NewUIDPreconditions("u")}
		token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"a"}, ExpirationSeconds: &seconds}}
		access := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "u"}}
		patch := []byte(`{"status":{}}`)
		for what, calls := range map[string][2]func() error{
			"get": {
				func() error {
					_, err := own.Pods("ns").Get(ctx, "p", metav1.GetOptions{ResourceVersion: "0"})
					return err
				},
				func() error {
					_, err := all.CoreV1().Pods("ns").Get(ctx, "p", metav1.GetOptions{ResourceVersion: "0"})
					return err
				},
			},
			"list": {
				func() error { _, err := own.Pods("").List(ctx, lo); return err },
				func() error { _, err := all.CoreV1().Pods("").List(ctx, lo); return err },
			},
			"watch": {
				func() error { _, err := own.Nodes().Watch(ctx, lo); return err },
				func() error { _, err := all.CoreV1().Nodes().Watch(ctx, lo); return err },
			},
			"create": {
				func() error { _, err := own.Pods("ns").Create(ctx, pod, metav1.CreateOptions{}); return err },
				func() error { _, err := all.CoreV1().Pods("ns").Create(ctx, pod, metav1.CreateOptions{}); return err },
			},
			"update": {
				func() error { _, err := own.Pods("ns").Update(ctx, pod, metav1.UpdateOptions{}); return err },
				func() error { _, err := all.CoreV1().Pods("ns").Update(ctx, pod, metav1.UpdateOptions{}); return err },
			},
			"patch": {
				func() error {
					_, err := own.Nodes().Patch(ctx, "n", types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "f"}, "status")
					return err
				},
				func() error {
					_, err := all.CoreV1().Nodes().Patch(ctx, "n", types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "f"}, "status")
					return err
				},
			},
			"delete": {
				func() error { return own.Pods("ns").Delete(ctx, "p", del) },
				func() error { return all.CoreV1().Pods("ns").Delete(ctx, "p", del) },
			},
			"token": {
				func() error {
					_, err := own.ServiceAccounts("ns").CreateToken(ctx, "sa", token, metav1.CreateOptions{})
					return err
				},
				func() error {
					_, err := all.CoreV1().ServiceAccounts("ns").CreateToken(ctx, "sa", token, metav1.CreateOptions{})
					return err
				},
			},
			"review": {
				func() error {
					_, err := own.SubjectAccessReviews().Create(ctx, access, metav1.CreateOptions{})
					return err
				},
				func() error {
					_, err := all.AuthorizationV1().SubjectAccessReviews().Create(ctx, access, metav1.CreateOptions{})
					return err
				},
			},
			"runtime class": {
				func() error { _, err := own.RuntimeClasses().Get(ctx, "r", metav1.GetOptions{}); return err },
				func() error { _, err := all.NodeV1().RuntimeClasses().Get(ctx, "r", metav1.GetOptions{}); return err },
			},
			"certificate request": {
				func() error {
					_, err := own.CertificateSigningRequests().Get(ctx, "r", metav1.GetOptions{})
					return err
				},
				func() error {
					_, err := all.CertificatesV1().CertificateSigningRequests().Get(ctx, "r", metav1.GetOptions{})
					return err
				},
			},
		} {
			seen = nil
			for _, call := range calls {
				if err := call(); apierrors.ReasonForError(err) != "Teapot" {
					t.Fatalf("%s: %v", what, err)
				}
			}
			if diff := cmp.Diff(seen[1:], seen[:1]); len(seen) != 2 || diff != "" {
				t.Errorf("%s (-client-go +ours):\n%s", what, diff)
			}
		}
	}
}

func TestBadLimitsAreNamed(t *testing.T) {
	t.Parallel()
	if _, err := kubeclient.New(&rest.Config{Host: "http://x", QPS: 5, Burst: -1}); err == nil || !strings.Contains(err.Error(), "burst") {
		t.Errorf("%v", err)
	}
}

// DeleteAll deletes what a label selector selects, and nothing without one.
func TestDeleteAll(t *testing.T) {
	t.Parallel()
	kube := simkube.New(simkube.Config{})
	c, err := kubeclient.New(kube.RESTConfig("t"))
	if err != nil {
		t.Fatal(err)
	}
	secrets := c.Secrets("kube-system")
	for name, labels := range map[string]map[string]string{"a": {"l": "1"}, "b": {"l": "2"}, "c": nil} {
		if _, err := secrets.Create(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const path = "/api/v1/namespaces/kube-system/secrets"
	if err := c.DeleteAll(t.Context(), path, metav1.ListOptions{FieldSelector: "type=Opaque"}); err == nil {
		t.Error("no error without a label selector")
	}
	for _, step := range []struct {
		opts metav1.ListOptions
		left int
	}{
		{metav1.ListOptions{LabelSelector: "l=1", FieldSelector: "type=other"}, 3},
		{metav1.ListOptions{LabelSelector: "l=1"}, 2},
		{metav1.ListOptions{LabelSelector: "l"}, 1},
	} {
		if err := c.DeleteAll(t.Context(), path, step.opts); err != nil {
			t.Fatal(err)
		}
		if left, err := secrets.List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != step.left {
			t.Errorf("%+v: %d are left, want %d: %v", step.opts, len(left.Items), step.left, err)
		}
	}
}
