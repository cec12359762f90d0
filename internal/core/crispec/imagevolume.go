package crispec

import (
	"strconv"
	"strings"
)

// ImageVolumes reports whether a runtime can mount images, and subPaths of images. CRI has no field for this, so the version
// decides. Older runtimes do not know the fields of the message and would mount something else without an error. An unknown runtime
// is assumed to mount images and subPaths, or to report an error itself.
func ImageVolumes(runtime, version string) (can, subPath bool) {
	switch runtime {
	case "containerd":
		return atLeast(version, 2, 1), atLeast(version, 2, 2)
	case "cri-o":
		return atLeast(version, 1, 31), atLeast(version, 1, 33)
	}
	return true, true
}

// atLeast compares major.minor of a version like v2.1.0-rc.1. Text that is not a version counts as new (a build from
// source).
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
