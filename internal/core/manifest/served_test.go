package manifest

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// TestDecodeWhatKubectlPrints checks that "kubectl get pod -o yaml | wherry run -" works: Decode must leave out what the cluster has added
// to the pod, with a note about each thing that the pod will lack.
func TestDecodeWhatKubectlPrints(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/kubectl-get.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := Decode("stdin", text)
	if err := m.Err(); err != nil || len(m.Pods) != 1 {
		t.Fatalf("%d pods: %v", len(m.Pods), err)
	}
	p := m.Pods[0]
	var volumes []string
	for _, v := range p.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	got := map[string]any{
		"uid": string(p.UID), "node": p.Spec.NodeName, "account": p.Spec.ServiceAccountName + p.Spec.DeprecatedServiceAccount, "volumes": volumes,
		"mounts": len(p.Spec.Containers[0].VolumeMounts), "init mounts": len(p.Spec.InitContainers[0].VolumeMounts),
		"debuggers": len(p.Spec.EphemeralContainers), "phase": string(p.Status.Phase), "owners": len(p.OwnerReferences), "name": p.Name,
	}
	want := map[string]any{
		"uid": "", "node": "", "account": "", "volumes": []string{"cache"}, "mounts": 1, "init mounts": 0, "debuggers": 0, "phase": "", "owners": 0,
		"name": "web-7d4b8c6f9-x2v5k",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	var notes []string
	for _, n := range m.Notes {
		notes = append(notes, n.Error())
	}
	if d := cmp.Diff([]string{
		"stdin:1: document 1, Pod default/web-7d4b8c6f9-x2v5k: the service account's token (volume kube-api-access-...) is left out: tokens come from the API server",
		"stdin:1: document 1, Pod default/web-7d4b8c6f9-x2v5k: 1 ephemeral containers are left out: they can only be added to a running pod",
	}, notes); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}

	// If kubectl prints the same pod again later, Decode returns the same pod: fields that the cluster keeps changing do not count.
	later := strings.NewReplacer(`"48213"`, `"50000"`, "restartCount: 0", "restartCount: 3", "nodeName: worker-3", "nodeName: worker-4").Replace(string(text))
	if again := Decode("stdin", []byte(later)); len(again.Pods) != 1 || again.Pods[0].Annotations[pod.AnnotationHash] != p.Annotations[pod.AnnotationHash] {
		t.Errorf("printed again it is another pod: %v", again.Err())
	}
	if other := Decode("stdin", []byte(strings.ReplaceAll(string(text), "nginx:1.27", "nginx:1.28"))); len(other.Pods) != 1 || other.Pods[0].Annotations[pod.AnnotationHash] == p.Annotations[pod.AnnotationHash] {
		t.Error("with another image it is the same pod")
	}
}

// TestDecodeRefusesTokensThatAreAskedFor checks that Decode does not silently leave out a field that a person wrote, such as a service
// account. It must refuse the pod, and the error must name the field.
func TestDecodeRefusesTokensThatAreAskedFor(t *testing.T) {
	t.Parallel()
	printed, err := os.ReadFile("testdata/kubectl-get.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, to, want string }{
		"account": {"serviceAccountName: default", "serviceAccountName: builder", "spec.serviceAccountName: Forbidden"},
		"volume":  {"kube-api-access-8xk2p", "my-token", "spec.volumes[1].projected.sources[0].serviceAccountToken: Forbidden: tokens come from the API server"},
		"claim":   {"emptyDir: {}", "persistentVolumeClaim: {claimName: x}", "spec.volumes[0].persistentVolumeClaim: Forbidden"},
	} {
		m := Decode("stdin", []byte(strings.ReplaceAll(string(printed), c.from, c.to)))
		if len(m.Pods) != 0 || m.Err() == nil || !strings.Contains(m.Err().Error(), c.want) {
			t.Errorf("%s: %d pods, %v, wanted one with %q", name, len(m.Pods), m.Err(), c.want)
		}
	}
	// A pod that was never in an API server keeps its own UID.
	own := Decode("f", []byte(strings.Replace(web, "name: web\nspec", "name: web\n  uid: my-own\nspec", 1)))
	if len(own.Pods) != 1 || own.Pods[0].UID != "my-own" || len(own.Notes) != 0 {
		t.Errorf("%v, notes %v", own.Err(), own.Notes)
	}
	if d := cmp.Diff([]v1.Volume(nil), own.Pods[0].Spec.Volumes); d != "" {
		t.Error(d)
	}
}
