package crispec

import (
	"strconv"
	"strings"
)

// ImageVolumes tells what a runtime can do with mounts of images, which CRI has no field for: whether it can mount one, and
// whether a subPath of one. Runtimes that are too old do not know the fields, and would mount something else without an
// error. Of runtimes that are not known here it is believed: they answer for themselves.
func ImageVolumes(runtime, version string) (can, subPath bool) {
	switch runtime {
	case "containerd":
		return atLeast(version, 2, 1), atLeast(version, 2, 2)
	case "cri-o":
		return atLeast(version, 1, 31), atLeast(version, 1, 33)
	}
	return true, true
}

// atLeast compares major.minor of a version like v2.1.0-rc.1; what is none counts as new (a build from source).
func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return true
	}
	a, err := strconv.Atoi(parts[0])
	if err != nil {
		return true
	}
	b, err := strconv.Atoi(strings.TrimRight(parts[1], "+"))
	if err != nil {
		return true
	}
	return a > major || a == major && b >= minor
}
