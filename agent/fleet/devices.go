package fleet

import (
	"fmt"
	"math"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkDevices calls bad for each field of the group's devices that is not valid.
func (g *Group) checkDevices(bad func(field, format string, args ...any)) {
	seen := map[string]bool{}
	for i, d := range g.Devices {
		at := fmt.Sprintf("devices[%d]", i)
		if !isExtended(d.Resource) {
			bad(at+".resource", "%q: use a name with a domain other than those of Kubernetes, such as example.com/gpu", d.Resource)
		}
		if seen[d.Resource] {
			bad(at+".resource", "%q is there twice: write the sum", d.Resource)
		}
		seen[d.Resource] = true
		if d.Count < 1 || d.Count > math.MaxInt32 {
			bad(at+".count", "%d: use 1 to %d", d.Count, math.MaxInt32)
		}
	}
}

// isExtended reports whether pods can request a resource of this name as an extended resource.
func isExtended(name string) bool {
	domain, _, has := strings.Cut(name, "/")
	return has && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") && !strings.HasPrefix(name, v1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+name)) == 0
}
