package status

import (
	"context"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestAgainstAPIServer writes one pod's statuses to the API server of WHERRY_TEST_KUBECONFIG. It checks that the fake
// of the other tests behaves like a real server.
func TestAgainstAPIServer(t *testing.T) {
	kubeconfig := os.Getenv("WHERRY_TEST_KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("WHERRY_TEST_KUBECONFIG does not name a kubeconfig")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	synced := make(chan time.Duration, 10)
	w := New(Config{Pods: func(namespace string) Pods { return client.CoreV1().Pods(namespace) }, Synced: func(d time.Duration) { synced <- d }})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	over := func(uid types.UID) {
		t.Helper()
		for !w.hasEnded(uid) {
			select {
			case <-ctx.Done():
				t.Fatal("the writer never considered the pod as ended")
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	pods := client.CoreV1().Pods("default")
	create := func() *v1.Pod {
		t.Helper()
		p, err := pods.Create(ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "status-test"},
			Spec: v1.PodSpec{NodeName: "nowhere", AutomountServiceAccountToken: new(bool),
				Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
				Containers:  []v1.Container{{Name: "c", Image: "i"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := create()
	s := running("True", "up")
	s.PodIP, s.PodIPs, s.HostIP, s.HostIPs = "10.0.0.1", []v1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}, "1.1.1.1", []v1.HostIP{{IP: "1.1.1.1"}}
	w.Set(Desired{Pod: p, Status: s})
	<-synced
	s = *s.DeepCopy()
	s.PodIP, s.PodIPs, s.Message = "10.0.0.2", []v1.PodIP{{IP: "10.0.0.2"}}, ""
	w.Set(Desired{Pod: p, Status: s})
	<-synced
	got, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if differs(&got.Status, &s) || len(got.Status.PodIPs) != 1 || got.Status.Message != "" {
		t.Errorf("the API says %+v", got.Status)
	}
	// A user deletes the pod: it gets a deletion timestamp, then the final status, and is gone.
	if err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err = pods.Get(ctx, p.Name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Set(Desired{Pod: got, Status: v1.PodStatus{Phase: v1.PodSucceeded}, Final: true})
	over(p.UID)
	if _, err := pods.Get(ctx, p.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the deletion: %v", err)
	}
	// A writer that still has the first pod does not change a later pod of the same name.
	w.Forget(p.UID)
	next := create()
	w.Set(Desired{Pod: p, Status: running("True", "stale")})
	over(p.UID)
	if got, err = pods.Get(ctx, p.Name, metav1.GetOptions{}); err != nil || got.UID != next.UID || got.Status.Phase != v1.PodPending {
		t.Errorf("the successor: %v %v", got.Status, err)
	}
	zero := int64(0)
	if err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
