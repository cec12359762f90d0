package cgroup

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// Own is the group that a process measures itself by, of its /proc/self/cgroup: below the mount point, / included. With v1
// the controllers of CPU and memory have to agree on it, else there is no one group to tell of.
func Own(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("find the agent's own cgroup: %w", err)
	}
	groups := map[string]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			groups[controller] = path.Clean("/" + parts[2])
		}
	}
	cpu, v1 := groups["cpu"]
	if !v1 {
		if unified, ok := groups[""]; ok {
			return unified, nil
		}
		return "", fmt.Errorf("find the agent's own cgroup: %s names none", file)
	}
	if memory := groups["memory"]; memory != cpu {
		return "", fmt.Errorf("find the agent's own cgroup: it is %q for CPU and %q for memory", cpu, memory)
	}
	return cpu, nil
}
