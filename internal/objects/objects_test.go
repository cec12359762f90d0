package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// world is an API server's objects, an Objects that runs on them, and what was seen of both.
type world struct {
	*Objects
	client *fake.Clientset

	mu       sync.Mutex
	requests map[string]int   // "verb resource"
	open     int              // watches
	fail     map[string]error // by "verb resource": what it answers
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

// pump passes events on until the watch ends; an event in kill is the last one.
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

// run calls f in a bubble with an Objects that runs, and checks afterwards that everything has ended.
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

// wantNotified checks which pods were told since the last call.
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

var watchOnly = Config{NoServices: true}

func TestAnObjectIsFollowed(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		ctx, api := t.Context(), w.client.CoreV1().ConfigMaps("ns")
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "1")
		w.wantNotified(t, "after the first answer, which everybody waited for", nil)

		_, _ = api.Update(ctx, cm("a", "2"), metav1.UpdateOptions{})
		w.wantValue(t, "a", "2")
		w.wantNotified(t, "after a change", map[types.UID]int{"1": 1})

		same := cm("a", "2")
		same.Labels = map[string]string{"l": "v"}
		_, _ = api.Update(ctx, same, metav1.UpdateOptions{})
		w.wantNotified(t, "after a change that no reader sees", nil)

		_, _ = api.Update(ctx, cm("b", "other"), metav1.UpdateOptions{})
		w.wantNotified(t, "after a change of another object", nil)

		_ = api.Delete(ctx, "a", metav1.DeleteOptions{})
		w.wantValue(t, "a", "not found")
		w.wantNotified(t, "after the deletion", map[types.UID]int{"1": 1})

		_, _ = api.Create(ctx, cm("a", "3"), metav1.CreateOptions{})
		w.wantValue(t, "a", "3")
		w.wantNotified(t, "after it was created again", map[types.UID]int{"1": 1})
	}, cm("a", "1"), cm("b", "1"))
}

func TestWhatIsMissingIsRemembered(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "not found")
		w.wantValue(t, "a", "not found")
		if n := w.made("list configmaps") + w.made("get configmaps"); n != 1 {
			t.Errorf("%d reads, want 1", n)
		}
		_, _ = w.client.CoreV1().ConfigMaps("ns").Create(t.Context(), cm("a", "1"), metav1.CreateOptions{})
		w.wantNotified(t, "after it appeared", map[types.UID]int{"1": 1})
		w.wantValue(t, "a", "1")
	})
}

func TestOneWatchPerObjectHoweverManyPods(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		for i := range 50 {
			w.Track(podWith(types.UID(fmt.Sprint(i)), "a"))
			w.Track(podWith(types.UID(fmt.Sprint(i)), "a"))
		}
		if n := w.openWatches(); n != 1 {
			t.Errorf("%d watches, want 1", n)
		}
		_, _ = w.client.CoreV1().ConfigMaps("ns").Update(t.Context(), cm("a", "2"), metav1.UpdateOptions{})
		want := map[types.UID]int{}
		for i := range 50 {
			want[types.UID(fmt.Sprint(i))] = 1
		}
		w.wantNotified(t, "after a change", want)
		for i := range 49 {
			w.Forget(types.UID(fmt.Sprint(i)))
		}
		if n := w.openWatches(); n != 1 {
			t.Errorf("%d watches while one pod is left, want 1", n)
		}
		w.Track(podWith("49", "b")) // refers to another object now
		w.wantValue(t, "b", "1")
		if n := w.openWatches(); n != 1 {
			t.Errorf("%d watches after the references changed, want 1", n)
		}
		ended := podWith("49", "b")
		ended.Status.Phase = v1.PodFailed
		w.Track(ended)
		if n := w.openWatches(); n != 0 {
			t.Errorf("%d watches for a pod that has failed, want 0", n)
		}
		w.Forget("49")
		w.Forget("49")
		if n := w.openWatches(); n != 0 {
			t.Errorf("%d watches after all were forgotten, want 0", n)
		}
		w.wantValue(t, "a", "2") // no pod refers to it: read from the API server
		if n := w.made("get configmaps"); n != 1 {
			t.Errorf("%d GETs, want 1", n)
		}
	}, cm("a", "1"), cm("b", "1"))
}

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("no relationship found between node and this object"))
}

// The API server's authorizer may learn of a pod later than its node does.
func TestARefusalOfTheFirstMomentsIsNoAnswer(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.setFail("list configmaps", forbidden())
		began := time.Now()
		time.AfterFunc(120*time.Millisecond, func() { w.setFail("list configmaps", nil) })
		w.Track(podWith("1", "a"))
		w.wantValueNow(t, "a", "1")
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("took %v", took)
		}
	}, cm("a", "1"))
}

func (w *world) wantValueNow(t *testing.T, name, want string) {
	t.Helper()
	if got := w.value(t, name); got != want {
		t.Errorf("configmap %s has %q, want %q", name, got, want)
	}
}

func TestAFailureThatLastsIsToldAndTriedOn(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.setFail("list configmaps", forbidden())
		w.Track(podWith("1", "a"))
		began := time.Now()
		if got := w.value(t, "a"); !strings.Contains(got, "no relationship found") {
			t.Errorf("got %q", got)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("told after %v", took)
		}
		w.wantNotified(t, "of a failure that a reader waited for", nil)
		before := w.made("list configmaps")
		time.Sleep(10 * time.Minute)
		if n := w.made("list configmaps") - before; n < 12 || n > 30 {
			t.Errorf("%d tries in 10 minutes, want one in about 30 s", n)
		}
		w.setFail("list configmaps", nil)
		time.Sleep(time.Minute)
		w.wantNotified(t, "after it could be read", map[types.UID]int{"1": 1})
		w.wantValue(t, "a", "1")
	}, cm("a", "1"))
}

func TestAnOutageKeepsWhatWasRead(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "1")
		w.setFail("watch configmaps", errors.New("connection refused"))
		w.mu.Lock()
		last := w.watches[0]
		w.mu.Unlock()
		last.Interface.Stop()
		time.Sleep(5 * time.Minute)
		w.wantValue(t, "a", "1")
		w.wantNotified(t, "during the outage", nil)
		w.setFail("watch configmaps", nil)
		time.Sleep(time.Minute)
		_, _ = w.client.CoreV1().ConfigMaps("ns").Update(t.Context(), cm("a", "2"), metav1.UpdateOptions{})
		w.wantValue(t, "a", "2")
		w.wantNotified(t, "after the outage", map[types.UID]int{"1": 1})
	}, cm("a", "1"))
}

func TestAnExpiredWatchListsAgain(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "1")
		time.Sleep(time.Minute)
		gone := apierrors.NewResourceExpired("too old resource version").Status()
		w.mu.Lock()
		last := w.watches[0]
		w.mu.Unlock()
		last.kill <- watch.Event{Type: watch.Error, Object: &gone}
		// Before the new watch begins, the object changes: only a list sees that.
		if err := w.client.Tracker().Update(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, cm("a", "2"), "ns"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.wantValue(t, "a", "2")
		if n := w.made("list configmaps"); n != 2 {
			t.Errorf("%d lists, want 2", n)
		}
		w.wantNotified(t, "after the change", map[types.UID]int{"1": 1})
	}, cm("a", "1"))
}

func TestAnImmutableObjectIsNotWatched(t *testing.T) {
	t.Parallel()
	fixed, later := cm("a", "1"), cm("b", "2")
	yes := true
	fixed.Immutable, later.Immutable = &yes, &yes
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a", "b"))
		w.wantValue(t, "a", "1")
		if n := w.openWatches(); n != 1 { // b's
			t.Errorf("%d watches, want 1", n)
		}
		_, _ = w.client.CoreV1().ConfigMaps("ns").Update(t.Context(), later, metav1.UpdateOptions{})
		w.wantValue(t, "b", "2")
		if n := w.openWatches(); n != 0 {
			t.Errorf("%d watches after b became immutable, want 0", n)
		}
	}, fixed, cm("b", "1"))
}

func TestGivingUpWaitingNamesTheObject(t *testing.T) {
	t.Parallel()
	run(t, watchOnly, func(t *testing.T, w *world) {
		w.setFail("list configmaps", errors.New("connection refused"))
		time.AfterFunc(200*time.Millisecond, func() { w.setFail("list configmaps", nil) })
		w.Track(podWith("1", "a"))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := w.ConfigMap(ctx, "ns", "a")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "configmap ns/a") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error %v", err)
		}
		time.Sleep(time.Second)
		w.wantNotified(t, "after the answer for which somebody gave up waiting", map[types.UID]int{"1": 1})
	}, cm("a", "1"))
}

func TestStrategyGet(t *testing.T) {
	t.Parallel()
	run(t, Config{NoServices: true, Strategy: StrategyGet}, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a"))
		for range 3 {
			w.wantValue(t, "a", "1")
		}
		if n := w.made("get configmaps"); n != 3 || w.openWatches() != 0 {
			t.Errorf("%d GETs, %d watches", n, w.openWatches())
		}
		w.Track(podWith("2"))
		time.Sleep(3*time.Minute + time.Second)
		w.wantNotified(t, "in 3 minutes without a watch", map[types.UID]int{"1": 3})
	}, cm("a", "1"))
}

func TestStrategyCache(t *testing.T) {
	t.Parallel()
	run(t, Config{NoServices: true, Strategy: StrategyCache}, func(t *testing.T, w *world) {
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "1")
		_, _ = w.client.CoreV1().ConfigMaps("ns").Update(t.Context(), cm("a", "2"), metav1.UpdateOptions{})
		time.Sleep(30 * time.Second)
		w.wantValue(t, "a", "1")
		time.Sleep(31 * time.Second)
		w.wantValue(t, "a", "2")
		_, _ = w.client.CoreV1().ConfigMaps("ns").Update(t.Context(), cm("a", "3"), metav1.UpdateOptions{})
		w.Track(podWith("1", "a"))
		w.wantValue(t, "a", "2")
		w.Track(podWith("2", "a")) // a new pod gets fresh objects
		w.wantValue(t, "a", "3")
		if n := w.made("get configmaps"); n != 3 || w.openWatches() != 0 {
			t.Errorf("%d GETs, %d watches", n, w.openWatches())
		}
	}, cm("a", "1"))
}

func TestMetadataIsNotKept(t *testing.T) {
	t.Parallel()
	s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "all of it again"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}, Type: v1.SecretTypeOpaque, Data: map[string][]byte{"k": []byte("v")}}
	run(t, watchOnly, func(t *testing.T, w *world) {
		p := podWith("1")
		p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}}
		w.Track(p)
		got, err := w.Secret(t.Context(), "ns", "s")
		if err != nil {
			t.Fatal(err)
		}
		if got.Annotations != nil || got.ManagedFields != nil || string(got.Data["k"]) != "v" || got.Type != v1.SecretTypeOpaque {
			t.Errorf("kept %+v", got)
		}
	}, s)
}

func TestServices(t *testing.T) {
	t.Parallel()
	svc := func(ns, name, ip string) *v1.Service {
		return &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: map[string]string{"a": "b"}},
			Spec:       v1.ServiceSpec{ClusterIP: ip, Selector: map[string]string{"x": "y"}, Ports: []v1.ServicePort{{Name: "http", Port: 80, Protocol: v1.ProtocolTCP, NodePort: 30080}}},
		}
	}
	names := func(w *world, ns string) []string {
		synctest.Wait()
		all, synced := w.Services(ns)
		got := []string{fmt.Sprint("synced ", synced)}
		for _, s := range all {
			got = append(got, s.Name)
		}
		slices.Sort(got)
		return got
	}
	run(t, Config{}, func(t *testing.T, w *world) {
		want := func(when, ns string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, names(w, ns)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		want("at first", "ns", "synced true", "web")
		want("at first", "default", "kubernetes", "synced true")
		all, _ := w.Services("ns")
		if diff := cmp.Diff(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: v1.ServiceSpec{
			ClusterIP: "10.0.0.2", Ports: []v1.ServicePort{{Name: "http", Port: 80, Protocol: v1.ProtocolTCP}}}}, all[0]); diff != "" {
			t.Errorf("kept (-want +got):\n%s", diff)
		}
		api := w.client.CoreV1().Services("ns")
		_, _ = api.Create(t.Context(), svc("ns", "db", "10.0.0.3"), metav1.CreateOptions{})
		want("after a service was made", "ns", "db", "synced true", "web")
		_, _ = api.Update(t.Context(), svc("ns", "db", "None"), metav1.UpdateOptions{})
		want("after it lost its address", "ns", "synced true", "web")
		_ = api.Delete(t.Context(), "web", metav1.DeleteOptions{})
		want("after one was deleted", "ns", "synced true")
	}, svc("default", "kubernetes", "10.0.0.1"), svc("ns", "web", "10.0.0.2"), svc("ns", "headless", "None"))
}

func TestServicesAreNotKnownBeforeTheyWereListed(t *testing.T) {
	t.Parallel()
	if _, synced := New(Config{API: apiOf(fake.NewClientset())}).Services("ns"); synced {
		t.Error("synced before Run")
	}
	if _, synced := New(Config{API: apiOf(fake.NewClientset()), NoServices: true}).Services("ns"); !synced {
		t.Error("without services there is nothing to wait for")
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	ref := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1.PodSpec{
		ImagePullSecrets: []v1.LocalObjectReference{ref("pull"), ref("")},
		Volumes: []v1.Volume{
			{VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: ref("vol")}}},
			{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "vol"}}},
			{VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref("kube-root-ca.crt")}}, {Secret: &v1.SecretProjection{LocalObjectReference: ref("proj")}}}}}},
		},
		InitContainers: []v1.Container{{EnvFrom: []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref("init")}}}}},
		Containers:     []v1.Container{{Env: []v1.EnvVar{{ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: ref("vol")}}}}}},
	}}
	want := []key{
		{configMap, "ns", "init"}, {configMap, "ns", "kube-root-ca.crt"}, {configMap, "ns", "vol"},
		{secret, "ns", "proj"}, {secret, "ns", "pull"}, {secret, "ns", "vol"},
	}
	if diff := cmp.Diff(want, references(p), cmp.AllowUnexported(key{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRunTwice(t *testing.T) {
	t.Parallel()
	o := New(Config{API: apiOf(fake.NewClientset()), NoServices: true})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := o.Run(ctx); err == nil {
		t.Error("a second Run was let in")
	}
	o.Track(podWith("1", "a")) // after the end: starts nothing
}

// apiOf is the API as the field's own typed clients have it.
func apiOf(c kubernetes.Interface) API {
	return API{
		ConfigMaps: func(namespace string) Reader[*v1.ConfigMap, *v1.ConfigMapList] {
			return c.CoreV1().ConfigMaps(namespace)
		},
		Secrets:         func(namespace string) Reader[*v1.Secret, *v1.SecretList] { return c.CoreV1().Secrets(namespace) },
		ServiceAccounts: func(namespace string) ServiceAccounts { return c.CoreV1().ServiceAccounts(namespace) },
		Services:        c.CoreV1().Services(metav1.NamespaceAll),
	}
}
