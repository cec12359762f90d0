package agenttest

import (
	"context"
	"fmt"
	"syscall"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// moveClock changes the machine's clock, as a time server or a person does.
func (s *sim) moveClock() {
	d := one(s, time.Minute, time.Hour, 24*time.Hour, 3*365*24*time.Hour)
	kind := "forwards"
	if s.chance(50) {
		kind, d = "backwards", -d
	}
	s.tally.count("clock: moved " + kind)
	s.logf("clock %s", d)
	synctest.Wait()
	s.MoveClock(d)
}

// breakDisk makes the disk fail or become slow, or makes it work again.
func (s *sim) breakDisk() {
	f, kind := DiskFault{}, "mended"
	switch s.rng.IntN(5) {
	case 0:
		f, kind = DiskFault{Write: syscall.ENOSPC, Volumes: syscall.ENOSPC}, "full"
	case 1:
		f, kind = DiskFault{Write: syscall.EROFS, Volumes: syscall.EROFS}, "read-only"
	case 2:
		f, kind = DiskFault{Write: syscall.EIO, Read: syscall.EIO, Volumes: syscall.EIO, Every: 1 + s.rng.Int64N(3)}, "failing"
	case 3:
		f, kind = DiskFault{Slow: s.between(100*time.Millisecond, 10*time.Second)}, "slow"
	}
	s.tally.count("disk: " + kind)
	s.logf("disk %s", kind)
	s.SetDisk(f)
}

// resizeOne changes the CPU request of a random pod that has one.
func (s *sim) resizeOne() {
	var of []string
	for _, name := range s.alive() {
		if p := s.Kube.Pod(Namespace, name); p.DeletionTimestamp == nil && !p.Spec.Containers[0].Resources.Requests.Cpu().IsZero() {
			of = append(of, name)
		}
	}
	if len(of) == 0 {
		return
	}
	name := one(s, of...)
	cpu := one(s, "1", "2", "5", "30", "60", "500")
	s.logf("resize %s to %s", name, cpu)
	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":%q}}}]}}`, cpu)
	if _, err := s.Admin.CoreV1().Pods(Namespace).Patch(context.Background(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "resize"); err == nil {
		s.tally.count("user: resize")
	}
}

// loseNode deletes the Node object.
func (s *sim) loseNode() {
	if err := s.Admin.CoreV1().Nodes().Delete(context.Background(), NodeName, metav1.DeleteOptions{}); err == nil {
		s.tally.count("user: Node deleted")
	}
}

// restore deletes a pod while no agent runs and creates it again with the same UID, as from a backup.
func (s *sim) restore() {
	name := s.pick()
	if name == "" {
		return
	}
	p := s.Kube.Pod(Namespace, name)
	if p.DeletionTimestamp != nil {
		return
	}
	s.tally.count("user: deleted and restored")
	s.logf("restore %s", name)
	s.Witness.force(p.UID)
	if err := s.Admin.CoreV1().Pods(Namespace).Delete(context.Background(), name, deleteNow()); err != nil {
		s.Fatal(err)
	}
	s.Kube.Restore(p)
}

// longOutage makes the API server unreachable for about an hour. In that time containers end, agents are killed, and clocks and manifests
// change. Before the API server comes back, some pods are deleted and created again.
func (s *sim) longOutage() {
	s.tally.count("API: outage of an hour")
	s.SetOutage(true)
	s.out = true
	for end := time.Now().Add(s.between(50*time.Minute, 70*time.Minute)); time.Now().Before(end); time.Sleep(s.between(time.Second, 15*time.Minute)) {
		if !s.Alive() {
			s.StopAgent()
			s.StartAgent()
		}
		switch s.rng.IntN(6) {
		case 0:
			s.exit()
		case 1:
			s.loseSandbox()
		case 2:
			s.endAgent()
		case 3:
			s.faults = append(s.faults, s.Runtime.Inject(simcri.Fault{Times: 2, Chance: 0.5}))
		case 4:
			s.moveClock()
		case 5:
			if s.statics != nil {
				s.changeManifest()
			}
		}
	}
	s.SetOutage(false)
	s.out = false
	for range s.rng.IntN(4) {
		s.deleteOne(-1, 0)
	}
	if s.chance(50) {
		s.remake()
	}
}
