package launch

import (
	"testing"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// Flags that set no field of KubeletConfiguration reach the agent.
func TestPlainFlagsReachTheAgent(t *testing.T) {
	t.Parallel()
	for _, ignores := range []bool{false, true} {
		var args []string
		if ignores {
			args = append(args, "--experimental-allocatable-ignore-eviction")
		}
		cfg, _, err := config.Load(args)
		if err != nil {
			t.Fatal(err)
		}
		a, err := AgentConfig(cfg, "n")
		if err != nil || a.AllocatableIgnoresEviction != ignores {
			t.Errorf("%q: %t, %v", args, a.AllocatableIgnoresEviction, err)
		}
	}
}
