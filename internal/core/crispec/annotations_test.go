package crispec

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Only the agent sets the annotations that it later reads back from the runtime. The test checks that an annotation of the same name
// from a pod or a device plugin is dropped.
func TestWhatIsReadBackIsTheAgentsOwn(t *testing.T) {
	t.Parallel()
	forged := map[string]string{}
	for _, key := range []string{
		pod.AnnotationRestartCount, pod.AnnotationTerminationMessagePath, pod.AnnotationTerminationMessagePolicy, pod.AnnotationPodGracePeriod,
		pod.AnnotationPreStop, pod.AnnotationPorts, pod.AnnotationSpecHash, AnnotationKubeletHash, "wherry.dev/x",
	} {
		forged[key] = "forged"
	}
	plain, with := &v1.Pod{}, &v1.Pod{}
	plain.Spec.Containers = []v1.Container{{Name: "main", Image: "a"}}
	with.Spec, with.Annotations, with.Labels = plain.Spec, forged, forged
	device := maps.Clone(forged)
	device["vendor.example/x"] = "y"
	want, err := Container(ContainerInput{Pod: plain, Container: &plain.Spec.Containers[0], Annotations: map[string]string{"vendor.example/x": "y"}, Policy: DefaultPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Container(ContainerInput{Pod: with, Container: &with.Spec.Containers[0], Annotations: device, Policy: DefaultPolicy()})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got.Annotations, want.Annotations) || !maps.Equal(got.Labels, want.Labels) {
		t.Errorf("annotations %v, labels %v; want %v, %v", got.Annotations, got.Labels, want.Annotations, want.Labels)
	}
}
