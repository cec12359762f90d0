package configs

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // registers the API server's defaults and conversions
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// base returns the pod to which each case adds fields. number becomes part of its UID.
func base(number uint64) *v1.Pod {
	p := &v1.Pod{ObjectMeta: meta(namespace, "web")}
	p.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", number))
	p.Labels = map[string]string{"app": "web", "example.com/tier": "front"}
	p.Annotations = map[string]string{"example.com/note": "a note"}
	p.Spec.NodeName = nodeName
	p.Spec.ServiceAccountName = "default"
	p.Spec.Containers = []v1.Container{{Name: "main", Image: imageWeb}}
	p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	return p
}

// valid returns the pod as the API server would store it: defaulted, validated, and without fields whose feature gates are off. The error
// says why the API server would refuse the pod. Ephemeral containers are validated too, although users can add them only later.
func valid(p *v1.Pod) (*v1.Pod, error) {
	internal, err := taken(p)
	if err != nil {
		return nil, err
	}
	var out v1.Pod
	if err := legacyscheme.Scheme.Convert(internal, &out, nil); err != nil {
		return nil, err
	}
	return &out, nil
}

// taken converts the pod to the API server's internal type. It returns an error if the API server would refuse the pod.
func taken(p *v1.Pod) (*core.Pod, error) {
	p = p.DeepCopy()
	legacyscheme.Scheme.Default(p)
	var internal core.Pod
	if err := legacyscheme.Scheme.Convert(p, &internal, nil); err != nil {
		return nil, err
	}
	podutil.DropDisabledPodFields(&internal, nil)
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	path := field.NewPath("spec")
	errs := validation.ValidatePodSpec(&internal.Spec, &internal.ObjectMeta, path, opts)
	errs = append(errs, validation.ValidatePodSpecificAnnotations(internal.Annotations, &internal.Spec, field.NewPath("metadata", "annotations"), opts)...)
	errs = append(errs, validation.ValidateObjectMeta(&internal.ObjectMeta, true, validation.ValidatePodName, field.NewPath("metadata"))...)
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return &internal, nil
}
