package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// slowServer is an API server that is slow, or refuses deletions, from the end of the fleet on.
type slowServer struct {
	next  http.RoundTripper
	list  time.Duration // how long a list of the Nodes takes
	fails bool
	ends  atomic.Bool
}

func (s *slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	wait := time.Duration(0)
	switch {
	case !s.ends.Load():
	case r.Method == http.MethodDelete && s.fails:
		return nil, errors.New("no deletions today")
	case r.Method == http.MethodDelete:
		wait = 100 * time.Millisecond
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/nodes":
		wait = s.list
	}
	select {
	case <-time.After(wait):
		return s.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// endWithPods runs a fleet without nodes that has left 2000 pods, and ends it. look is called every second while it ends.
func endWithPods(t *testing.T, s *slowServer, look func(f *fleet.Fleet)) (left int, err error) {
	t.Helper()
	kube := simkube.New(simkube.Config{})
	client := kube.RESTConfig("fleet")
	s.next = client.Transport
	client.Transport = s
	admin, err := kubernetes.NewForConfig(kube.RESTConfig("test"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: map[string]string{fleet.LabelFleet: "f"}},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}},
		}
		if _, err := admin.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := fleet.New(fleet.Config{Name: "f", Client: client, Groups: []fleet.Group{{Count: 0}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	time.Sleep(time.Second)
	s.ends.Store(true)
	cancel()
	for {
		select {
		case err := <-ended:
			pods, listErr := admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
			if listErr != nil {
				t.Fatal(listErr)
			}
			return len(pods.Items), err
		case <-time.After(time.Second):
			look(f)
		}
	}
}

// The time for the removal of a fleet from the cluster grows with the number of its objects: here it takes longer than 5 minutes. It shows its progress.
func TestRemovalTakesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, under := time.Now(), 0
		left, err := endWithPods(t, &slowServer{list: 290 * time.Second}, func(f *fleet.Fleet) {
			if done, found := f.Removal(); found.Pods == 2000 && done.Pods > 0 && done.Pods < 2000 {
				under++
			}
		})
		if took := time.Since(began); err != nil || left != 0 || took < 301*time.Second {
			t.Errorf("after %s: %d pods are left, %v", took, left, err)
		}
		if under < 5 {
			t.Errorf("the progress of the removal was seen %d times", under)
		}
	})
}

// A removal that fails says how many objects are left, why the first ones are, and how to remove them. That is also so if the time is over.
func TestRemovalThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		left, err := endWithPods(t, &slowServer{fails: true}, func(*fleet.Fleet) {})
		if err == nil || left != 2000 {
			t.Fatalf("%d pods are left, %v", left, err)
		}
		text := err.Error()
		for _, want := range []string{"2000 objects of the fleet could not be removed: pod default/p", "; and so on\n", "wherry fleet clean --name f"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %s", want, text)
			}
		}
		if n := strings.Count(text, "no deletions today"); n != 3 {
			t.Errorf("%d errors in %s", n, text)
		}
		if _, err := endWithPods(t, &slowServer{list: time.Hour}, func(*fleet.Fleet) {}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "wherry fleet clean") {
			t.Errorf("a server that does not answer: %v", err)
		}
	})
}
