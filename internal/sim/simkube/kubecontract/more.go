package kubecontract

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func mergedLists(t *testing.T, e *env) {
	e.pod(t, "a")
	e.patch(t, "a", `{"status":{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":false,"restartCount":0},{"name":"d","image":"i","imageID":"","ready":true,"restartCount":3}],"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}`, "status")
	p := e.patch(t, "a", `{"status":{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":true,"restartCount":1}],"podIP":"fd00::1","podIPs":[{"ip":"fd00::1"}]}}`, "status")
	var got []string
	for _, c := range p.Status.ContainerStatuses {
		got = append(got, fmt.Sprintf("%s %v %d", c.Name, c.Ready, c.RestartCount))
	}
	// A patch replaces a list without a merge key, here containerStatuses. In a list with a merge key, here podIPs, items that the
	// patch does not contain stay, so the old address stays.
	if d := cmp.Diff([]string{"c true 1"}, got); d != "" {
		t.Errorf("container statuses (-want +got):\n%s", d)
	}
	if len(p.Status.PodIPs) != 2 {
		t.Errorf("pod IPs %v, want both", p.Status.PodIPs)
	}
	if p = e.patch(t, "a", `{"status":{"podIP":"fd00::2"}}`, "status"); len(p.Status.PodIPs) != 1 {
		t.Errorf("pod IPs %v, want the one that is the first", p.Status.PodIPs)
	}
	e.patch(t, "a", `{"status":{"podIP":"10.0.0.1","podIPs":[{"$patch":"replace"},{"ip":"10.0.0.1"}]}}`, "status")
	_, err := e.CoreV1().Pods(e.ns).Patch(t.Context(), "a", types.StrategicMergePatchType, []byte(`{"status":{"podIP":"10.0.0.2","podIPs":[{"ip":"10.0.0.2"}]}}`), metav1.PatchOptions{}, "status")
	if !apierrors.IsInvalid(err) {
		t.Errorf("a second IPv4 address: %v, want invalid", err)
	}
}

func stalePatch(t *testing.T, e *env) {
	old := e.pod(t, "a").ResourceVersion
	e.patch(t, "a", `{"status":{"message":"x"}}`, "status")
	_, err := e.CoreV1().Pods(e.ns).Patch(t.Context(), "a", types.StrategicMergePatchType, fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"status":{"message":"y"}}`, old), metav1.PatchOptions{}, "status")
	if !apierrors.IsConflict(err) {
		t.Errorf("patch: %v, want a conflict", err)
	}
	err = e.CoreV1().Pods(e.ns).Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &old}})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete: %v, want a conflict", err)
	}
}

func notThere(t *testing.T, e *env) {
	pods := e.CoreV1().Pods(e.ns)
	_, err := pods.Patch(t.Context(), "none", types.StrategicMergePatchType, []byte(`{"status":{"message":"x"}}`), metav1.PatchOptions{}, "status")
	if !apierrors.IsNotFound(err) {
		t.Errorf("patch: %v, want not found", err)
	}
	uid := types.UID("x")
	err = pods.Delete(t.Context(), "none", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &uid}})
	if !apierrors.IsNotFound(err) {
		t.Errorf("delete: %v, want not found", err)
	}
}

func madeAgain(t *testing.T, e *env) {
	old := e.pod(t, "a")
	e.delete(t, "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	next := e.pod(t, "a")
	if next.UID == old.UID || next.Generation != 1 {
		t.Errorf("UID %s after %s, generation %d", next.UID, old.UID, next.Generation)
	}
	err := e.CoreV1().Pods(e.ns).Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &old.UID}})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete of the old one: %v, want a conflict", err)
	}
	if got := e.get(t, "a"); got.UID != next.UID || got.DeletionTimestamp != nil {
		t.Errorf("the new pod was changed: %+v", got.ObjectMeta)
	}
}

func shortestGrace(t *testing.T, e *env) {
	e.pod(t, "a")
	e.delete(t, "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
	p := e.get(t, "a")
	e.delete(t, "a", metav1.DeleteOptions{}) // the pod's own grace period, 30 s
	if again := e.get(t, "a"); *again.DeletionGracePeriodSeconds != 1 || again.ResourceVersion != p.ResourceVersion {
		t.Errorf("grace %d, version %s after %s", *again.DeletionGracePeriodSeconds, again.ResourceVersion, p.ResourceVersion)
	}
	e.pod(t, "mirror", func(p *v1.Pod) { p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} })
	e.delete(t, "mirror", metav1.DeleteOptions{})
	if m := e.get(t, "mirror"); m.DeletionTimestamp == nil || *m.DeletionGracePeriodSeconds != 30 {
		t.Errorf("a mirror is deleted at %v", m.DeletionTimestamp)
	}
}

func tokens(t *testing.T, e *env) {
	ask := func(account, pod string, seconds int64) error {
		_, err := e.CoreV1().ServiceAccounts(e.ns).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &seconds, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod, UID: "x"}}}, metav1.CreateOptions{})
		return err
	}
	if err := ask("default", "none", 3600); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `pods "none" not found`) {
		t.Errorf("for a missing pod: %v", err)
	}
	if err := ask("none", "none", 3600); !apierrors.IsNotFound(err) {
		t.Errorf("of a missing account: %v", err)
	}
	if err := ask("default", "none", 60); !apierrors.IsInvalid(err) {
		t.Errorf("for a minute: %v, want invalid", err)
	}
	if err := ask("default", "none", math.MaxInt64); !apierrors.IsInvalid(err) {
		t.Errorf("for ever: %v, want invalid", err)
	}
}

func resized(t *testing.T, e *env) {
	cpu := func(n string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(n)} }
	if _, err := e.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.node}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err) // the server accepts a resize only if the pod is on a node that has enough resources
	}
	if _, err := e.CoreV1().Nodes().PatchStatus(t.Context(), e.node, []byte(`{"status":{"allocatable":{"cpu":"10"}}}`)); err != nil {
		t.Fatal(err)
	}
	e.pod(t, "a", func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = cpu("1") })
	resize := func() (*v1.Pod, error) {
		return e.CoreV1().Pods(e.ns).Patch(t.Context(), "a", types.StrategicMergePatchType,
			[]byte(`{"spec":{"hostname":"x","containers":[{"name":"c","image":"other","resources":{"requests":{"cpu":"2"}}}]}}`), metav1.PatchOptions{}, "resize")
	}
	p, err := resize()
	for range 600 { // admission reads the node from a cache, which may be out of date
		if !apierrors.IsForbidden(err) {
			break
		}
		time.Sleep(100 * time.Millisecond)
		p, err = resize()
	}
	if err != nil {
		t.Fatal(err)
	}
	if c := p.Spec.Containers[0]; c.Resources.Requests.Cpu().String() != "2" || c.Image != "i" || p.Spec.Hostname != "" || p.Generation != 2 {
		t.Errorf("CPU %s, image %s, hostname %q, generation %d", c.Resources.Requests.Cpu(), c.Image, p.Spec.Hostname, p.Generation)
	}
	_, err = e.CoreV1().Pods(e.ns).Patch(t.Context(), "a", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"3"}}}]}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("without the subresource: %v, want invalid", err)
	}
	p = e.patch(t, "a", `{"spec":{"containers":[{"name":"c","image":"other"}]}}`, "")
	if p.Spec.Containers[0].Image != "other" || p.Generation != 3 {
		t.Errorf("image %s, generation %d", p.Spec.Containers[0].Image, p.Generation)
	}
}

func ephemeral(t *testing.T, e *env) {
	p := e.pod(t, "a")
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i"}}}
	p.Spec.Containers[0].Image = "other"
	pods := e.CoreV1().Pods(e.ns)
	got, err := pods.UpdateEphemeralContainers(t.Context(), "a", p, metav1.UpdateOptions{})
	if err != nil || len(got.Spec.EphemeralContainers) != 1 || got.Generation != 2 || got.Spec.Containers[0].Image != "i" {
		t.Fatalf("%v %+v", err, got)
	}
	if c := got.Spec.EphemeralContainers[0]; c.TerminationMessagePath != v1.TerminationMessagePathDefault || c.ImagePullPolicy != v1.PullAlways {
		t.Errorf("not defaulted: %+v", c)
	}
	got.Spec.EphemeralContainers = nil
	if _, err := pods.UpdateEphemeralContainers(t.Context(), "a", got, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("one container is removed: %v, want invalid", err)
	}
}

func watchTooOld(t *testing.T, e *env) {
	if e.compact == nil {
		t.Skip("this server cannot be told to forget")
	}
	e.pod(t, "a")
	e.compact()
	w, err := e.CoreV1().Pods(e.ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if err != nil {
		t.Fatalf("watch: %v, want it to begin", err)
	}
	defer w.Stop()
	select {
	case ev := <-w.ResultChan():
		if err := apierrors.FromObject(ev.Object); ev.Type != watch.Error || !apierrors.IsResourceExpired(err) {
			t.Errorf("%s %v, want an error: expired", ev.Type, err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("a watch from a version that is too old got no error")
	}
	if _, err := e.CoreV1().Pods(e.ns).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Errorf("list from any version: %v", err)
	}
}

func watchOne(t *testing.T, e *env) {
	maps := e.CoreV1().ConfigMaps(e.ns)
	m, err := maps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=a", ResourceVersion: m.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if _, err := maps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.Data = map[string]string{"x": "y"}
	if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"MODIFIED a", "DELETED a"}, next(t, w, 2)); d != "" {
		t.Error(d)
	}
}

func immutableSpec(t *testing.T, e *env) {
	e.pod(t, "a")
	for name, patch := range map[string]string{
		"nodeName":      `{"spec":{"nodeName":"another"}}`,
		"restartPolicy": `{"spec":{"restartPolicy":"Never"}}`,
		"command":       `{"spec":{"containers":[{"name":"c","command":["x"]}]}}`,
		"a container":   `{"spec":{"containers":[{"name":"d","image":"i"}]}}`,
	} {
		if _, err := e.CoreV1().Pods(e.ns).Patch(t.Context(), "a", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	p := e.patch(t, "a", `{"spec":{"activeDeadlineSeconds":60}}`, "")
	if p.Spec.ActiveDeadlineSeconds == nil || p.Generation != 2 {
		t.Errorf("deadline %v, generation %d", p.Spec.ActiveDeadlineSeconds, p.Generation)
	}
}

func deletedCollection(t *testing.T, e *env) {
	maps := e.CoreV1().ConfigMaps(e.ns)
	for name, color := range map[string]string{"a": "red", "b": "blue", "c": "red"} {
		if _, err := maps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"color": color}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "color=red"}); err != nil {
		t.Fatal(err)
	}
	left, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "color"})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != "b" {
		t.Errorf("left: %v, %v, want only b", left.Items, err)
	}
	bad := metav1.ListOptions{FieldSelector: "data=x"}
	if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, bad); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field: %v, want a bad request", err)
	}
}
