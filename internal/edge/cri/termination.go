package cri

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// These are the limits of the termination message, from the API documentation of terminationMessagePath: "Will be truncated by
// the node if greater than 4096 bytes", and of FallbackToLogsOnError: "limited to 2048 bytes or 80 lines,
// whichever is smaller".
const (
	maxTerminationBytes = 4096
	maxFallbackBytes    = 2048
	maxFallbackLines    = 80
)

// TerminationMessage returns a container's termination message: the file that is mounted at its terminationMessagePath, or the
// end of its log if the container failed and its policy is FallbackToLogsOnError. A read error becomes part of the message, so
// that users see it.
func TerminationMessage(st *runtimeapi.ContainerStatus) string {
	a := st.GetAnnotations()
	path := a[pod.AnnotationTerminationMessagePath]
	if path == "" {
		return st.GetMessage()
	}
	msg := ""
	for _, m := range st.GetMounts() {
		if m.GetContainerPath() == path {
			b, err := hostfs.ReadUntrustedEnd(m.GetHostPath(), 1, maxTerminationBytes)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "Error on reading termination log " + m.GetHostPath() + ": " + err.Error()
			}
			msg = string(b)
			break
		}
	}
	fallback := a[pod.AnnotationTerminationMessagePolicy] == "FallbackToLogsOnError"
	if msg == "" && fallback && st.GetExitCode() != 0 {
		msg = logEnd(st.GetLogPath())
	}
	if msg == "" && st.GetExitCode() != 0 {
		msg = st.GetMessage()
	}
	return strings.ToValidUTF8(msg, "\uFFFD")
}

// logEnd returns the last lines of a CRI log file without their timestamps and tags.
func logEnd(path string) string {
	if path == "" || !filepath.IsAbs(path) {
		return ""
	}
	// A CRI log adds a timestamp, a stream and a tag of about 50 bytes to each line.
	raw, err := hostfs.ReadUntrustedEnd(path, crispec.LogDepth, maxFallbackBytes+maxFallbackLines*64)
	if err != nil {
		return ""
	}
	lines := bytes.SplitAfter(raw, []byte("\n"))
	if len(lines) > maxFallbackLines+1 {
		lines = lines[len(lines)-maxFallbackLines-1:]
	}
	var out []byte
	for _, l := range lines {
		out = append(out, logPayload(l)...)
	}
	if len(out) > maxFallbackBytes {
		out = out[len(out)-maxFallbackBytes:]
	}
	return string(out)
}

// logPayload removes the prefix "2016-10-06T00:17:09.669794202Z stdout F " from a line. A line whose front was cut has no such
// prefix.
func logPayload(line []byte) []byte {
	parts := bytes.SplitN(line, []byte(" "), 4)
	if len(parts) < 4 {
		return nil
	}
	if _, err := time.Parse(time.RFC3339Nano, string(parts[0])); err != nil {
		return nil
	}
	if bytes.HasPrefix(parts[2], []byte("P")) { // a partial line: the container did not write its newline
		return bytes.TrimSuffix(parts[3], []byte("\n"))
	}
	return parts[3]
}
