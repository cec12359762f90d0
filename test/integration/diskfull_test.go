package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// smallRoot mounts a small file system at the root directory of a node that the test will start. It returns the directory.
func smallRoot(t *testing.T, e *env, node string) (dir string) {
	t.Helper()
	dir = filepath.Join(e.dir, node, "root")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatalf("mount a small file system: %v", err)
	}
	return dir // the end of the run unmounts everything below the run's directory
}

// diskFull fills the file system of the node's root directory, so that the agent can write nothing, not even checkpoints. Running pods
// continue, even if the agent is killed. A new pod waits, and its status says why. When there is space again, everything works.
func diskFull(s *space, n *node, root string) {
	s.Helper()
	ids := s.ids(n)
	s.eventually("the other pods to leave the disk", func() error {
		if pods := list(filepath.Join(root, "pods")); len(pods) != 2 {
			return errorf("there are %v", pods)
		}
		return nil
	})
	filler := filepath.Join(root, "filler")
	f, err := os.Create(filler)
	if err != nil {
		s.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; { // fills the disk to the last byte
		_, err = f.Write(block)
	}
	_ = f.Close()

	crashes := s.get("stays-plain")
	s.pod("late", stayingPlain, onNode(n))
	s.eventually("the pod to say that the disk is full", func() error {
		out, _, err := s.try("get", "events", "-o", "jsonpath={.items[*].message}", "--field-selector", "involvedObject.name=late")
		if err == nil && !strings.Contains(out, "no space left on device") {
			err = errorf("its events say %q", out)
		}
		return err
	})
	s.same("containers with a full disk", s.ids(n), ids)
	n.kill()
	if err := n.restart(); err != nil {
		s.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		s.Fatal(err)
	}
	kill(s, n, crashes) // the container cannot restart while the disk is full
	if err := os.Remove(filler); err != nil {
		s.Fatal(err)
	}
	s.ready("late")
	s.until("stays-plain", "restarted", func(p *v1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 1 && isTrue(p, v1.PodReady)
	})
	for _, name := range []string{"stays-probed", "stays-plain"} {
		for _, c := range s.ready(name).Status.ContainerStatuses {
			if want := map[string]int32{"stays-plain": 1}[name]; c.RestartCount != want {
				s.Errorf("%s of %s has restart count %d, want %d", c.Name, name, c.RestartCount, want)
			}
		}
	}
	s.kubectl("delete", "pod", "late", "--wait=false")
	s.gone("late")
}
