package objects

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// world is a fake API server with an Objects that reads from it. It records the requests to the API server and the calls of Notify.
type world struct {
	*Objects
	client *fake.Clientset

	mu       sync.Mutex
	requests map[string]int   // number of requests, by "verb resource"
	open     int              // number of open watches
	fail     map[string]error // errors of requests, by "verb resource"
	watches  []*countedWatch
	notified map[types.UID]int
}

type countedWatch struct {
	watch.Interface
	w    *world
	once sync.Once
	kill chan watch.Event
	out  chan watch.Event
}

func (c *countedWatch) ResultChan() <-chan watch.Event { return c.out }

func (c *countedWatch) Stop() {
	c.once.Do(func() {
		c.w.mu.Lock()
		c.w.open--
		c.w.mu.Unlock()
		c.Interface.Stop()
		close(c.kill)
	})
}

// pump passes events of the watch on until the watch ends. A value from the channel kill ends the watch.
func (c *countedWatch) pump() {
	defer close(c.out)
	for {
		select {
		case e, ok := <-c.Interface.ResultChan():
			if !ok {
				return
			}
			select {
			case c.out <- e:
			case <-c.kill:
				return
			}
		case e, ok := <-c.kill:
			if ok {
				c.out <- e
			}
			return
		}
	}
}

// run calls f in a synctest bubble with a running Objects, and checks afterwards that every goroutine and watch has ended.
func run(t *testing.T, cfg Config, f func(t *testing.T, w *world), objects ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{client: fake.NewClientset(objects...), requests: map[string]int{}, fail: map[string]error{}, notified: map[types.UID]int{}}
		w.client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			err := w.count(a)
			return err != nil, nil, err
		})
		w.client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
			if err := w.count(a); err != nil {
				return true, nil, err
			}
			inner, err := w.client.Tracker().Watch(a.GetResource(), a.GetNamespace())
			if err != nil {
				return true, nil, err
			}
			c := &countedWatch{Interface: inner, w: w, kill: make(chan watch.Event), out: make(chan watch.Event)}
			go c.pump()
			w.mu.Lock()
			w.open++
			w.watches = append(w.watches, c)
			w.mu.Unlock()
			return true, c, nil
		})
		cfg.API = apiOf(w.client)
		cfg.Notify = func(uid types.UID) {
			w.mu.Lock()
			w.notified[uid]++
			w.mu.Unlock()
		}
		w.Objects = New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		f(t, w)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open != 0 {
			t.Errorf("%d watches open after Run", w.open)
		}
	})
}

func (w *world) count(a clienttesting.Action) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	what := a.GetVerb() + " " + a.GetResource().Resource
	w.requests[what]++
	return w.fail[what]
}

func (w *world) setFail(what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail[what] = err
}

func (w *world) made(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests[what]
}

func (w *world) openWatches() int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

// notifications returns how often a pod was notified.
func (w *world) notifications(uid types.UID) int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.notified[uid]
}

// wantNotified checks which pods were notified since the last call.
func (w *world) wantNotified(t *testing.T, when string, want map[types.UID]int) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if want == nil {
		want = map[types.UID]int{}
	}
	if diff := cmp.Diff(want, w.notified); diff != "" {
		t.Errorf("notified %s (-want +got):\n%s", when, diff)
	}
	w.notified = map[types.UID]int{}
}

func podWith(uid types.UID, configMaps ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-" + string(uid), UID: uid}}
	for _, name := range configMaps {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}}}})
	}
	return p
}

func cm(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"k": value}}
}

func (w *world) value(t *testing.T, name string) string {
	t.Helper()
	got, err := w.ConfigMap(t.Context(), "ns", name)
	if apierrors.IsNotFound(err) {
		return "not found"
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return got.Data["k"]
}

func (w *world) wantValue(t *testing.T, name, want string) {
	t.Helper()
	synctest.Wait()
	if got := w.value(t, name); got != want {
		t.Errorf("configmap %s has %q, want %q", name, got, want)
	}
}

func (w *world) wantValueNow(t *testing.T, name, want string) {
	t.Helper()
	if got := w.value(t, name); got != want {
		t.Errorf("configmap %s has %q, want %q", name, got, want)
	}
}

var watchOnly = Config{NoServices: true}

// apiOf returns an API (the part of the API server that Objects reads) that calls client-go's typed clients.
func apiOf(c kubernetes.Interface) API {
	return API{
		ConfigMaps: func(namespace string) Reader[*v1.ConfigMap, *v1.ConfigMapList] {
			return c.CoreV1().ConfigMaps(namespace)
		},
		Secrets:         func(namespace string) Reader[*v1.Secret, *v1.SecretList] { return c.CoreV1().Secrets(namespace) },
		ServiceAccounts: func(namespace string) ServiceAccounts { return c.CoreV1().ServiceAccounts(namespace) },
		Services:        c.CoreV1().Services(metav1.NamespaceAll),

		ClusterTrustBundles: c.CertificatesV1beta1().ClusterTrustBundles(),
		CertificateRequests: func(namespace string) CertificateRequests {
			return c.CertificatesV1beta1().PodCertificateRequests(namespace)
		},
	}
}
