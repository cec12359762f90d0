package agenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/core/csispec"
	driver "github.com/wherry-node/wherry/internal/edge/csi"
	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// diskClaims are the claims of TestSimDisks, with their access modes. Each is bound to a volume of the machine's CSI driver.
func diskClaims() map[string]v1.PersistentVolumeAccessMode {
	return map[string]v1.PersistentVolumeAccessMode{"logs": v1.ReadWriteOnce, "data": v1.ReadWriteOnce, aloneClaim: v1.ReadWriteOncePod}
}

// aloneClaim is the claim that only one pod may use at a time.
const aloneClaim = "alone"

// TestSimDisks runs an agent, and pods with volumes of a CSI driver, through random events that depend on a seed. Calls of the driver fail,
// hang, or lose their answers; the driver's process restarts; volumes are attached and detached; the runtime, the API server and the disk
// have faults; the agent is killed; the machine reboots. Meanwhile the Witness observes the mounts. In the end all faults stop. Then all
// pods have to run, and after their deletion nothing of their volumes may be left.
func TestSimDisks(t *testing.T) {
	t.Parallel()
	var all tally
	t.Cleanup(func() {
		t.Logf("proved: %s", &all)
		for _, lack := range all.unseenDisks() {
			t.Errorf("the simulation proves too little: %s", lack)
		}
	})
	for i := range max(min(*seeds, 10), *seeds/4) { // a quarter of the seeds of TestSim, because a seed takes longer: its directories are real
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			defer func() {
				if t.Failed() {
					t.Logf("to repeat: make sim SEEDS=1 SEED=%d", seed)
				}
			}()
			Run(t, disksConfig(seed), func(w *World) {
				s := newSim(w, seed, nil)
				defer func() { all.add(&s.tally) }()
				s.runDisks(seed)
			})
		})
	}
}

// unseenDisks returns a text for each rule about volumes that was never applied.
func (t *tally) unseenDisks() (out []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rule := range []Rule{RuleVolumeInUse, RuleVolumeOver, RuleVolumeAlone, RuleVolumeRuns} {
		if n := t.rules[rule].Applied; t.seeds >= enoughSeeds && n < t.seeds {
			out = append(out, fmt.Sprintf("rule %q was applied %d times in %d seeds", rule, n, t.seeds))
		}
	}
	return out
}

func disksConfig(seed uint64) Config {
	return Config{
		Seed: seed, CSI: &simcsi.Config{Name: diskDriver, NodeID: "disks-" + NodeName, Stage: seed%4 != 0},
		Agent:   func(c *agent.Config) { c.DeadContainers = new(int(1 + seed%2)) },
		Runtime: simcri.Config{Latency: latencies(), NoEvents: seed%5 == 0},
		Kube:    simkube.Config{Latency: 4 * time.Millisecond, WatchLatency: 8 * time.Millisecond},
	}
}

// simDisks are the CSI volumes of a run of TestSimDisks.
type simDisks struct {
	claims   []string        // their names, sorted
	attached map[string]bool // volumes that are attached to the node; only the attacher uses it
	hang     chan struct{}   // holds the calls of the driver that hang; nil: none hang
}

// useDisks makes the main container of a pod use one or two of the claims, usually.
func (s *sim) useDisks(p *v1.Pod) {
	first := s.rng.IntN(len(s.disks.claims))
	for i := range one(s, 0, 1, 1, 2) {
		name := s.disks.claims[(first+i)%len(s.disks.claims)]
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		main := &p.Spec.Containers[0]
		main.VolumeMounts = append(main.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
	}
}

func (s *sim) runDisks(seed uint64) {
	s.disks = &simDisks{claims: slices.Sorted(maps.Keys(diskClaims())), attached: map[string]bool{}}
	s.createDisks()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.attacher(ctx, rand.New(rand.NewPCG(seed, 9)))
	}()
	defer func() {
		cancel()
		<-ended
		s.mendDriver()
		for _, broken := range s.CSI.Broken() {
			s.Witness.note(RuleVolumeOnce, "%s", broken)
		}
	}()
	began := time.Now()
	for time.Since(began) < simFor {
		if !s.Alive() {
			s.disksWithoutAgent()
		}
		s.stepDisks()
		time.Sleep(s.between(50*time.Millisecond, 4*time.Second))
	}
	s.settleDisks()
	s.tally.rules = s.Witness.Armed()
	s.tally.virtual += time.Since(began)
	s.tally.seeds++
	s.tally.crashes += s.crashes
	s.tally.containers += s.Witness.Starts()
}

// createDisks creates the claims, each bound to a volume of the driver with the same name.
func (s *sim) createDisks() {
	if _, err := s.Admin.StorageV1().CSIDrivers().Create(context.Background(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: diskDriver}, Spec: storagev1.CSIDriverSpec{AttachRequired: new(true)},
	}, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	for _, name := range s.disks.claims {
		c := s.createClaim(name, diskClaims()[name])
		s.bindClaimTo(c, v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: diskDriver, VolumeHandle: name}})
	}
}

// attacher does what the attach-detach controller and the driver's attacher do, until ctx ends: it attaches the volumes of the pods in the
// API to the node. It detaches a volume that no pod uses, when the Node's status does not list it as in use.
func (s *sim) attacher(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(100+rng.IntN(3000)) * time.Millisecond)
		wanted := map[string]bool{}
		for _, p := range s.Kube.Pods() {
			if p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded {
				continue
			}
			for i := range p.Spec.Volumes {
				if c := p.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
					wanted[c.ClaimName] = true
				}
			}
		}
		n := s.Kube.Node(NodeName)
		if n == nil {
			continue
		}
		for _, name := range s.disks.claims {
			var err error
			switch is := s.disks.attached[name]; {
			case wanted[name] && !is:
				err = s.attachDisk(name)
			case !wanted[name] && is && !slices.Contains(n.Status.VolumesInUse, csispec.UniqueName(diskDriver, name)):
				err = s.detachDisk(name)
			}
			if err != nil && !errors.Is(err, syscall.ECONNREFUSED) { // during an outage the next round tries again
				s.Errorf("attach or detach %s: %v", name, err)
			}
		}
	}
}

// attachDisk attaches a volume: it creates the VolumeAttachment, and then lists the volume in the Node's status.
func (s *sim) attachDisk(name string) error {
	api, ctx := s.Admin.StorageV1().VolumeAttachments(), context.Background()
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: csispec.Attachment(name, diskDriver, NodeName)}, Spec: storagev1.VolumeAttachmentSpec{Attacher: diskDriver, NodeName: NodeName},
	}
	if _, err := api.Create(ctx, a, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	a, err := api.Get(ctx, a.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	a.Status.Attached = true
	if _, err := api.UpdateStatus(ctx, a, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return s.listAttached(name, true)
}

// detachDisk detaches a volume, in the order that the attach-detach controller keeps: first the Node's status no longer lists the volume as
// attached, then the controller reads once more whether the status lists it as in use.
func (s *sim) detachDisk(name string) error {
	if err := s.listAttached(name, false); err != nil {
		return err
	}
	n, err := s.Admin.CoreV1().Nodes().Get(context.Background(), NodeName, metav1.GetOptions{})
	if err != nil || slices.Contains(n.Status.VolumesInUse, csispec.UniqueName(diskDriver, name)) {
		return errors.Join(err, s.listAttached(name, true))
	}
	s.Witness.detached(name)
	err = s.Admin.StorageV1().VolumeAttachments().Delete(context.Background(), csispec.Attachment(name, diskDriver, NodeName), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err // the VolumeAttachment that is left does no harm: the next attachment uses it
}

// listAttached adds a volume to the list of attached volumes in the Node's status, or removes it. If that fails, the volume counts as attached
// as before.
func (s *sim) listAttached(name string, is bool) error {
	before := s.disks.attached[name]
	s.disks.attached[name] = is
	list := []v1.AttachedVolume{}
	for _, one := range s.disks.claims {
		if s.disks.attached[one] {
			list = append(list, v1.AttachedVolume{Name: csispec.UniqueName(diskDriver, one)})
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesAttached": list}})
	if err == nil {
		_, err = s.Admin.CoreV1().Nodes().Patch(context.Background(), NodeName, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		s.disks.attached[name] = before
	}
	return err
}

// disksWithoutAgent changes things while no agent runs, and then starts the next agent.
func (s *sim) disksWithoutAgent() {
	s.StopAgent()
	if s.chance(30) {
		s.deleteOne(-1, 0)
		s.exit()
	}
	if s.chance(20) {
		s.remake()
	}
	if s.chance(15) {
		s.tally.count("machine: reboot")
		s.mendDriver()
		s.Reboot()
	}
	time.Sleep(s.between(0, time.Minute))
	s.StartAgent()
}

// stepDisks performs one random event.
func (s *sim) stepDisks() {
	n := s.rng.IntN(100)
	s.logf("step %d", n)
	switch {
	case n < 33:
		s.create()
	case n < 50:
		s.deleteOne(-1, -1, 0, 1, 5, 30)
	case n < 53:
		s.remake()
	case n < 55:
		s.debug()
	case n < 62:
		s.exit()
	case n < 65:
		s.loseSandbox()
	case n < 70:
		s.runtimeFault()
	case n < 73:
		s.tally.count("API: outage")
		s.Outage(s.between(time.Second, 40*time.Second))
	case n < 75:
		s.tally.count("API: watch cut")
		s.Kube.CutWatches()
	case n < 79:
		s.apiFault()
	case n < 81:
		s.breakDisk()
	case n < 93:
		s.driverFault()
	default:
		s.endAgent()
	}
}

// faultyMethods are the methods of the CSI driver that may have faults.
func faultyMethods() []string {
	return []string{"NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume"}
}

// driverFault ends the present fault of the CSI driver, and usually begins another one.
func (s *sim) driverFault() {
	s.mendDriver()
	method := one(s, faultyMethods()...)
	kind := one(s, "error", "answer lost", "hang", "restart", "mended")
	s.tally.count("CSI driver: " + kind)
	s.logf("driver: %s of %s", kind, method)
	switch kind {
	case "error":
		s.CSI.SetFault(method, &simcsi.Fault{Err: status.Error(one(s, codes.Internal, codes.Unavailable, codes.Aborted), "the driver fails")})
	case "answer lost":
		s.CSI.SetFault(method, &simcsi.Fault{Err: status.Error(codes.DeadlineExceeded, "the answer is lost"), After: true})
	case "hang":
		s.disks.hang = make(chan struct{})
		s.CSI.SetFault(method, &simcsi.Fault{Hang: s.disks.hang})
	case "restart":
		s.CSI.Close()
		time.Sleep(s.between(0, 20*time.Second))
		s.startDriver()
	}
}

// mendDriver ends the faults of the CSI driver.
func (s *sim) mendDriver() {
	for _, method := range faultyMethods() {
		s.CSI.SetFault(method, nil)
	}
	if s.disks.hang != nil {
		close(s.disks.hang)
		s.disks.hang = nil
	}
}

// settleDisks ends all faults and checks that everything recovers.
func (s *sim) settleDisks() {
	for _, remove := range s.faults {
		remove()
	}
	s.mendDriver()
	s.SetDisk(DiskFault{})
	s.CrashAfter(0, false, false)
	if !s.Alive() {
		s.disksWithoutAgent()
	}
	s.keepOneAlone()
	s.WaitConverged(8 * time.Minute)
	s.awaitNone(RuleRuns, 12*time.Minute, s.Idle)
	s.WaitConverged(8 * time.Minute)
	for _, name := range s.alive() {
		s.Delete(name, one(s, int64(1), -1))
	}
	s.awaitNone(RuleNothingStays, 8*time.Minute, func() (left []string) {
		for _, p := range s.Kube.Pods() {
			left = append(left, "pod "+p.Name)
		}
		if staged, published := s.CSI.Holds(); staged+published > 0 {
			left = append(left, fmt.Sprintf("the driver has %d staged volumes and %d published ones", staged, published))
		}
		if n := len(s.Witness.Containers()) + len(s.Witness.Sandboxes()) + s.MachineHolds(); n > 0 {
			left = append(left, fmt.Sprintf("%d containers, sandboxes and checkpoints", n))
		}
		return append(left, s.VolumesLeft()...)
	})
	s.await(RuleVolumeInUse, "the Node uses no volume", 5*time.Minute, func() bool { return len(s.Kube.Node(NodeName).Status.VolumesInUse) == 0 })
}

// keepOneAlone deletes pods so that at most one is left that uses the ReadWriteOncePod claim, because the others would wait for ever.
func (s *sim) keepOneAlone() {
	kept := false
	for _, name := range s.alive() {
		p := s.Kube.Pod(Namespace, name) // nil: the agent has removed it in the meantime
		if p == nil || p.DeletionTimestamp != nil || !slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.Name == aloneClaim }) {
			continue
		}
		if kept {
			s.Delete(name, 1)
		}
		kept = true
	}
}

// TestPlantedDisks plants a bug for each rule about volumes that the Witness checks. It fails if the simulation does not find the bug.
func TestPlantedDisks(t *testing.T) {
	t.Parallel()
	for _, b := range []struct {
		rule Rule
		name string
		bug  func() *Bug
	}{
		{RuleVolumeInUse, "the Node forgets the volumes that it uses", forgetsInUse},
		{RuleVolumeOver, "a volume is published again after the pod's end", publishesLate},
		{RuleVolumeAlone, "ReadWriteOncePod is taken for ReadWriteOnce", sharesAlone},
		{RuleVolumeOnce, "a volume is unstaged when the first of its pods ends", unstagesEarly},
		{RuleVolumeRuns, "a volume is unmounted when a container starts", unmountsRunning},
		{RuleVolumeData, "the directory of a pod is removed before its volumes are unmounted", removesFirst},
		{RuleNothingStays, "a volume is taken for unstaged", keepsStaged},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= plantedSeeds; seed++ {
				cfg := disksConfig(seed)
				cfg.Plant = b.bug()
				for _, v := range runPlanted(t, cfg, func(w *World) { newSim(w, seed, nil).runDisks(seed) }) {
					if v.Rule == b.rule {
						t.Logf("seed %d: %s", seed, v)
						return
					}
				}
			}
			t.Errorf("in %d seeds the bug was not found: %s", plantedSeeds, b.rule)
		})
	}
}

// forgetsInUse is a bug: the Node's status loses the list volumesInUse while volumes are mounted.
func forgetsInUse() *Bug {
	times := atomic.Int32{} // the agent writes the list again, so the bug ends after a few times
	return &Bug{API: func(w *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := do(r)
		if _, published := w.CSI.Holds(); published > 0 && r.Method == http.MethodPatch && r.URL.Path == "/api/v1/nodes/"+NodeName+"/status" && times.Add(1) <= 3 {
			_, _ = w.Admin.CoreV1().Nodes().Patch(context.Background(), NodeName, types.MergePatchType, []byte(`{"status":{"volumesInUse":null}}`), metav1.PatchOptions{}, "status")
		}
		return resp, err
	}}
}

// publishesLate is a bug: a request to publish a volume is sent again after the volume was unmounted, later than any call may take.
func publishesLate() *Bug {
	return &Bug{Unmounted: func(w *World, volume, target string) {
		if strings.Contains(target, "/pods/") {
			time.AfterFunc(driver.Timeout+5*time.Second, func() {
				_, _ = w.CSI.NodePublishVolume(context.Background(), &csi.NodePublishVolumeRequest{VolumeId: volume, TargetPath: target})
			})
		}
	}}
}

// sharesAlone is a bug: the agent takes the access mode ReadWriteOncePod for ReadWriteOnce.
func sharesAlone() *Bug {
	return &Bug{API: func(_ *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := do(r)
		if err != nil || !strings.Contains(r.URL.Path, "/persistentvolumeclaims/") {
			return resp, err
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		body = bytes.ReplaceAll(body, []byte(v1.ReadWriteOncePod), []byte(v1.ReadWriteOnce))
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return resp, nil
	}}
}

// unstagesEarly is a bug: a volume is unstaged when one of its pods ends, although another pod still uses it.
func unstagesEarly() *Bug {
	return &Bug{Unmounted: func(w *World, volume, target string) {
		if strings.Contains(target, "/pods/") && w.Witness.isPublished(volume) {
			_, _ = w.CSI.NodeUnstageVolume(context.Background(), &csi.NodeUnstageVolumeRequest{VolumeId: volume})
		}
	}}
}

// unmountsRunning is a bug: a volume is unmounted from a pod whose container has just started.
func unmountsRunning() *Bug {
	return &Bug{Runtime: func(ctx context.Context, w *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		out, err := do(ctx, in)
		if r, ok := in.(*runtimeapi.StartContainerRequest); ok && err == nil {
			for _, m := range w.Witness.publishedTo(r.ContainerId) {
				_, _ = w.CSI.NodeUnpublishVolume(context.Background(), &csi.NodeUnpublishVolumeRequest{VolumeId: m.volume, TargetPath: m.point})
			}
		}
		return out, err
	}}
}

// removesFirst is a bug: the directories of a pod's volumes are removed when its sandbox stops, before the volumes are unmounted.
func removesFirst() *Bug {
	return &Bug{Runtime: func(ctx context.Context, w *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		if r, ok := in.(*runtimeapi.StopPodSandboxRequest); ok {
			if uid := w.Witness.podOfSandbox(r.PodSandboxId); uid != "" {
				_ = os.RemoveAll(filepath.Join(w.volumes, "pods", string(uid), "volumes"))
			}
		}
		return do(ctx, in)
	}}
}

// keepsStaged is a bug: whenever a volume is unstaged, something stages it again.
func keepsStaged() *Bug {
	return &Bug{Unmounted: func(w *World, volume, target string) {
		if !strings.Contains(target, "/pods/") {
			_, _ = w.CSI.NodeStageVolume(context.Background(), &csi.NodeStageVolumeRequest{VolumeId: volume, StagingTargetPath: target})
		}
	}}
}
