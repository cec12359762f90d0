package nodestatus

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// adoptedLabels are the labels that an agent updates on an existing Node. It leaves all other labels alone.
var adoptedLabels = [...]string{
	v1.LabelHostname, v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone,
	v1.LabelFailureDomainBetaRegion, v1.LabelInstanceTypeStable, v1.LabelInstanceType, v1.LabelOSStable,
	v1.LabelArchStable, v1.LabelWindowsBuild, kubeletapis.LabelOS, kubeletapis.LabelArch,
}

func (s *Settings) labels() map[string]string {
	out := map[string]string{
		v1.LabelHostname: s.Hostname, v1.LabelOSStable: s.OS, v1.LabelArchStable: s.Arch,
		kubeletapis.LabelOS: s.OS, kubeletapis.LabelArch: s.Arch,
	}
	maps.Copy(out, s.Labels)
	return out
}

// ValidateLabels checks --node-labels. Labels under kubernetes.io and k8s.io must be among those that the
// NodeRestriction admission plugin lets a node set on itself: the well-known ones, and anything under
// kubelet.kubernetes.io and node.kubernetes.io.
func ValidateLabels(labels map[string]string) error {
	var refused []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if errs := validation.IsQualifiedName(key); len(errs) > 0 {
			return fmt.Errorf("--node-labels: key %q: %s", key, strings.Join(errs, "; "))
		}
		if errs := validation.IsValidLabelValue(labels[key]); len(errs) > 0 {
			return fmt.Errorf("--node-labels: value %q of %s: %s", labels[key], key, strings.Join(errs, "; "))
		}
		namespace, _, ok := strings.Cut(key, "/")
		if ok && isKubernetes(namespace) && !kubeletapis.IsKubeletLabel(key) {
			refused = append(refused, key)
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("--node-labels: a node may not give itself %s: use a prefix of your own, one under %s, or let an administrator set it (kubectl label node)",
			strings.Join(refused, ", "), strings.Join(kubeletapis.KubeletLabelNamespaces(), " or "))
	}
	return nil
}

func isKubernetes(namespace string) bool {
	return namespace == "kubernetes.io" || strings.HasSuffix(namespace, ".kubernetes.io") ||
		namespace == "k8s.io" || strings.HasSuffix(namespace, ".k8s.io")
}
