package volumesim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// The rules that the simulation checks.
const (
	ruleOnce   = "never staged twice at once, never unstaged while published"
	ruleDead   = "never published to a dead pod"
	ruleInUse  = "volumesInUse covers every mounted volume"
	ruleBelow  = "nothing below a mount is removed"
	ruleAlone  = "two pods of a ReadWriteOncePod claim never overlap"
	ruleEnding = "nothing of a deleted pod stays"
)

// bug is a bug that a test plants.
type bug struct {
	stagesTwice, publishesLate, forgetsUnpublish bool
	reportsOnlyDone                              bool // volumesInUse lists a volume only after its set-up, which is too late
	removesPods                                  bool // the directory of a pod is removed before its volumes are unmounted
	sharesAlone                                  bool // a ReadWriteOncePod claim is treated as ReadWriteOnce
}

const driverName = "disks.example.com"

// claims are the claims of the simulation: the access mode, by name.
var claims = map[string]v1.PersistentVolumeAccessMode{"a": v1.ReadWriteOnce, "b": v1.ReadWriteOnce, "alone": v1.ReadWriteOncePod}

// world is everything that outlives an agent. It is also the API server.
type world struct {
	t      *testing.T
	root   string
	m      *machine
	csi    *simcsi.Driver
	bug    *bug
	faults int // probability, in percent, that a call of the driver fails before its work; the other faults are derived from it
	late   sync.WaitGroup

	mu      sync.Mutex
	random  *rand.Rand
	node    v1.Node               // the Node object, as the agent sees it
	said    []v1.UniqueVolumeName // volumesInUse, as the API server has it
	pods    []*simPod
	dead    map[string]bool // pods that were torn down
	away    bool            // the driver is not registered
	volumes *volume.Volumes // the volumes of the running agent
	inUse   chan struct{}   // gets a value when the result of Volumes.InUse may have changed
	quiet   bool            // from now on no faults are injected
}

type simPod struct {
	pod   *v1.Pod
	ends  time.Time
	ready bool // the pod's volumes are set up
	gone  bool
}

func newWorld(t *testing.T, seed uint64, b *bug) *world {
	w := &world{
		t: t, root: t.TempDir(), m: &machine{mounts: map[string]string{}}, bug: b, random: rand.New(rand.NewPCG(seed, 16)), dead: map[string]bool{},
		inUse: make(chan struct{}, 1), node: v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
	}
	w.faults = w.roll(12)
	w.newDriver()
	return w
}

// newDriver replaces the CSI driver with a new one, which knows no volume.
func (w *world) newDriver() {
	w.csi = simcsi.New(simcsi.Config{Name: driverName, Stage: true, Mount: func(volume, target string) error {
		if uid := podOf(target); strings.Contains(target, "/pods/") {
			w.published(volume, uid)
		}
		time.Sleep(10 * time.Millisecond) // so that two calls at once overlap
		return w.m.mount(volume, target)
	}, Unmount: w.m.unmount})
}

// published checks the rules about the pod to which a volume is published.
func (w *world) published(volume, uid string) {
	w.mu.Lock()
	dead := w.dead[uid]
	w.mu.Unlock()
	if dead {
		w.m.breaks(ruleDead, "volume "+volume+" is published to pod "+uid)
	}
	if others := slices.DeleteFunc(w.m.publishedTo(volume), func(o string) bool { return o == uid }); claims[volume] == v1.ReadWriteOncePod && len(others) > 0 {
		w.m.breaks(ruleAlone, "volume "+volume+" is published to pod "+uid+" and to "+strings.Join(others, ", "))
	}
}

// roll returns a random number in [0,n). When no more faults should happen (quiet), it returns n-1.
func (w *world) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet {
		return n - 1
	}
	return w.random.IntN(n)
}

// check checks that the Node's volumesInUse lists every mounted volume.
func (w *world) check() {
	w.mu.Lock()
	said := slices.Clone(w.said)
	w.mu.Unlock()
	for _, one := range w.m.volumes() {
		if !slices.Contains(said, csispec.UniqueName(driverName, one)) {
			w.m.breaks(ruleInUse, fmt.Sprintf("volume %s is mounted, and the status of the Node says %v", one, said))
		}
	}
}

// heartbeat writes volumesInUse into the Node's status, with a random delay, as the agent's heartbeat does. It also reports these volumes
// as attached.
func (w *world) heartbeat(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.inUse:
		}
		w.mu.Lock()
		v := w.volumes
		w.mu.Unlock()
		names, ok := v.InUse()
		time.Sleep(time.Duration(w.roll(1500)) * time.Millisecond)
		if !ok || ctx.Err() != nil {
			continue
		}
		said := names
		if w.bug != nil && w.bug.reportsOnlyDone {
			said = slices.DeleteFunc(slices.Clone(names), func(n v1.UniqueVolumeName) bool { return !w.isReady(n) })
		}
		w.mu.Lock()
		w.said = said
		w.node.Status.VolumesInUse, w.node.Status.VolumesAttached = names, nil
		for _, n := range names {
			w.node.Status.VolumesAttached = append(w.node.Status.VolumesAttached, v1.AttachedVolume{Name: n})
		}
		w.mu.Unlock()
		w.check()
		v.Reported(names)
		v.NodeChanged()
	}
}

// isReady reports whether the set-up of a pod with a volume has succeeded.
func (w *world) isReady(n v1.UniqueVolumeName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		if p.ready && csispec.UniqueName(driverName, p.pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName) == n {
			return true
		}
	}
	return false
}

// agentLife is one agent, from its start to its end.
type agentLife struct {
	w       *world
	v       *volume.Volumes
	ctx     context.Context
	end     context.CancelFunc
	join    func() // waits for the work that Volumes.Begin has begun
	ended   atomic.Bool
	workers sync.WaitGroup
}

// step is called whenever the agent calls the driver, the API server or the host. A simulated fault may end the agent there. step returns
// an error once the agent has ended.
func (a *agentLife) step() error {
	if !a.ended.Load() && a.w.roll(1000) < a.w.faults/3 {
		a.ended.Store(true)
		a.end()
	}
	if a.ended.Load() {
		return errEnded
	}
	return nil
}

// start starts a new agent on the same directory and mounts, so it finds what the previous agent has left.
func (w *world) start(ctx context.Context) *agentLife {
	a := &agentLife{w: w}
	a.ctx, a.end = context.WithCancel(ctx)
	d := &driver{w, a}
	a.v = volume.New(volume.Config{
		RootDir: w.root, Host: &host{m: w.m, a: a, bug: w.bug}, Claims: &api{w, a}, InUseChanged: w.tell,
		Driver: func(string) volume.Driver {
			if w.isAway() {
				return nil
			}
			return d
		},
	})
	w.mu.Lock()
	w.volumes = a.v
	pods := slices.Clone(w.pods)
	w.mu.Unlock()
	w.tell()
	a.join = a.v.Begin(a.ctx)
	for _, p := range pods {
		a.workers.Go(func() { a.work(p) })
	}
	a.workers.Go(func() {
		for !w.settled() && a.ctx.Err() == nil {
			a.sleep(time.Second)
		}
	})
	return a
}

func (w *world) tell() {
	select {
	case w.inUse <- struct{}{}:
	default:
	}
}

// isAway reports whether the driver is not registered. Some calls, chosen at random, first register or unregister the driver.
func (w *world) isAway() bool {
	if w.roll(40) < w.faults/4 {
		w.mu.Lock()
		w.away = !w.away
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.away && !w.quiet
}

// work sets up the volumes of a pod, again and again until the pod ends, and then tears them down until that succeeds. Only one agent at a time
// works, so only work itself changes whether the pod is gone.
func (a *agentLife) work(p *simPod) {
	if p.gone {
		return
	}
	for a.ctx.Err() == nil {
		if left := time.Until(p.ends); left > 0 {
			ctx, cancel := context.WithTimeout(a.ctx, left)
			err := a.v.SetUp(ctx, volume.Pod{Pod: p.pod})
			cancel()
			a.w.set(func() { p.ready = err == nil })
			wait := time.Second
			if err == nil {
				wait = time.Minute // the volumes are set up again now and then
			}
			a.sleep(min(wait, time.Until(p.ends)))
			continue
		}
		a.w.set(func() { p.ready = false })
		if b := a.w.bug; b != nil && b.removesPods {
			_ = (&host{m: a.w.m, a: a}).RemoveTree(a.ctx, a.w.root+"/pods/"+string(p.pod.UID))
		}
		if err := a.v.TearDown(a.ctx, pod.RefOf(p.pod)); err != nil {
			a.sleep(time.Second)
			continue
		}
		a.w.set(func() { a.w.dead[string(p.pod.UID)] = true })
		if a.v.Remove(a.ctx, pod.RefOf(p.pod)) == nil {
			a.w.set(func() { p.gone = true })
			return
		}
	}
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (a *agentLife) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-a.ctx.Done():
	}
}

// api is the API server as one agent sees it.
type api struct {
	w *world
	a *agentLife
}

var errAPI = errors.New("the API server does not answer")

func (c *api) ask() error {
	if c.w.roll(100) < c.w.faults/2 {
		return errAPI
	}
	return c.a.step()
}

func (c *api) Claim(_ context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error) {
	mode := claims[name]
	if c.w.bug != nil && c.w.bug.sharesAlone {
		mode = v1.ReadWriteOnce
	}
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name, AccessModes: []v1.PersistentVolumeAccessMode{mode}},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}, c.ask()
}

func (c *api) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	claim := strings.TrimPrefix(name, "pv-")
	return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
		ClaimRef:               &v1.ObjectReference{Namespace: "ns", Name: claim, UID: types.UID(claim)},
		PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: claim}},
	}}, c.ask()
}

func (c *api) CSIDriver(context.Context, string) (*storagev1.CSIDriver, error) {
	return &storagev1.CSIDriver{}, c.ask()
}

func (c *api) Secret(context.Context, string, string) (*v1.Secret, error) {
	return &v1.Secret{}, c.ask()
}

func (c *api) Attachment(context.Context, string) (*storagev1.VolumeAttachment, error) {
	return &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true}}, c.ask()
}

func (c *api) Node() *v1.Node {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.w.node.DeepCopy()
}

// settled reports whether all pods are gone, and nothing of their volumes is left.
func (w *world) settled() bool {
	gone := true
	w.set(func() {
		for _, p := range w.pods {
			gone = gone && p.gone
		}
	})
	return gone && len(w.left()) == 0
}

// left lists what is left on the disk and in the mount table.
func (w *world) left() (all []string) {
	all = w.m.targets("")
	for _, dir := range []string{"pods", "plugins/kubernetes.io/csi/" + driverName} {
		entries, _ := os.ReadDir(w.root + "/" + dir)
		for _, e := range entries {
			all = append(all, dir+"/"+e.Name())
		}
	}
	return all
}
