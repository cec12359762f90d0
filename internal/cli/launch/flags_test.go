package launch

import (
	"testing"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// Flags that set no field of KubeletConfiguration reach the agent.
func TestPlainFlagsReachTheAgent(t *testing.T) {
	t.Parallel()
	for ignores, dead := range map[bool]int{false: 1, true: 0} {
		var args []string
		if ignores {
			args = append(args, "--experimental-allocatable-ignore-eviction", "--maximum-dead-containers-per-container=0")
		}
		cfg, _, err := config.Load(args)
		if err != nil {
			t.Fatal(err)
		}
		a, err := AgentConfig(cfg, "n")
		if err != nil || a.AllocatableIgnoresEviction != ignores || *a.DeadContainers != dead {
			t.Errorf("%q: ignores the thresholds: %t, keeps %d dead containers, %v", args, a.AllocatableIgnoresEviction, *a.DeadContainers, err)
		}
	}
}
