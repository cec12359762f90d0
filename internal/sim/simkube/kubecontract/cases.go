package kubecontract

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func newPod(t *testing.T, e *env) {
	p := e.pod(t, "a")
	probe := p.Spec.Containers[0].LivenessProbe
	got := fmt.Sprintln(p.Status.Phase, p.Status.QOSClass, p.Generation, p.Spec.RestartPolicy, *p.Spec.TerminationGracePeriodSeconds, p.Spec.DNSPolicy,
		p.Spec.ServiceAccountName, p.Spec.Containers[0].ImagePullPolicy, p.Spec.Containers[0].TerminationMessagePath,
		probe.TimeoutSeconds, probe.PeriodSeconds, probe.SuccessThreshold, probe.FailureThreshold, *p.Spec.EnableServiceLinks)
	if want := "Pending BestEffort 1 Always 30 ClusterFirst default Always /dev/termination-log 1 10 1 3 true\n"; got != want {
		t.Error(cmp.Diff(want, got))
	}
	if p.UID == "" || p.ResourceVersion == "" || p.CreationTimestamp.IsZero() {
		t.Errorf("metadata %+v lacks fields that the server sets", p.ObjectMeta)
	}
}

func noNamespace(t *testing.T, e *env) {
	_, err := e.CoreV1().Pods(e.ns+"-not").Create(t.Context(), e.spec("a"), metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("err %v, want not found", err)
	}
}

func gracefulDelete(t *testing.T, e *env) {
	e.pod(t, "a")
	before := time.Now()
	e.delete(t, "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(20))})
	after := time.Now()
	p := e.get(t, "a")
	if p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 20 || p.Generation != 2 {
		t.Fatalf("deletion %v, grace %v, generation %d; want set, 20, 2", p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Generation)
	}
	if at := p.DeletionTimestamp.Time; at.Before(before.Add(18*time.Second)) || at.After(after.Add(22*time.Second)) {
		t.Errorf("the deletion timestamp is %s, asked for between %s and %s, want 20 s after", at, before, after)
	}
	e.delete(t, "a", metav1.DeleteOptions{}) // must not change the grace period
	if again := e.get(t, "a"); again.ResourceVersion != p.ResourceVersion {
		t.Errorf("a second deletion changed the pod")
	}
	e.delete(t, "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	e.gone(t, "a")
}

func shorterGrace(t *testing.T, e *env) {
	e.pod(t, "a")
	e.delete(t, "a", metav1.DeleteOptions{})
	first := e.get(t, "a")
	e.delete(t, "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(60))})
	if got := *e.get(t, "a").DeletionGracePeriodSeconds; got != 30 {
		t.Errorf("grace %d after a longer one was asked for, want 30", got)
	}
	e.delete(t, "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(5))})
	p := e.get(t, "a")
	if d := first.DeletionTimestamp.Sub(p.DeletionTimestamp.Time); *p.DeletionGracePeriodSeconds != 5 || d != 25*time.Second {
		t.Errorf("grace %d, time earlier by %s; want 5 and 25 s", *p.DeletionGracePeriodSeconds, d)
	}
}

func deleteAtOnce(t *testing.T, e *env) {
	e.pod(t, "unbound", func(p *v1.Pod) { p.Spec.NodeName, p.Spec.SchedulerName = "", "nobody" })
	e.delete(t, "unbound", metav1.DeleteOptions{})
	e.gone(t, "unbound")
	e.pod(t, "finished")
	e.patch(t, "finished", `{"status":{"phase":"Succeeded"}}`, "status")
	e.delete(t, "finished", metav1.DeleteOptions{})
	e.gone(t, "finished")
}

func otherUID(t *testing.T, e *env) {
	e.pod(t, "a")
	err := e.CoreV1().Pods(e.ns).Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "the UID in the precondition (other) does not match") {
		t.Errorf("delete: %v", err)
	}
	_, err = e.CoreV1().Pods(e.ns).Patch(t.Context(), "a", types.StrategicMergePatchType, []byte(`{"metadata":{"uid":"other"},"status":{"message":"x"}}`), metav1.PatchOptions{}, "status")
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.uid") {
		t.Errorf("patch: %v", err)
	}
	other := e.get(t, "a").DeepCopy()
	other.UID = "other"
	if _, err = e.CoreV1().Pods(e.ns).Update(t.Context(), other, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update: %v", err)
	}
}

func statusPatch(t *testing.T, e *env) {
	p := e.pod(t, "a")
	got := e.patch(t, "a", fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"hostname":"changed"},"status":{"message":"x"}}`, p.UID), "status")
	if got.Status.Message != "x" || got.Spec.Hostname != "" || got.Generation != 1 || got.ResourceVersion == p.ResourceVersion {
		t.Errorf("message %q hostname %q generation %d version %s", got.Status.Message, got.Spec.Hostname, got.Generation, got.ResourceVersion)
	}
	got = e.patch(t, "a", `{"metadata":{"labels":{"a":"b"}},"status":{"message":"y"}}`, "")
	if got.Status.Message != "x" || got.Labels["a"] != "b" {
		t.Errorf("message %q labels %v", got.Status.Message, got.Labels)
	}
}

func emptyPatch(t *testing.T, e *env) {
	p := e.pod(t, "a")
	if got := e.patch(t, "a", `{"status":{"phase":"Pending"}}`, "status"); got.ResourceVersion != p.ResourceVersion {
		t.Errorf("version %s became %s", p.ResourceVersion, got.ResourceVersion)
	}
}

func patchDirectives(t *testing.T, e *env) {
	e.pod(t, "a")
	e.patch(t, "a", `{"status":{"conditions":[{"type":"A","status":"True"},{"type":"B","status":"True"}],"podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"},{"ip":"fd00::1"}]}}`, "status")
	p := e.patch(t, "a", `{"status":{"conditions":[{"type":"A","status":"False"},{"$patch":"delete","type":"B"},{"type":"C","status":"True"}],"podIPs":[{"$patch":"replace"},{"ip":"10.0.0.1"}]}}`, "status")
	got := map[string]string{}
	for _, c := range p.Status.Conditions {
		got[string(c.Type)] = string(c.Status)
	}
	if d := cmp.Diff(map[string]string{"A": "False", "C": "True"}, got); d != "" {
		t.Error(d)
	}
	if len(p.Status.PodIPs) != 1 {
		t.Errorf("pod IPs %v, want one", p.Status.PodIPs)
	}
}

func staleUpdate(t *testing.T, e *env) {
	leases := e.CoordinationV1().Leases(e.ns)
	l, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stale := l.DeepCopy()
	l.Spec.HolderIdentity = new("me")
	if l, err = leases.Update(t.Context(), l, metav1.UpdateOptions{}); err != nil || *l.Spec.HolderIdentity != "me" {
		t.Fatal(l, err)
	}
	if _, err := leases.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("err %v, want a conflict", err)
	}
}

func strippedFields(t *testing.T, e *env) {
	leases := e.CoordinationV1().Leases(e.ns)
	l, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	for _, holder := range []string{"me", "you"} {
		l.Spec.HolderIdentity = new(holder)
		if l, err = leases.Update(t.Context(), l, metav1.UpdateOptions{}); err != nil || *l.Spec.HolderIdentity != holder || len(l.ManagedFields) != 0 {
			t.Fatalf("holder %q: %v, managed fields %v", holder, err, l.ManagedFields)
		}
	}
}

// next reads n events of a watch as "TYPE name".
func next(t *testing.T, w watch.Interface, n int) []string {
	t.Helper()
	var out []string
	for len(out) < n {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended after %q", out)
			}
			if m, ok := e.Object.(metav1.Object); ok && (e.Type != watch.Bookmark || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "") {
				out = append(out, strings.TrimSpace(string(e.Type)+" "+m.GetName()))
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("no more events after %q", out)
		}
	}
	return out
}

func watchSelected(t *testing.T, e *env) {
	p := e.pod(t, "before")
	w, err := e.CoreV1().Pods(e.ns).Watch(t.Context(), metav1.ListOptions{ResourceVersion: p.ResourceVersion, FieldSelector: "spec.nodeName=" + e.node})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	e.pod(t, "elsewhere", func(p *v1.Pod) { p.Spec.NodeName = e.node + "-other" })
	e.pod(t, "a")
	e.delete(t, "a", metav1.DeleteOptions{})
	e.delete(t, "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if d := cmp.Diff([]string{"ADDED a", "MODIFIED a", "MODIFIED a", "DELETED a"}, next(t, w, 4)); d != "" {
		t.Error(d)
	}
	e.pod(t, "b")
	e.delete(t, "b", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if d := cmp.Diff([]string{"ADDED b", "MODIFIED b", "DELETED b"}, next(t, w, 3)); d != "" {
		t.Error(d)
	}
}

func streamedList(t *testing.T, e *env) {
	e.pod(t, "a")
	w, err := e.CoreV1().Pods(e.ns).Watch(t.Context(), metav1.ListOptions{SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	got := next(t, w, 2)
	e.pod(t, "b")
	if d := cmp.Diff([]string{"ADDED a", "BOOKMARK", "ADDED b"}, append(got, next(t, w, 1)...)); d != "" {
		t.Error(d)
	}
}

func listSelected(t *testing.T, e *env) {
	e.pod(t, "a", func(p *v1.Pod) { p.Labels = map[string]string{"x": "y"} })
	e.pod(t, "b")
	e.pod(t, "c", func(p *v1.Pod) { p.Spec.NodeName, p.Spec.SchedulerName = "", "nobody" })
	for _, c := range []struct {
		fields, labels string
		want           []string
	}{
		{want: []string{"a", "b", "c"}},
		{fields: "spec.nodeName=" + e.node, want: []string{"a", "b"}},
		{labels: "x=y", want: []string{"a"}},
		{fields: "metadata.name!=a", labels: "x notin (y)", want: []string{"b", "c"}},
	} {
		list, err := e.CoreV1().Pods(e.ns).List(t.Context(), metav1.ListOptions{FieldSelector: c.fields, LabelSelector: c.labels})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range list.Items {
			got = append(got, list.Items[i].Name)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("fields %q labels %q: %s", c.fields, c.labels, d)
		}
	}
}

func badField(t *testing.T, e *env) {
	_, err := e.CoreV1().Pods(e.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.hostname=x"})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("err %v, want a bad request", err)
	}
}

func nodeStatus(t *testing.T, e *env) {
	nodes := e.CoreV1().Nodes()
	if _, err := nodes.Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.node}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n, err := nodes.PatchStatus(t.Context(), e.node, []byte(`{"spec":{"unschedulable":true},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`))
	if err != nil || n.Spec.Unschedulable || len(n.Status.Conditions) != 1 {
		t.Errorf("unschedulable %v, conditions %v, err %v", n.Spec.Unschedulable, n.Status.Conditions, err)
	}
	n, err = nodes.Patch(t.Context(), e.node, types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true},"status":{"conditions":[{"type":"Other","status":"True"}]}}`), metav1.PatchOptions{})
	if err != nil || !n.Spec.Unschedulable || len(n.Status.Conditions) != 1 {
		t.Errorf("unschedulable %v, conditions %v, err %v", n.Spec.Unschedulable, n.Status.Conditions, err)
	}
}

func boundToken(t *testing.T, e *env) {
	p := e.pod(t, "a")
	ask := func(uid types.UID) (*authenticationv1.TokenRequest, error) {
		return e.CoreV1().ServiceAccounts(e.ns).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: new(int64(3607)), BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "a", UID: uid}}}, metav1.CreateOptions{})
	}
	tr, err := ask(p.UID)
	if err != nil || tr.Status.Token == "" || time.Until(tr.Status.ExpirationTimestamp.Time) < 50*time.Minute {
		t.Errorf("token %v, err %v", tr.Status, err)
	}
	if _, err := ask("other"); !apierrors.IsConflict(err) {
		t.Errorf("for another UID: %v, want a conflict", err)
	}
}

func finalizer(t *testing.T, e *env) {
	e.pod(t, "a", func(p *v1.Pod) { p.Finalizers = []string{"example.com/x"} })
	e.delete(t, "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if p := e.get(t, "a"); p.DeletionTimestamp == nil {
		t.Error("the deletion did not begin")
	}
	e.patch(t, "a", `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/x"]}}`, "")
	e.gone(t, "a")
}

func names(t *testing.T, e *env) {
	e.pod(t, "a")
	if _, err := e.CoreV1().Pods(e.ns).Create(t.Context(), e.spec("a"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("err %v, want already exists", err)
	}
	p := e.pod(t, "", func(p *v1.Pod) { p.GenerateName = "x-" })
	if !strings.HasPrefix(p.Name, "x-") || len(p.Name) < 6 {
		t.Errorf("generated name %q", p.Name)
	}
}

func mirrorPod(t *testing.T, e *env) {
	mirror := func(p *v1.Pod) { p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "x"} }
	if p := e.pod(t, "a", mirror); p.Spec.ServiceAccountName != "" || len(p.Spec.Volumes) != 0 {
		t.Errorf("service account %q, volumes %v", p.Spec.ServiceAccountName, p.Spec.Volumes)
	}
	for name, with := range map[string]func(*v1.Pod){
		"account": func(p *v1.Pod) { p.Spec.ServiceAccountName = "default" },
		"volume": func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}}}
		},
		"pull": func(p *v1.Pod) { p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}} },
		"env": func(p *v1.Pod) {
			p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}}}
		},
	} {
		p := e.spec(name)
		mirror(p)
		with(p)
		if _, err := e.CoreV1().Pods(e.ns).Create(t.Context(), p, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a mirror with %s: %v, want forbidden", name, err)
		}
	}
}
