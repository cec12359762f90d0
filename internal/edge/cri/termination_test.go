package cri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/proof/plant"
)

// failed returns the status of a failed container whose termination message is at path.
func failed(path string) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		ExitCode:    1,
		Annotations: map[string]string{pod.AnnotationTerminationMessagePath: "/dev/termination-log"},
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: path}},
	}
}

// fellBack returns the status of a failed container without a termination message, so that the end of its log, at path, is the message.
func fellBack(path string) *runtimeapi.ContainerStatus {
	st := failed("/nonexistent/message")
	st.Annotations[pod.AnnotationTerminationMessagePolicy] = "FallbackToLogsOnError"
	st.LogPath = path
	return st
}

func TestTerminationMessageOfWhatIsNoFile(t *testing.T) {
	t.Parallel()
	for _, thing := range plant.Things() {
		t.Run(thing.Name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "message")
			thing.Plant(t, path)
			plant.Returns(t, func() {
				msg := TerminationMessage(failed(path))
				if !strings.HasPrefix(msg, "Error on reading termination log "+path) || !strings.Contains(msg, "not a regular file") {
					t.Errorf("message %q", msg)
				}
				if msg := TerminationMessage(fellBack(path)); msg != "" {
					t.Errorf("from the log: %q", msg)
				}
			})
		})
	}
}

// A pod that mounts /var/log can replace its log directory by a link to another pod's logs. TerminationMessage does not follow the
// link.
func TestTerminationMessageOfALogBehindALink(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "ns_other_u2/main"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "ns_other_u2/main/0.log"), []byte(plant.Secret), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := TerminationMessage(fellBack(filepath.Join(root, "ns_other_u2/main/0.log"))); !strings.Contains(got, "secret") {
		t.Errorf("without a link: %q", got)
	}
	if err := os.Symlink("ns_other_u2", filepath.Join(root, "ns_web_u1")); err != nil {
		t.Fatal(err)
	}
	if got := TerminationMessage(fellBack(filepath.Join(root, "ns_web_u1/main/0.log"))); got != "" {
		t.Errorf("another pod's log is shown: %q", got)
	}
}

// A termination message is bounded, however large its file is: "Will be truncated by the node if greater than 4096 bytes". The test is
// not parallel, because it measures how much memory the process allocates.
func TestTerminationMessageIsBounded(t *testing.T) {
	dir := t.TempDir()
	sparse, binary := filepath.Join(dir, "sparse"), filepath.Join(dir, "binary")
	plant.Sparse(t, sparse)
	if err := os.WriteFile(binary, []byte(strings.Repeat("\xff\xfe\x00z", 1<<20)), 0o666); err != nil {
		t.Fatal(err)
	}
	plant.Allocates(t, 1<<20, func() {
		for _, path := range []string{sparse, binary} {
			for _, st := range []*runtimeapi.ContainerStatus{failed(path), fellBack(path)} {
				msg := TerminationMessage(st)
				if !utf8.ValidString(msg) || len(msg) > 3*maxTerminationBytes {
					t.Errorf("%s: %d bytes, valid %v", path, len(msg), utf8.ValidString(msg))
				}
			}
		}
	})
}
