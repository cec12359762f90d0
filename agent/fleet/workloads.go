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
		if err := f.createNamespace(ctx, name); err != nil {
			return err
		}
		if err := f.awaitAccount(ctx, name); err != nil {
			return err
		}
	}
	var all []creation
	for i := range workloads {
		for index := range workloads[i].objects(scale) {
			all = append(all, creation{&workloads[i], index})
		}
	}
	return f.createAll(ctx, len(all), func(i int) error {
		path, body, err := all[i].workload.request(f.cfg.Name, scale, all[i].index)
		if err == nil {
			err = f.api.CreateJSON(ctx, path, body)
		}
		if err != nil {
			w := all[i].workload
			return fmt.Errorf("create %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
		}
		return nil
	})
}

// createNamespace creates a namespace unless it exists.
func (f *Fleet) createNamespace(ctx context.Context, name string) error {
	body, err := json.Marshal(&v1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err == nil {
		err = f.api.CreateJSON(ctx, "/api/v1/namespaces", body)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// EnsureNamespace creates a namespace, which pods of CreatePods need, if it does not exist and create is true. Without create it returns an error then. If
// the user of Config.Client may not look, or the API server does not answer, it returns nil.
func (f *Fleet) EnsureNamespace(ctx context.Context, name string, create bool) error {
	has, err := f.api.HasNamespace(ctx, name)
	switch {
	case err != nil || has:
		return nil
	case create:
		return f.createNamespace(ctx, name)
	}
	return fmt.Errorf("the cluster has no namespace %q", name)
}

// creation is an object of a workload that is created. Its request is made only when it is sent, because there may be a million of them.
type creation struct {
	workload *Workload
	index    int
}

// objects returns how many objects a workload becomes, with scale times as many pods.
func (w *Workload) objects(scale int) int {
	if w.Kind == KindPod {
		return w.Count * scale
	}
	return 1
}

// request returns the path and the body of the request that creates the object with this index, which counts from 0. fleet is the fleet's
// name.
func (w *Workload) request(fleet string, scale, index int) (path string, body []byte, err error) {
	t := w.template(fleet)
	if w.Kind == KindPod {
		t.Namespace, t.Name = w.Namespace, fmt.Sprintf("%s-%d", w.Name, index+1)
		body, err = json.Marshal(&v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: t.ObjectMeta, Spec: t.Spec})
		return "/api/v1/namespaces/" + w.Namespace + "/pods", body, err
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
		spec["selector"] = metav1.LabelSelector{MatchLabels: map[string]string{LabelWorkload: t.Labels[LabelWorkload]}}
	}
	body, err = json.Marshal(map[string]any{
		"apiVersion": group, "kind": w.Kind, "spec": spec,
		"metadata": metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name, Labels: map[string]string{LabelFleet: fleet}},
	})
	return fmt.Sprintf("/apis/%s/namespaces/%s/%s", group, w.Namespace, plural), body, err
}

// template returns the template of the workload's pods, with the labels by which they are found, and with annotations that say how long their
// containers run.
func (w *Workload) template(fleet string) *v1.PodTemplateSpec {
	t := w.Template.DeepCopy()
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	t.Labels[LabelWorkload] = strings.ToLower(string(w.Kind)) + "-" + w.Name // two kinds of workloads may have the same name
	t.Labels[LabelFleet] = fleet
	if w.RunFor <= 0 {
		return t
	}
	if t.Annotations == nil {
		t.Annotations = map[string]string{}
	}
	for i := range t.Spec.Containers {
		name := t.Spec.Containers[i].Name
		t.Annotations[simulated.AnnotationRunFor+"."+name] = w.RunFor.String()
		t.Annotations[simulated.AnnotationExitCode+"."+name] = fmt.Sprint(w.ExitCode)
	}
	return t
}
