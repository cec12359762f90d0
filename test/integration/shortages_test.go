package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// shortages is a node whose images, containers, pods and logs are on one small disk, as on a small machine.
type shortages struct {
	*space
	on      *node
	disk    string // where the disk is mounted
	fillers int    // files with which the test fills the disk
}

const (
	shortOfDisk = 128 << 20 // below it the disk is short
	freeAtRest  = 208 << 20 // what is available on the disk before a test of a shortage begins
	aShortage   = 96 << 20  // what one pod or image then adds to it
	shortOfIDs  = 1000      // the number of process IDs, beyond those in use, below which they are short
)

// Each resource of a node runs short once, and each time the node frees it in the documented order: it removes what nobody uses, and evicts
// a pod only if that is not enough. It evicts the pod that has caused the shortage, and no other. Afterwards the node is out of pressure.
func TestShortages(t *testing.T) {
	s := newShortages(t)
	s.pod("modest", `
volumes: [{name: v, emptyDir: {}}]
containers:
- {name: main, image: $busybox, command: [sh, -c, 'head -c 100000 /dev/zero > /v/file; sleep 100000'], volumeMounts: [{name: v, mountPath: /v}]}`, onNode(s.on))
	s.ready("modest")
	s.images()
	s.fillTo(freeAtRest)
	const fill = `sleep 3; head -c %d /dev/zero %s; sleep 100000`
	s.evicts("emptydir", "ephemeral-storage", v1.NodeDiskPressure, fmt.Sprintf(fill, aShortage, "> /v/file"))
	s.evicts("layer", "ephemeral-storage", v1.NodeDiskPressure, fmt.Sprintf(fill, aShortage, "> /file"))
	s.evicts("logs", "ephemeral-storage", v1.NodeDiskPressure, fmt.Sprintf(fill, aShortage, `| tr '\0' x | fold -w 4000`))
	_, inodes := s.free()
	s.evicts("inodes", "inodes", v1.NodeDiskPressure, fmt.Sprintf(`sleep 3; i=0; while [ $i -lt %d ]; do : > /v/$i; i=$((i+1)); done; sleep 100000`, inodes-1800))
	const eat = `while :; do head -c 10000000 /dev/zero >> /m/file; sleep %s; done`
	s.evicts("memory-slow", "memory", v1.NodeMemoryPressure, fmt.Sprintf(eat, "0.3"))  // about 30 MB/s
	s.evicts("memory-fast", "memory", v1.NodeMemoryPressure, fmt.Sprintf(eat, "0.03")) // about 250 MB/s
	s.limitProcesses()
	s.evicts("pids", "pids", v1.NodePIDPressure, fmt.Sprintf(`sleep 3; i=0; while [ $i -lt %d ]; do sleep 100000 & i=$((i+1)); done; sleep 100000`, 2*shortOfIDs))
	if p := s.get("modest"); !isTrue(p, v1.PodReady) || p.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the pod that caused no shortage was touched")
	}
}

func newShortages(t *testing.T) *shortages {
	t.Helper()
	s := newSpace(t)
	dir := filepath.Join(s.env.dir, "shortages")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := dir + ".ext4"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 768<<20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-m", "0", "-N", "8192", file}, {"mount", "-o", "loop", file, dir}} {
		if _, errOut, err := output(command(args[0], args[1:]...)); err != nil { // the end of the run unmounts everything below the run's directory
			t.Fatalf("%v: %v: %s", args, err, errOut)
		}
	}
	rt := filepath.Join(dir, "rt")
	s.env.addRuntime(rt)
	if err := s.env.runtimeUp(rt, s.env.subnet(rt)); err != nil {
		t.Fatal(err)
	}
	n, err := s.env.startNode(nodeConfig{
		Name: "shortages", Runtime: rt, Config: "systemReserved: {memory: \"" + memoryBut(s.T, 400<<20) + "\"}\n" + shortagesConfig(""), // all pods together may use 400 MiB
		Flags: []string{"--container-log-max-size=1Gi", "--pod-max-pids=-1"}, // one pod may use up what the node has
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	s.node = n
	return &shortages{space: s, on: n, disk: dir}
}

func shortagesConfig(more string) string {
	return fmt.Sprintf(`registerWithTaints: [{key: short, effect: NoSchedule}]
evictionHard: {nodefs.available: "%[1]d", imagefs.available: "%[1]d", nodefs.inodesFree: "2000", memory.available: 128Mi%[2]s}
evictionPressureTransitionPeriod: 5s
imageMinimumGCAge: 1s
`, shortOfDisk, more)
}

// free returns the bytes and the inodes that are available on the node's disk.
func (s *shortages) free() (bytes, inodes uint64) {
	s.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(s.disk, &st); err != nil {
		s.Fatal(err)
	}
	return st.Bavail * uint64(st.Bsize), st.Ffree
}

// fillTo fills the disk with another file that belongs to nobody, until bytes are left.
func (s *shortages) fillTo(bytes uint64) {
	s.Helper()
	free, _ := s.free()
	if free <= bytes {
		s.Fatalf("%d bytes are available on the disk, the test needs %d", free, bytes)
	}
	s.fillers++
	_, errOut, err := output(command("fallocate", "-l", fmt.Sprint(free-bytes), filepath.Join(s.disk, fmt.Sprint("filler-", s.fillers))))
	if err != nil {
		s.Fatalf("fallocate: %v: %s", err, errOut)
	}
}

// images pulls an image that no pod uses, waits until the node knows it, and fills the disk. The node removes the image and evicts no pod.
func (s *shortages) images() {
	s.Helper()
	registry := newStallingRegistry(s.T, filepath.Join(filepath.Dir(s.env.wherry), "images", "pause"), aShortage/2) // the runtime keeps it packed and unpacked
	close(registry.release)
	image := registry.host + "/unused:1"
	if _, err := s.on.crictl("pull", image); err != nil {
		s.Fatal(err)
	}
	s.eventually("the Node to list the image", func() error {
		if out := s.kubectl("get", "node", s.on.Name, "-o", "jsonpath={.status.images[*].names}"); !strings.Contains(out, image) {
			return errorf("it lists %s", out)
		}
		return nil
	})
	before := len(s.on.log())
	s.fillTo(shortOfDisk - aShortage/4)
	s.eventually("the unused image to be removed", func() error {
		out, err := s.on.crictl("images")
		if err == nil && strings.Contains(out, registry.host) {
			err = errorf("the runtime has\n%s", out)
		}
		return err
	})
	s.nodeCondition(s.on, v1.NodeDiskPressure, v1.ConditionFalse)
	record := s.record("images", before)
	s.contains("the node's record", record, "pressure", "removed to free disk space")
	if strings.Contains(record, "pod evicted") {
		s.Error("the node evicted a pod, although unused images were left")
	}
}

// evicts starts a pod whose script uses up a resource, and waits until the node has evicted it and is out of pressure.
func (s *shortages) evicts(name, resource string, condition v1.NodeConditionType, script string) {
	s.Helper()
	before := len(s.on.log())
	s.pod(name, `
volumes: [{name: v, emptyDir: {}}, {name: m, emptyDir: {medium: Memory}}]
containers:
- name: main
  image: $busybox
  command: [sh, -c, "`+strings.ReplaceAll(script, `\`, `\\`)+`"]
  volumeMounts: [{name: v, mountPath: /v}, {name: m, mountPath: /m}]`, onNode(s.on))
	p := s.ended(name, v1.PodFailed)
	if want := "The node was low on resource: " + resource + ". "; p.Status.Reason != "Evicted" || !strings.HasPrefix(p.Status.Message, want) {
		s.Errorf("%s: the status is %s %q, want Evicted %q", name, p.Status.Reason, p.Status.Message, want)
	}
	if c := p.Status.ContainerStatuses[0].State.Terminated; c == nil || c.Reason == "OOMKilled" {
		s.Errorf("%s: the container ended with %+v, want an end by the node", name, c)
	}
	if !isTrue(p, v1.DisruptionTarget) {
		s.Errorf("%s: the pod has no condition DisruptionTarget", name)
	}
	s.nodeCondition(s.on, condition, v1.ConditionFalse)
	record := s.record(name, before)
	evicted := strings.Index(record, "pod evicted")
	if evicted < 0 || strings.Count(record, "pod evicted") != 1 {
		s.Errorf("%s: the node's record has %d evictions, want 1", name, strings.Count(record, "pod evicted"))
	}
	if condition == v1.NodeDiskPressure && !strings.Contains(record[:max(evicted, 0)], "what=") {
		s.Errorf("%s: the record has no step before the eviction", name)
	}
	s.kubectl("delete", "pod", name, "--wait=false")
	s.gone(name)
}

// record returns, and writes into the test's log, what the node has logged about the shortage since its log had before bytes.
func (s *shortages) record(what string, before int) string {
	s.Helper()
	lines := strings.Split(s.on.log()[before:], "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return !slices.ContainsFunc([]string{"pressure", "eviction", "removed to free", "pod evicted"}, func(part string) bool { return strings.Contains(line, part) })
	})
	text := strings.Join(lines, "\n")
	s.Logf("the node's record of %s:\n%s", what, text)
	return text
}

// limitProcesses sets a threshold for process IDs while the agent runs: so many must be free that those in use now are no shortage, and the
// processes of one pod are.
func (s *shortages) limitProcesses() {
	s.Helper()
	var stats struct {
		Node struct {
			Rlimit struct{ Maxpid, Curproc int64 }
		}
	}
	if err := json.Unmarshal([]byte(s.kubectl("get", "--raw", "/api/v1/nodes/"+s.on.Name+"/proxy/stats/summary")), &stats); err != nil {
		s.Fatal(err)
	}
	free := stats.Node.Rlimit.Maxpid - stats.Node.Rlimit.Curproc
	path := filepath.Join(s.on.dir, "config.yaml")
	old, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	more := shortagesConfig(fmt.Sprintf(`, pid.available: "%d"`, free-shortOfIDs))
	config := strings.Replace(string(old), shortagesConfig(""), more, 1)
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		s.Fatal(err)
	}
	s.within(time.Minute, "the node to take the new threshold", func() error {
		out := s.kubectl("get", "--raw", "/api/v1/nodes/"+s.on.Name+"/proxy/configz")
		if !strings.Contains(out, "pid.available") {
			return errorf("configz has no threshold for process IDs")
		}
		return nil
	})
}
