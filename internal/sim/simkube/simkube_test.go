package simkube

import (
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/wherry-node/wherry/internal/sim/simkube/kubecontract"
)

// follow runs a reflector of all pods and returns its store.
func follow(t *testing.T, c kubernetes.Interface) cache.Store {
	t.Helper()
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	lw := cache.NewListWatchFromClient(c.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.Everything())
	go cache.NewReflectorWithOptions(lw, &v1.Pod{}, store, cache.ReflectorOptions{Name: "test"}).RunWithContext(t.Context())
	return store
}

// A reflector of client-go keeps its store correct during an outage, after cut watches and a compacted history, and with
// servers that do not stream lists.
func TestReflectorFollows(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{"streamed": {}, "listed": {NoStreamedLists: true}, "slow": {Latency: 50 * time.Millisecond, WatchLatency: 200 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := New(cfg)
				c, err := kubernetes.NewForConfig(k.RESTConfig("test"))
				if err != nil {
					t.Fatal(err)
				}
				store := follow(t, c)
				e := &env{c, "default", "n"}
				want, made := 0, 0
				see := func(what string, wait time.Duration) {
					t.Helper()
					e.pod(t, "p"+string(rune('a'+made)))
					want++
					made++
					time.Sleep(wait)
					synctest.Wait()
					if got := len(store.List()); got != want {
						t.Errorf("%s: the store has %d pods, want %d", what, got, want)
					}
				}
				see("first", 2*time.Second)
				see("second", 2*time.Second)
				time.Sleep(30 * time.Minute) // watches end and begin again
				see("after half an hour", 2*time.Second)
				k.CutWatches()
				see("after a cut", 2*time.Minute)
				k.SetOutage(true)
				time.Sleep(time.Hour)
				k.SetOutage(false)
				k.Compact()
				see("after an outage and a compaction", 2*time.Minute)
				e.delete(t, "pa", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
				want--
				see("after a deletion", 2*time.Second)
			})
		})
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen atomic.Int32
		k := New(Config{OnRequest: func(Request) { seen.Add(1) }})
		c, err := kubernetes.NewForConfig(k.RESTConfig("test"))
		if err != nil {
			t.Fatal(err)
		}
		e := &env{c, "default", "n"}
		create := func(name string) error {
			_, err := c.CoreV1().Pods("default").Create(t.Context(), e.spec(name), metav1.CreateOptions{})
			return err
		}
		k.Inject(Fault{Verb: "create", Resource: "pods", Effect: Refuse, Err: apierrors.NewForbidden(k.kinds["v1/pods"].gr(), "a", nil), Times: 1})
		if err := create("a"); !apierrors.IsForbidden(err) {
			t.Errorf("refused: %v", err)
		}
		k.Inject(Fault{Verb: "create", Effect: Lost, Times: 1})
		if err := create("a"); err == nil || k.Pod("default", "a") == nil {
			t.Errorf("lost: err %v, pod %v; want an error and a pod", err, k.Pod("default", "a"))
		}
		k.Inject(Fault{Verb: "create", Effect: Break, Times: 1})
		if err := create("b"); err == nil || k.Pod("default", "b") != nil {
			t.Errorf("broken: err %v, pod %v; want an error and no pod", err, k.Pod("default", "b"))
		}
		k.Inject(Fault{Name: "a", Effect: Slow, Delay: time.Minute, Times: 1})
		began := time.Now()
		e.get(t, "a")
		if took := time.Since(began); took != time.Minute {
			t.Errorf("slow: took %s", took)
		}
		k.SetOutage(true)
		if err := create("c"); err == nil {
			t.Error("outage: no error")
		}
		if k.Count("create pods") != 4 || k.Count("get pods") != 1 || seen.Load() != 5 {
			t.Errorf("counted %d creates, %d gets, %d in all", k.Count("create pods"), k.Count("get pods"), seen.Load())
		}
	})
}

// The case of package kubecontract about a watch from a version, which a real API server passes, also passes with simkube over a socket.
func TestServesHTTP(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(New(Config{}))
	defer srv.Close()
	c, err := kubernetes.NewForConfig(&rest.Config{Host: srv.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, sentence := range kubecontract.Cases() {
		if strings.Contains(sentence.Name, "watch from a version") {
			sentence.Run(t, kubecontract.Subject{Client: c})
			return
		}
	}
	t.Error("the contract says nothing of watches")
}

// env is a server with the pods of a test.
type env struct {
	kubernetes.Interface
	ns, node string
}

func (e *env) spec(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{NodeName: e.node, Containers: []v1.Container{{Name: "c", Image: "i"}}}}
}

func (e *env) pod(t *testing.T, name string) {
	t.Helper()
	if _, err := e.CoreV1().Pods(e.ns).Create(t.Context(), e.spec(name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (e *env) get(t *testing.T, name string) {
	t.Helper()
	if _, err := e.CoreV1().Pods(e.ns).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (e *env) delete(t *testing.T, name string, o metav1.DeleteOptions) {
	t.Helper()
	if err := e.CoreV1().Pods(e.ns).Delete(t.Context(), name, o); err != nil {
		t.Fatal(err)
	}
}
