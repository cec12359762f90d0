package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// TestTakeOverWithCSIVolumes changes the agent of a node from Wherry to upstream's kubelet and back, while pods use CSI volumes: a file system
// with a subPath, a block device, and an inline volume. The new agent touches no container and no mount of the other one, and asks the driver
// for no more than upstream's kubelet does when it restarts. Each agent ends a pod that the other one started, and leaves nothing of it.
func TestTakeOverWithCSIVolumes(t *testing.T) {
	e := use(t)
	kubelet := e.tool("conformance/kubelet")
	if _, err := os.Stat(kubelet); err != nil {
		t.Skip("no upstream kubelet: bin/wherry-dev build kubelet")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skip("needs loop devices: ", err)
	}
	o := &takeOver{space: newSpaceOn(t, e), kubelet: kubelet, disks: t.TempDir(), pods: map[string]types.UID{}}
	o.prepare()
	o.create("first")
	o.create("stays")

	before := o.look()
	calls := o.change(kubelet)
	o.unchanged("upstream's kubelet, which has taken over from Wherry,", before)
	o.asked("upstream's kubelet after Wherry", calls)
	o.remove("first")
	o.create("theirs")

	before = o.look()
	restart := o.change(kubelet)
	o.unchanged("upstream's kubelet, restarted,", before)
	o.asked("upstream's kubelet after itself", restart)
	calls = o.change(e.wherry, "kubelet")
	o.unchanged("Wherry, which has taken over from upstream's kubelet,", before)
	o.asked("Wherry after upstream's kubelet", calls)
	for call, n := range calls {
		if n > restart[call] {
			t.Errorf("Wherry has called %s %d times; upstream's kubelet itself calls it %d times when it restarts", call, n, restart[call])
		}
	}
	o.remove("theirs")
	o.remove("stays")
	if broken := o.driver.Broken(); len(broken) > 0 {
		t.Errorf("rules of CSI that were broken: %q", broken)
	}
}

// takeOver is the run of TestTakeOverWithCSIVolumes.
type takeOver struct {
	*space
	kubelet, disks string
	node           *node
	flags          []string // of both agents
	driver         *simcsi.Driver
	pods           map[string]types.UID // the pods that live
}

func (o *takeOver) driverName() string { return o.name + ".example.com" }
func (o *takeOver) root() string       { return filepath.Join(o.node.dir, "root") }

// prepare starts a node under Wherry, the driver, and what attaches the driver's volumes.
func (o *takeOver) prepare() {
	o.Helper()
	rt := filepath.Join(o.env.dir, "rt-takeover")
	o.env.addRuntime(rt)
	if err := o.env.runtimeUp(rt, o.env.subnet(rt)); err != nil {
		o.Fatal(err)
	}
	// Upstream's kubelet needs these fields on this machine. Wherry accepts them too.
	config := "failSwapOn: false\ncgroupDriver: cgroupfs\nvolumePluginDir: " + filepath.Join(o.env.dir, "takeover", "volume-plugins") + "\n"
	var err error
	if o.node, err = o.env.startNode(nodeConfig{Name: "takeover", Runtime: rt, Config: config}); err != nil {
		o.Fatal(err)
	}
	if err := o.node.waitReady(patience); err != nil {
		o.Fatal(err)
	}
	o.flags = o.node.process.cmd.Args[2:] // without the program and the word kubelet
	o.driver = simcsi.New(simcsi.Config{Name: o.driverName(), NodeID: "id", Stage: true, Mount: o.bind, Device: o.device, Unmount: o.unmount})
	o.Cleanup(o.driver.Close)
	o.apply(fmt.Sprintf(attachedDriver, o.driverName()))
	o.Cleanup(func() { o.kubectl("delete", "csidriver/"+o.driverName(), "--wait=false") })
	o.attacher()
	if err := errors.Join(o.driver.Serve(filepath.Join(o.root(), "plugins", "takeover.sock")), o.driver.Announce(filepath.Join(o.root(), "plugins_registry", "takeover.sock"))); err != nil {
		o.Fatal(err)
	}
}

const attachedDriver = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %s}
spec: {attachRequired: true, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}
`

// bind is the driver's mount of a file system: a directory of its own for each volume.
func (o *takeOver) bind(volume, target string) error {
	disk := filepath.Join(o.disks, volume)
	return errors.Join(os.MkdirAll(disk, 0o755), unix.Mount(disk, target, "", unix.MS_BIND, ""))
}

// device is the driver's block volume: a loop device of a file.
func (o *takeOver) device(volume, target string) error {
	disk := filepath.Join(o.disks, volume+".img")
	f, err := os.Create(disk)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(1<<20), f.Close()); err != nil {
		return err
	}
	out, errOut, err := output(command("losetup", "--find", "--show", disk))
	if err != nil {
		return fmt.Errorf("losetup: %w: %s", err, errOut)
	}
	loop := strings.TrimSpace(out)
	o.Cleanup(func() { _ = command("losetup", "--detach", loop).Run() })
	return unix.Mount(loop, target, "", unix.MS_BIND, "")
}

func (*takeOver) unmount(target string) error {
	if err := unix.Unmount(target, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // not mounted
		return err
	}
	return nil
}

// attacher reports the driver's volumes as attached until the test ends, as external-attacher does for a driver that needs no call for this.
func (o *takeOver) attacher() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	o.Cleanup(func() { cancel(); wg.Wait() })
	attachments := o.client().StorageV1().VolumeAttachments()
	wg.Go(func() {
		_ = wait(time.Hour, func() error {
			if ctx.Err() != nil {
				return fatal{ctx.Err()}
			}
			list, err := attachments.List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				if a := &list.Items[i]; a.Spec.Attacher == o.driverName() && !a.Status.Attached {
					a.Status.Attached = true
					_, _ = attachments.UpdateStatus(ctx, a, metav1.UpdateOptions{})
				}
			}
			return errorf("it goes on")
		})
	})
}

// takeOverVolume is a persistent volume of the driver and its claim. Its arguments are the namespace, the name and the volume mode.
const takeOverVolume = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s-%[2]s}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  volumeMode: %[3]s
  claimRef: {namespace: %[1]s, name: %[2]s}
  csi: {driver: %[1]s.example.com, volumeHandle: %[2]s, fsType: ext4}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[2]s}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeMode: %[3]s, volumeName: %[1]s-%[2]s, resources: {requests: {storage: 1Mi}}}
---
`

const takeOverPod = `
volumes:
- {name: d, persistentVolumeClaim: {claimName: %[1]s-fs}}
- {name: b, persistentVolumeClaim: {claimName: %[1]s-block}}
- {name: i, csi: {driver: %[2]s}}
- {name: e, emptyDir: {}}
- {name: m, emptyDir: {medium: Memory}}
containers:
- name: main
  image: $busybox
  command: [sh, -c, 'trap "exit 0" TERM; sleep 100000 & wait']
  volumeMounts:
  - {name: d, mountPath: /data}
  - {name: d, mountPath: /sub, subPath: a/b}
  - {name: i, mountPath: /inline}
  - {name: e, mountPath: /scratch, subPath: a}
  - {name: m, mountPath: /memory}
  volumeDevices: [{name: b, devicePath: /dev/xvda}]
`

// create creates a pod with its volumes, waits until it is Ready, and writes the pod's name into each volume.
func (o *takeOver) create(name string) {
	o.Helper()
	for mode, volume := range map[string]string{"Filesystem": name + "-fs", "Block": name + "-block"} {
		o.apply(fmt.Sprintf(takeOverVolume, o.name, volume, mode))
		o.Cleanup(func() { o.kubectl("delete", "pv/"+o.name+"-"+volume, "--wait=false") })
	}
	o.pod(name, fmt.Sprintf(takeOverPod, name, o.driverName()), onNode(o.node))
	o.pods[name] = o.ready(name).UID
	o.sh(name, "for f in /data/file /sub/file /inline/file /dev/xvda; do echo "+name+" > $f; done; sync")
}

// volumes returns the driver's handles of a pod's volumes; the last one is that of the inline volume.
func (o *takeOver) volumes(name string) []string {
	return []string{name + "-fs", name + "-block", csispec.InlineHandle(o.pods[name], "i")}
}

// change ends the agent, starts another program in its place with the same flags, and waits until it has looked at every pod. It returns how
// often the new agent has called each method of the driver for each volume.
func (o *takeOver) change(program string, first ...string) map[string]int {
	o.Helper()
	o.node.process.stop()
	from := len(o.driver.Calls())
	o.node.starts++
	var err error
	if o.node.process, err = start(filepath.Join(o.env.dir, fmt.Sprintf("node-takeover-%d.log", o.node.starts)), program, append(first, o.flags...)...); err != nil {
		o.Fatal(err)
	}
	upstream := program == o.kubelet
	o.eventually("the Node to have the version of "+program, func() error {
		if err := o.node.process.alive(); err != nil {
			return fatal{err}
		}
		version := o.kubectl("get", "node", o.node.Name, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}")
		if strings.Contains(version, "wherry") == upstream {
			return errors.New(version)
		}
		return nil
	})
	if err := o.node.waitReady(patience); err != nil {
		o.Fatal(err)
	}
	o.pod("probe", `containers: [{name: main, image: $busybox, command: [sleep, "100000"]}]`, onNode(o.node))
	o.ready("probe")
	o.kubectl("delete", "pod", "probe", "--wait=false", "--grace-period=1")
	o.gone("probe")
	o.eventually("the new agent to know the volumes", func() error {
		for name, uid := range o.pods {
			for i, volume := range o.volumes(name) {
				if upstream { // it publishes every volume again
					if o.calls(from)["NodePublishVolume "+volume] == 0 {
						return fmt.Errorf("volume %s of %s has not been published", volume, name)
					}
					continue
				}
				record := filepath.Join(o.root(), "pods", string(uid), "claims", []string{"d", "b", "i"}[i])
				if text, err := os.ReadFile(record); err != nil || !strings.Contains(string(text), `"done":true`) {
					return fmt.Errorf("the record of volume %s of %s: %s, %v", volume, name, text, err)
				}
			}
		}
		return nil
	})
	return o.calls(from)
}

// calls counts the calls about volumes, beginning with number from, as "method volume".
func (o *takeOver) calls(from int) map[string]int {
	counts := map[string]int{}
	for _, call := range o.driver.Calls()[from:] {
		if method, _, _ := strings.Cut(call, " "); slices.Contains([]string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"}, method) {
			counts[call]++
		}
	}
	return counts
}

// asked logs the calls of an agent that has taken over, and fails the test if one of them takes a volume away.
func (o *takeOver) asked(agent string, calls map[string]int) {
	o.Helper()
	byMethod := map[string]int{}
	for call, n := range calls {
		method, _, _ := strings.Cut(call, " ")
		byMethod[method] += n
		if strings.HasPrefix(method, "NodeUn") {
			o.Errorf("%s has called %s", agent, call)
		}
	}
	o.Logf("%s, with %d pods of three volumes: %v", agent, len(o.pods), byMethod)
}

// look returns what a take-over must not change: the containers and sandboxes of the pods, their restarts, and the mounts of the node.
func (o *takeOver) look() string {
	o.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(o.pods)) {
		for _, args := range [][]string{{"ps", "-q"}, {"ps", "-a", "-q"}, {"pods", "-q"}} {
			out, err := o.node.crictl(append(args, "--label", "io.kubernetes.pod.uid="+string(o.pods[name]))...)
			if err != nil {
				o.Fatal(err)
			}
			fmt.Fprintf(&b, "%s %v: %q\n", name, args, slices.Sorted(slices.Values(strings.Fields(out))))
		}
		fmt.Fprintf(&b, "%s restarts: %d\n", name, o.get(name).Status.ContainerStatuses[0].RestartCount)
	}
	for _, m := range o.mounts() {
		fmt.Fprintln(&b, m)
	}
	return b.String()
}

// mounts lists what is mounted below the node's directory, sorted: mount point, what is mounted there, type.
func (o *takeOver) mounts() (all []string) {
	o.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(o.root()))
	if err != nil {
		o.Fatal(err)
	}
	for _, m := range infos {
		if m.Mountpoint != o.root() { // Wherry makes its directory a shared mount
			all = append(all, fmt.Sprintf("mount %s %s %s %s", m.Mountpoint, m.Source, m.Root, m.FSType))
		}
	}
	slices.Sort(all)
	return all
}

// unchanged fails the test if the containers or the mounts are others than before, or a pod does not find its data.
func (o *takeOver) unchanged(agent, before string) {
	o.Helper()
	if after := o.look(); after != before {
		o.Errorf("%s has changed what it found. Before:\n%s\nafter:\n%s", agent, before, after)
	}
	for name := range o.pods {
		o.same("the data of "+name, o.sh(name, fmt.Sprintf("cat /data/file /sub/file /inline/file; head -c %d /dev/xvda; cat /data/a/b/file", len(name)+1)), strings.Repeat(name+"\n", 5))
	}
}

// remove deletes a pod, and waits until nothing of it and of its volumes is left on the node.
func (o *takeOver) remove(name string) {
	o.Helper()
	o.kubectl("delete", "pod", name, "--wait=false")
	o.gone(name)
	uid, plugins := string(o.pods[name]), filepath.Join(o.root(), "plugins/kubernetes.io/csi")
	block := o.name + "-" + name + "-block"
	o.eventually("nothing to be left of "+name, func() error {
		for _, path := range []string{
			filepath.Join(o.root(), "pods", uid), filepath.Join(plugins, o.driverName(), csispec.StagingDir(name+"-fs")),
			filepath.Join(plugins, "volumeDevices", block), filepath.Join(plugins, "volumeDevices/staging", block), filepath.Join(plugins, "volumeDevices/publish", block),
		} {
			if _, err := os.Lstat(path); err == nil {
				return fmt.Errorf("%s is left: %q", path, list(path))
			}
		}
		for _, m := range o.mounts() {
			if strings.Contains(m, uid) || strings.Contains(m, block) || strings.Contains(m, csispec.StagingDir(name+"-fs")) {
				return errors.New(m)
			}
		}
		loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		for _, file := range loops {
			if text, _ := os.ReadFile(file); strings.Contains(string(text), uid) {
				return fmt.Errorf("%s: %s", file, text)
			}
		}
		return o.releasedAll(name)
	})
	delete(o.pods, name)
}

// releasedAll returns an error if the driver or the cluster still has a volume of a pod in use.
func (o *takeOver) releasedAll(name string) error {
	for _, volume := range o.volumes(name) {
		var last string
		for _, call := range o.driver.Calls() {
			if strings.HasSuffix(call, "Volume "+volume) {
				last = strings.Fields(call)[0]
			}
		}
		if want := map[bool]string{true: "NodeUnpublishVolume", false: "NodeUnstageVolume"}[strings.HasPrefix(volume, "csi-")]; last != want {
			return fmt.Errorf("the last call for volume %s is %s, want %s", volume, last, want)
		}
		attachment := csispec.Attachment(volume, o.driverName(), o.node.Name)
		if out := o.kubectl("get", "volumeattachments", attachment, "--ignore-not-found", "-o", "name"); out != "" {
			return fmt.Errorf("volume %s is attached: %s", volume, out)
		}
	}
	node, err := o.client().CoreV1().Nodes().Get(context.Background(), o.node.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(node.Status.VolumesInUse, func(v v1.UniqueVolumeName) bool { return strings.Contains(string(v), name+"-") }); i >= 0 {
		return fmt.Errorf("the Node's status has volumesInUse: %v", node.Status.VolumesInUse)
	}
	return nil
}
