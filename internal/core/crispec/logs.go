package crispec

import (
	"path"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// DefaultLogRoot is the default directory of the logs of pods: KubeletConfiguration.podLogsDir.
const DefaultLogRoot = "/var/log/pods"

// LogDir returns a pod's log directory: <root>/<namespace>_<name>_<uid>.
func LogDir(root string, p *v1.Pod) string { return LogDirOf(root, pod.RefOf(p)) }

// LogDirOf does the same as LogDir for a pod whose API object no longer exists.
func LogDirOf(root string, ref pod.Ref) string {
	return path.Join(root, ref.Namespace+"_"+ref.Name+"_"+string(ref.UID))
}

// LogName returns a container's log file within the pod's log directory: <container>/<attempt>.log.
func LogName(container string, attempt uint32) string {
	return path.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

// LogDepth is the number of path elements at the end of a log's path that a container may have replaced if it mounts /var/log or a part
// of it: pod directory, container directory, file. No container can replace the directories above them.
const LogDepth = 3

// LogPath returns the complete path of one attempt's log.
func LogPath(root string, p *v1.Pod, container string, attempt uint32) string {
	return path.Join(LogDir(root, p), LogName(container, attempt))
}

// ParseLogAttempt returns the attempt in the base name of a log file: 3.log, or a name that rotation makes of it
// (3.log.20261121-120000, also with .gz).
func ParseLogAttempt(base string) (attempt uint32, ok bool) {
	number, rest, found := strings.Cut(base, ".")
	if !found || (rest != "log" && !strings.HasPrefix(rest, "log.")) {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), err == nil
}
