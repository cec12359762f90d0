package agent

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// What the Node can allocate is its capacity without the thresholds of hard eviction, or with Config.AllocatableIgnoresEviction the whole capacity.
// The thresholds evict pods in both cases.
func TestAllocatableIgnoresEviction(t *testing.T) {
	t.Parallel()
	for ignores, want := range map[bool]string{false: "924Mi", true: "1Gi"} {
		s, err := nodeSettings(&Config{NodeName: "n", Kubelet: DefaultConfiguration(), AllocatableIgnoresEviction: ignores}, RealMachine())
		if err != nil {
			t.Fatal(err)
		}
		got := nodestatus.Allocatable(&s, v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")})
		if want := resource.MustParse(want); got.Memory().Cmp(want) != 0 || len(s.Thresholds) == 0 {
			t.Errorf("ignores the thresholds %t: %s of memory, want %s; %d thresholds", ignores, got.Memory(), &want, len(s.Thresholds))
		}
	}
}
