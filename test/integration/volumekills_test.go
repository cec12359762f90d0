package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These flags set the size of TestVolumeKills. `make kill-volumes` gives large values.
var (
	volumeKills = flag.Int("volumekills", 5, "how often TestVolumeKills kills the agent or the CSI driver")
	volumePods  = flag.Int("volumekills.pods", 8, "how many pods with volumes TestVolumeKills keeps")
	volumeSeed  = flag.Uint64("volumekills.seed", 0, "what TestVolumeKills draws from; 0: the time")
)

// TestVolumeKills kills the agent and a CSI driver with SIGKILL at random moments and starts them again, while pods with volumes are created
// and deleted. Every pod that starts finds what the pods before it have written. At no time is a volume mounted twice on one path, staged
// twice at once, or unstaged while it is published. In the end nothing is mounted, nothing of any pod is left, and all data is there.
func TestVolumeKills(t *testing.T) {
	seed := *volumeSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1e6
	}
	s := newSpace(t)
	t.Logf("seed %d; to repeat, as far as time allows: make kill-volumes N=%d SEED=%d", seed, *volumeKills, seed)
	k := &volumeKiller{space: s, rng: rand.New(rand.NewPCG(seed, 1)), dir: filepath.Join(s.env.dir, "kill-volumes"), ready: map[string]*v1.Pod{}}
	k.prepare()
	k.run(*volumeKills)
	k.ending()
}

// volumeKiller is one run of TestVolumeKills.
type volumeKiller struct {
	*space
	rng           *rand.Rand
	node          *node
	dir           string // directory with the data of the volumes
	driver        *process
	driverStarts  int
	next          int
	ready         map[string]*v1.Pod // pods that were Ready at any time, by name
	agents, csis  int                // how often each was killed
	forced, ended int                // how many pods were deleted, at once and in their time
}

// The claims of the test: volumes of the CSI driver, and a local volume.
const (
	csiClaims  = 5
	localClaim = "local"
)

func (k *volumeKiller) driverName() string { return k.name + ".example.com" }
func (k *volumeKiller) root() string       { return filepath.Join(k.node.dir, "root") }

// data returns where the data of a claim lies on the machine.
func (k *volumeKiller) data(claim string) string { return filepath.Join(k.dir, "volumes", claim) }

func (k *volumeKiller) claims() (all []string) {
	for i := range csiClaims {
		all = append(all, fmt.Sprint("csi", i))
	}
	return append(all, localClaim)
}

// prepare starts the node and the driver, and makes the volumes.
func (k *volumeKiller) prepare() {
	k.Helper()
	rt := filepath.Join(k.env.dir, "rt-volumes")
	k.env.addRuntime(rt)
	if err := k.env.runtimeUp(rt, k.env.subnet(rt)); err != nil {
		k.Fatal(err)
	}
	var err error
	if k.node, err = k.env.startNode(nodeConfig{Name: "volumes", Runtime: rt}); err != nil {
		k.Fatal(err)
	}
	if err := k.node.waitReady(patience); err != nil {
		k.Fatal(err)
	}
	for _, dir := range []string{"plugins", "plugins_registry"} {
		if err := os.MkdirAll(filepath.Join(k.root(), dir), 0o750); err != nil {
			k.Fatal(err)
		}
	}
	k.apply(fmt.Sprintf(csiDriver, k.driverName()))
	k.Cleanup(func() { k.kubectl("delete", "csidriver/"+k.driverName(), "--wait=false") })
	for _, claim := range k.claims() {
		if err := errors.Join(os.MkdirAll(k.data(claim), 0o755), os.WriteFile(filepath.Join(k.data(claim), "marker"), []byte(claim+"\n"), 0o644)); err != nil {
			k.Fatal(err)
		}
		source := fmt.Sprintf("csi: {driver: %s, volumeHandle: %s}", k.driverName(), claim)
		if claim == localClaim {
			source = fmt.Sprintf(localSource, k.data(claim), k.node.Name)
		}
		pv := k.name + "-" + claim
		k.apply(strings.NewReplacer("metadata: {name: "+k.name+"}", "metadata: {name: "+pv+"}", "volumeName: "+k.name, "volumeName: "+pv, "name: data}", "name: "+claim+"}").
			Replace(fmt.Sprintf(boundClaim, k.name, source)))
		k.Cleanup(func() { k.kubectl("delete", "pv/"+pv, "--wait=false") })
	}
	k.kubectl("create", "configmap", "settings", "--from-literal=a=b")
	k.startDriver()
	k.Cleanup(func() { k.driver.stop() })
}

func (k *volumeKiller) startDriver() {
	k.Helper()
	k.driverStarts++
	config := strings.Join([]string{k.dir, k.driverName(), filepath.Join(k.root(), "plugins", "kill.sock"), filepath.Join(k.root(), "plugins_registry", "kill.sock")}, ",")
	var err error
	if k.driver, err = start(filepath.Join(k.env.dir, fmt.Sprintf("kill-driver-%d.log", k.driverStarts)), "/usr/bin/env", killDriverEnv+"="+config, os.Args[0]); err != nil {
		k.Fatal(err)
	}
}

// pass waits.
func (*volumeKiller) pass(d time.Duration) { _ = wait(d, func() error { return errorf("not yet") }) }

const killsPerLook = 20

func (k *volumeKiller) run(n int) {
	began := time.Now()
	for i := 1; i <= n && !k.Failed(); i++ {
		for range 1 + k.rng.IntN(3) {
			k.churn()
		}
		k.pass(time.Duration(k.rng.Int64N(one64(k.rng, int64(2500*time.Millisecond), int64(8*time.Second)))))
		k.kill()
		k.look()
		if i%killsPerLook == 0 || i == n {
			k.settle()
			k.Logf("%d of %d kills after %s: the agent %d, the driver %d times; %d pods were Ready, %d deleted in their time, %d at once",
				i, n, time.Since(began).Round(time.Second), k.agents, k.csis, len(k.ready), k.ended, k.forced)
		}
	}
}

// one64 returns the first number in three of four cases, and the second in the other.
func one64(rng *rand.Rand, often, seldom int64) int64 {
	if rng.IntN(4) == 0 {
		return seldom
	}
	return often
}

// kill kills the agent, the driver, or both, and starts them again after a while.
func (k *volumeKiller) kill() {
	k.Helper()
	what := k.rng.IntN(10)
	agent, driver := what < 7, what >= 5
	if agent {
		k.agents++
		k.node.kill()
	}
	if driver {
		k.csis++
		_ = k.driver.cmd.Process.Kill()
		<-k.driver.ended
	}
	if k.rng.IntN(10) < 4 {
		k.pass(time.Duration(k.rng.Int64N(int64(1500 * time.Millisecond))))
	}
	if driver {
		k.startDriver()
	}
	if agent {
		if err := k.node.restart(); err != nil {
			k.Fatal(err)
		}
	}
}

// churn creates or deletes a pod.
func (k *volumeKiller) churn() {
	k.Helper()
	living := k.living()
	if len(living) < *volumePods/2 || len(living) < *volumePods && k.rng.IntN(2) == 0 {
		k.create()
		return
	}
	p := living[k.rng.IntN(len(living))]
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}
	if k.rng.IntN(8) == 0 {
		options.GracePeriodSeconds = new(int64(0)) // the object goes at once, and the agent may not run
		k.forced++
	} else {
		k.ended++
	}
	if err := k.client().CoreV1().Pods(k.name).Delete(context.Background(), p.Name, options); err != nil {
		k.Fatal(err)
	}
}

// volumePod is the spec of the pods. Each writes its name into each of its persistent volumes, and becomes Ready only if the marker is there.
const volumePod = `
restartPolicy: Never
volumes:
- {name: m, emptyDir: {medium: Memory}}
- {name: c, configMap: {name: settings}}
%[1]scontainers:
- name: main
  image: $busybox
  env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
  command: [sh, -c, 'for d in /data/*; do grep -q . $d/marker && echo $POD >> $d/log || exit 1; done; touch /m/up; trap "exit 0" TERM; sleep 100000 & wait']
  readinessProbe: {exec: {command: [test, -e, /m/up]}, periodSeconds: 1, timeoutSeconds: 30}
  volumeMounts:
  - {name: m, mountPath: /m}
  - {name: c, mountPath: /c, readOnly: true}
%[2]s`

// create creates a pod with one to three persistent volumes. Some use a subpath too.
func (k *volumeKiller) create() {
	k.Helper()
	claims := k.claims()
	k.rng.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
	var volumes, mounts strings.Builder
	for _, claim := range claims[:1+k.rng.IntN(3)] {
		fmt.Fprintf(&volumes, "- {name: %[1]s, persistentVolumeClaim: {claimName: %[1]s}}\n", claim)
		fmt.Fprintf(&mounts, "  - {name: %[1]s, mountPath: /data/%[1]s}\n", claim)
		if k.rng.IntN(3) == 0 {
			fmt.Fprintf(&mounts, "  - {name: %[1]s, mountPath: /sub/%[1]s, subPath: a/b}\n", claim)
		}
	}
	k.next++
	k.pod(fmt.Sprint("pod-", k.next), fmt.Sprintf(volumePod, volumes.String(), mounts.String()), onNode(k.node))
}

// pods returns the pods of the API, and remembers which are Ready.
func (k *volumeKiller) pods() []v1.Pod {
	k.Helper()
	list, err := k.client().CoreV1().Pods(k.name).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		k.Fatal(err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; isTrue(p, v1.PodReady) {
			k.ready[p.Name] = p.DeepCopy() // callers change the list
		}
	}
	return list.Items
}

// living returns the pods that are not being deleted.
func (k *volumeKiller) living() []v1.Pod {
	k.Helper()
	return slices.DeleteFunc(k.pods(), func(p v1.Pod) bool { return p.DeletionTimestamp != nil })
}

// mounts returns what is mounted below the node's directory: how many mounts lie on each path.
func (k *volumeKiller) mounts() map[string]int {
	k.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(k.root()))
	if err != nil {
		k.Fatal(err)
	}
	on := map[string]int{}
	for _, m := range infos {
		if m.Mountpoint != k.root() { // the agent makes its directory a shared mount
			on[m.Mountpoint]++
		}
	}
	return on
}

// look fails the test if something is mounted twice on one path, a rule of CSI was broken, or a pod has failed.
func (k *volumeKiller) look() {
	k.Helper()
	for path, n := range k.mounts() {
		if n > 1 {
			k.Errorf("%s is mounted %d times", path, n)
		}
	}
	if text, err := os.ReadFile(filepath.Join(k.dir, "broken")); err == nil {
		k.Errorf("the driver: %s", text)
	}
	for _, p := range k.pods() {
		if p.Status.Phase == v1.PodFailed && p.DeletionTimestamp == nil {
			k.Errorf("pod %s has failed: %s", p.Name, summary(&p))
		}
	}
}

// settle waits until all pods are Ready and deleted pods are gone, and exactly their volumes are mounted and staged, each once.
func (k *volumeKiller) settle() {
	k.Helper()
	k.within(5*time.Minute, "the volumes to be those of the pods", func() error {
		want := map[string]int{}
		for _, p := range k.pods() {
			if p.DeletionTimestamp != nil || !isTrue(&p, v1.PodReady) {
				return errorf("pod %s (deleted %v) is %s", p.Name, p.DeletionTimestamp, summary(&p))
			}
			for _, v := range p.Spec.Volumes {
				if c := v.PersistentVolumeClaim; c != nil && c.ClaimName != localClaim {
					want[filepath.Join(k.root(), "pods", string(p.UID), "volumes/kubernetes.io~csi", k.name+"-"+c.ClaimName, "mount")] = 1
					want["staged "+c.ClaimName] = 1
				}
			}
		}
		have := map[string]int{}
		infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(k.root()))
		if err != nil {
			return err
		}
		for _, m := range infos {
			switch {
			case strings.HasSuffix(m.Mountpoint, "/globalmount"):
				have["staged "+filepath.Base(m.Root)]++
			case strings.Contains(m.Mountpoint, "/volumes/kubernetes.io~csi/"):
				have[m.Mountpoint]++
			}
		}
		for path, n := range have {
			if want[path] != n {
				return errorf("%s is mounted %d times, want %d", path, n, want[path])
			}
		}
		for path := range want {
			if have[path] == 0 {
				return errorf("%s is not mounted", path)
			}
		}
		return nil
	})
	k.look()
}

// ending deletes all pods. Then nothing may be mounted, staged or left, and all data must be there.
func (k *volumeKiller) ending() {
	k.Helper()
	if err := k.client().CoreV1().Pods(k.name).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		k.Fatal(err)
	}
	k.within(4*time.Minute, "nothing to be left", func() error {
		if pods := k.pods(); len(pods) > 0 {
			return errorf("there are %v", podNames(pods))
		}
		if left, _ := filepath.Glob(filepath.Join(k.root(), "plugins/kubernetes.io/csi", k.driverName(), "*")); len(left) > 0 {
			return errorf("left staged: %v", left)
		}
		if on := k.mounts(); len(on) > 0 {
			return errorf("mounted: %v", on)
		}
		return k.node.checkNothingLeft()
	})
	k.look()
	for _, claim := range k.claims() {
		k.same("the marker of "+claim, readFile(k.space, filepath.Join(k.data(claim), "marker")), claim+"\n")
	}
	for name, p := range k.ready {
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim == nil {
				continue
			}
			log := readFile(k.space, filepath.Join(k.data(v.PersistentVolumeClaim.ClaimName), "log"))
			if n := strings.Count("\n"+log, "\n"+name+"\n"); n != 1 {
				k.Errorf("volume %s has what pod %s (%s) wrote %d times, want 1:\n%s", v.Name, name, p.UID, n, log)
			}
		}
	}
}
