package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// While a pod exists, the agent keeps only a few of its dead containers and logs. After the pod's end it keeps nothing. This also holds for
// pods that the runtime has lost, and for pods that the agent has never known.
func TestCollection(t *testing.T) {
	s := newSpace(t)
	n := s.env.node
	logs := func(p *v1.Pod) string {
		return filepath.Join(n.dir, "logs", s.name+"_"+p.Name+"_"+string(p.UID))
	}
	count := func(p *v1.Pod, what ...string) int {
		t.Helper()
		out, err := n.crictl(append(what, "-q", "--label", "io.kubernetes.pod.uid="+string(p.UID))...)
		if err != nil {
			t.Fatal(err)
		}
		return len(strings.Fields(out))
	}

	// unknown is the UID of a pod that neither the API nor the runtime has. An agent that was killed long ago could have left its directories.
	const unknown = "5d3c9b7e-0000-4000-8000-c011ec7ed001"
	orphans := []string{filepath.Join(n.dir, "root", "pods", unknown, "volumes", "kubernetes.io~empty-dir", "v"), filepath.Join(n.dir, "logs", "gone_nobody_"+unknown, "main")}
	for _, dir := range orphans {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "0.log"), []byte("left"), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	s.pod("loops", `
volumes: [{name: v, emptyDir: {}}]
initContainers: [{name: first, image: $busybox, command: ["true"]}]
containers:
- {name: main, image: $busybox, command: [sh, -c, 'echo once; exit 1'], volumeMounts: [{name: v, mountPath: /v}]}
- {name: beside, image: $busybox, command: [sleep, "100000"]}`)
	s.pod("lost", `containers: [{name: main, image: $busybox, command: [sleep, "100000"]}]`)

	lost := s.ready("lost")
	before := containerID(lost, "main")
	if out, err := n.crictl("pods", "-q", "--no-trunc", "--label", "io.kubernetes.pod.uid="+string(lost.UID)); err != nil {
		t.Fatal(err)
	} else if _, err := n.crictl("rmp", "-f", strings.TrimSpace(out)); err != nil {
		t.Fatal(err)
	}
	s.until("lost", "run again", func(p *v1.Pod) bool {
		return isTrue(p, v1.PodReady) && containerID(p, "main") != before
	})

	var loops *v1.Pod
	s.within(5*time.Minute, "loops to be restarted three times", func() error { // the back-offs alone take half a minute
		loops = s.get("loops")
		if c := loops.Status.ContainerStatuses; len(c) < 2 || c[1].RestartCount < 3 {
			return errorf("it is %s", summary(loops))
		}
		return nil
	})
	s.eventually("dead containers to be few", func() error { // at most four: the containers first and beside, and the two newest instances of the container main
		if c, l := count(loops, "ps", "-a"), list(filepath.Join(logs(loops), "main")); c > 4 || len(l) > 2 {
			return fmt.Errorf("%d containers, logs %v", c, l)
		}
		return nil
	})
	s.same("logs of the instance before", s.logs("loops", "-c", "main", "--previous"), "once\n")

	for _, p := range []*v1.Pod{loops, lost} {
		s.kubectl("delete", "pod", p.Name, "--wait=false")
	}
	for _, p := range []*v1.Pod{loops, lost} {
		s.gone(p.Name)
		s.eventually("nothing of "+p.Name+" to be left", func() error {
			dir := filepath.Join(n.dir, "root", "pods", string(p.UID))
			left := []string{}
			for _, path := range []string{logs(p), dir} {
				if _, err := os.Lstat(path); err == nil {
					left = append(left, path)
				}
			}
			if c, sb := count(p, "ps", "-a"), count(p, "pods"); len(left) > 0 || c > 0 || sb > 0 {
				return fmt.Errorf("%v, %d containers, %d sandboxes", left, c, sb)
			}
			return nil
		})
	}
	s.eventually("what nobody knows to be gone", func() error {
		for _, path := range []string{filepath.Join(n.dir, "root", "pods", unknown), filepath.Dir(orphans[1])} {
			if _, err := os.Lstat(path); err == nil {
				return fmt.Errorf("%s is there", path)
			}
		}
		return nil
	})
}
