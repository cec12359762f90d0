package stats

import (
	"strings"
	"unicode"

	v1 "k8s.io/api/core/v1"
)

// The number of label values is bounded, whatever pods, containers, runtimes and clusters choose, because each value is a series
// for as long as the agent lives.

// other is the label of all values without a label of their own.
const other = "other"

// endReason returns the label for the reason of a container's end. Reasons of Kubernetes and of the common runtimes are labels;
// all other reasons get the label "other".
func endReason(reason string) string {
	switch reason {
	case "Completed", "Error", "OOMKilled", "ContainerCannotRun", "ContainerStatusUnknown", "DeadlineExceeded", "Evicted",
		"RestartingAllContainers", "StartError", "Unknown", "seccomp killed":
		return reason
	}
	return other
}

// resourceLabel returns the label of a resource: its name, or ExtendedResources for an extended resource, whose name the cluster
// chooses.
func resourceLabel(name string) string {
	switch v1.ResourceName(name) {
	case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods:
		return name
	}
	return "ExtendedResources"
}

// operationName returns the usual label of a CRI call: run_podsandbox for RunPodSandbox.
func operationName(method string) string {
	switch method {
	case "UpdateContainerResources":
		return "update_container"
	case "ReopenContainerLog":
		return "reopen_container_log"
	}
	method = strings.ReplaceAll(method, "PodSandbox", "Podsandbox")
	var b strings.Builder
	for i, r := range method {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// sizeBucket returns the name of the range of an image's size.
func sizeBucket(bytes uint64) string {
	if bytes == 0 {
		return "N/A"
	}
	const mb, gb = 1 << 20, 1 << 30
	for _, b := range [...]struct {
		from uint64
		name string
	}{
		{100 * gb, "GT100GB"}, {60 * gb, "60GB-100GB"}, {40 * gb, "40GB-60GB"}, {30 * gb, "30GB-40GB"}, {20 * gb, "20GB-30GB"}, {10 * gb, "10GB-20GB"},
		{5 * gb, "5GB-10GB"}, {gb, "1GB-5GB"}, {500 * mb, "500MB-1GB"}, {100 * mb, "100MB-500MB"}, {10 * mb, "10MB-100MB"}, {0, "0-10MB"},
	} {
		if bytes > b.from {
			return b.name
		}
	}
	return ""
}
