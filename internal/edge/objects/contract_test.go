package objects_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/objects"
)

// TestAgainstARealAPIServer runs as a node (by impersonation) under the Node authorizer. Unlike a test with a fake client, it shows
// that the API server allows each of the node's requests. It also logs how long the first answers take after the pod was bound.
func TestAgainstARealAPIServer(t *testing.T) {
	path := os.Getenv("WHERRY_TEST_KUBECONFIG")
	if path == "" {
		t.Skip("needs WHERRY_TEST_KUBECONFIG: an administrator's kubeconfig of a cluster that may be written to")
	}
	admin, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	const node = "objects-contract"
	asNode := rest.CopyConfig(admin)
	asNode.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}
	asNode.QPS = -1
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := kubernetes.NewForConfigOrDie(admin)
	n, err := kubeclient.New(asNode)
	if err != nil {
		t.Fatal(err)
	}
	ns := contractNamespace(t, ctx, a, node)

	var mu sync.Mutex
	notified := map[types.UID]int{}
	o := objects.New(objects.Config{API: objects.API{
		ConfigMaps: func(ns string) objects.Reader[*v1.ConfigMap, *v1.ConfigMapList] { return n.ConfigMaps(ns) },
		Secrets:    func(ns string) objects.Reader[*v1.Secret, *v1.SecretList] { return n.Secrets(ns) },
		Services:   n.Services(""), ServiceAccounts: func(ns string) objects.ServiceAccounts { return n.ServiceAccounts(ns) },
	}, Notify: func(uid types.UID) {
		mu.Lock()
		notified[uid]++
		mu.Unlock()
	}})
	runCtx, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- o.Run(runCtx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	eventually := func(what string, f func() bool) {
		t.Helper()
		for !f() {
			select {
			case <-ctx.Done():
				t.Fatalf("never: %s", what)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}

	api := a.CoreV1().ConfigMaps(ns)
	create := func(name, value string) {
		t.Helper()
		if _, err := api.Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": value}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("a", "1")
	create("foreign", "1")
	p := contractPod(t, ctx, a, ns, node)
	o.Track(p)
	began := time.Now()
	cm, err := o.ConfigMap(ctx, ns, "a")
	if err != nil || cm.Data["k"] != "1" {
		t.Fatalf("configmap a: %v, %v", cm, err)
	}
	t.Logf("first answer after %v", time.Since(began))
	if _, err := o.ConfigMap(ctx, ns, "later"); !apierrors.IsNotFound(err) {
		t.Errorf("configmap later: %v", err)
	}
	if _, err := o.ConfigMap(ctx, ns, "foreign"); !apierrors.IsForbidden(err) {
		t.Errorf("an object that no pod of the node refers to: %v", err)
	}
	began = time.Now()
	// This is the projection that the API server's admission added to the pod. A node gets tokens only for audiences that the
	// pod's volumes name.
	var asked *v1.ServiceAccountTokenProjection
	for _, s := range p.Spec.Volumes[0].Projected.Sources {
		if s.ServiceAccountToken != nil {
			asked = s.ServiceAccountToken
		}
	}
	token, expires, err := o.ServiceAccountToken(ctx, p, asked.Audience, asked.ExpirationSeconds)
	if err != nil || strings.Count(token, ".") != 2 || time.Until(expires) < 50*time.Minute {
		t.Errorf("token: %d bytes, expires %v, %v", len(token), expires, err)
	}
	t.Logf("token after %v, due in %v, valid for %v", time.Since(began), time.Until(o.NextRenewal(p.UID)), time.Until(expires))
	if due := time.Until(o.NextRenewal(p.UID)); due > 49*time.Minute {
		t.Errorf("the token is due in %v", due)
	}

	create("later", "1")
	eventually("notified that the missing object appeared", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return notified[p.UID] > 0
	})
	cm.Data = map[string]string{"k": "2"}
	if _, err := api.Update(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: cm.Data}, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("the change is seen", func() bool {
		got, err := o.ConfigMap(ctx, ns, "a")
		return err == nil && got.Data["k"] == "2"
	})
	eventually("the services are listed", func() bool {
		all, synced := o.Services("default")
		return synced && len(all) > 0 && all[0].Name == "kubernetes"
	})
	before := runtime.NumGoroutine()
	o.Forget(p.UID)
	eventually("the watches end", func() bool { return runtime.NumGoroutine() < before })
	t.Logf("3 watched objects cost %d goroutines", before-settled())
}

// settled waits until the number of goroutines no longer changes, and returns it.
func settled() int {
	last := -1
	for n := runtime.NumGoroutine(); n != last; n = runtime.NumGoroutine() {
		last = n
		<-time.After(100 * time.Millisecond)
	}
	return last
}

func contractNamespace(t *testing.T, ctx context.Context, a kubernetes.Interface, node string) string {
	t.Helper()
	_, err := a.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	ns, err := a.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "objects-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(a.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}), a.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	return ns.Name
}

// contractPod creates a pod that is bound to the node and refers to the ConfigMaps "a" and "later".
func contractPod(t *testing.T, ctx context.Context, a kubernetes.Interface, ns, node string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: ns}, Spec: v1.PodSpec{
		NodeName: node, ServiceAccountName: "default", Containers: []v1.Container{{Name: "c", Image: "none", EnvFrom: []v1.EnvFromSource{
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "a"}}},
			{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "later"}}},
		}}}}}
	for {
		got, err := a.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{})
		if err == nil {
			return got
		}
		if !apierrors.IsForbidden(err) { // the API server answers Forbidden while the namespace has no service account yet
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
