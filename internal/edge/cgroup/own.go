package cgroup

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// Own returns the cgroup of a process from its /proc/self/cgroup, as a path below the mount point. With v1 the controllers of
// CPU and memory must have the same path, because otherwise the process is in more than one cgroup.
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
		return "", fmt.Errorf("find the agent's own cgroup: %s names no cgroup", file)
	}
	if memory := groups["memory"]; memory != cpu {
		return "", fmt.Errorf("find the agent's own cgroup: it is %q for CPU and %q for memory", cpu, memory)
	}
	return cpu, nil
}
