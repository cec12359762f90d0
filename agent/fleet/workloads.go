package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent/simulated"
)

// LabelWorkload is the label by which a replayed workload finds its pods. Its value is made of the workload's kind and name.
const LabelWorkload = "wherry.dev/fleet-workload"

// CreateWorkloads creates the workloads of a snapshot, each with scale times as many pods, and the namespaces that they need. Workloads that
// exist already stay as they are. The cluster's controllers create the pods; pods without an owner are named NAME-N. CreateWorkloads is for
// a cluster of the fleet's own: Run does not remove the workloads at its end.
func (f *Fleet) CreateWorkloads(ctx context.Context, workloads []Workload, scale int) error {
	if err := (&Snapshot{Workloads: workloads}).Check(scale); err != nil {
		return err
	}
	namespaces := map[string]bool{}
	for i := range workloads {
		namespaces[workloads[i].Namespace] = true
	}
	for _, name := range slices.Sorted(maps.Keys(namespaces)) {
		body, err := json.Marshal(&v1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err == nil {
			err = f.api.CreateJSON(ctx, "/api/v1/namespaces", body)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
		if err := f.awaitAccount(ctx, name); err != nil {
			return err
		}
	}
	var all []creation
	for i := range workloads {
		more, err := workloads[i].requests(f.cfg.Name, scale)
		if err != nil {
			return err
		}
		all = append(all, more...)
	}
	return createAll(ctx, len(all), func(i int) error {
		if err := f.api.CreateJSON(ctx, all[i].path, all[i].body); err != nil {
			return fmt.Errorf("create an object at %s: %w", all[i].path, err)
		}
		return nil
	})
}

// creation is a request that creates an object: the path of the request, and its body in JSON.
type creation struct {
	path string
	body []byte
}

// requests returns the requests that create a workload, with scale times as many pods. fleet is the fleet's name.
func (w *Workload) requests(fleet string, scale int) ([]creation, error) {
	t := w.Template.DeepCopy()
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	id := strings.ToLower(string(w.Kind)) + "-" + w.Name // two kinds of workloads may have the same name
	t.Labels[LabelWorkload], t.Labels[LabelFleet] = id, fleet
	if w.RunFor > 0 {
		if t.Annotations == nil {
			t.Annotations = map[string]string{}
		}
		for i := range t.Spec.Containers {
			name := t.Spec.Containers[i].Name
			t.Annotations[simulated.AnnotationRunFor+"."+name] = w.RunFor.String()
			t.Annotations[simulated.AnnotationExitCode+"."+name] = fmt.Sprint(w.ExitCode)
		}
	}
	if w.Kind == KindPod {
		return w.pods(t, scale)
	}
	spec := map[string]any{"template": t}
	group, plural := "apps/v1", ""
	switch w.Kind {
	case KindDeployment:
		plural, spec["replicas"] = "deployments", w.Count*scale
	case KindStatefulSet:
		plural, spec["replicas"], spec["serviceName"], spec["podManagementPolicy"] = "statefulsets", w.Count*scale, w.Name, "Parallel"
	case KindDaemonSet:
		plural = "daemonsets"
	case KindJob:
		group, plural = "batch/v1", "jobs"
		active := w.Running
		if active == 0 {
			active = w.Count
		}
		spec["completions"], spec["parallelism"] = w.Count*scale, active*scale
	case KindPod:
	}
	if w.Kind != KindJob {
		spec["selector"] = metav1.LabelSelector{MatchLabels: map[string]string{LabelWorkload: id}}
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": group, "kind": w.Kind, "spec": spec,
		"metadata": metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: map[string]string{LabelFleet: fleet}},
	})
	if err != nil {
		return nil, fmt.Errorf("create %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
	}
	return []creation{{fmt.Sprintf("/apis/%s/namespaces/%s/%s", group, w.Namespace, plural), body}}, nil
}

// pods returns the requests that create the pods of a workload without an owner.
func (w *Workload) pods(t *v1.PodTemplateSpec, scale int) (all []creation, err error) {
	p := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	for i := range w.Count * scale {
		p.Namespace, p.Name = w.Namespace, fmt.Sprintf("%s-%d", w.Name, i+1)
		body, err := json.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("create pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		all = append(all, creation{"/api/v1/namespaces/" + w.Namespace + "/pods", body})
	}
	return all, nil
}
