package volume_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

const (
	portal = "192.0.2.1:3260"
	iqn    = "iqn.2026-11.com.example:disks"
)

// sanHost is the real host with a simulated storage area network: an iSCSI target with portals, and links to Fibre Channel disks. The disks are
// loop devices of the test.
type sanHost struct {
	hostfs.Host
	mu        sync.Mutex
	ran       []string                  // the command lines of iscsiadm and multipath
	portals   map[string]map[int]string // the devices that the target exports at each of its portals, by unit number
	hidden    map[string]bool           // portals that do not answer
	sessions  map[string]*hostfs.ISCSISession
	multipath map[string]string            // the multipath device of a device
	flushed   []string                     // multipath devices that were taken apart
	ids       map[string]string            // the identifiers of disks, by device; a disk that was not removed has naa.1, unless there is another one here
	links     map[string]map[string]string // in /dev/disk
	scanned   map[string]map[string]string // the links that there are after a scan for Fibre Channel disks
	busy      map[string]bool              // devices that are still mounted somewhere
	hung      bool                         // the targets do not answer to logouts
	removed   []string
	stuck     error         // the answer to each unmount; nil: it is made
	asked     []string      // the scans and removals that have begun
	hang      chan struct{} // scans and removals wait until it is closed; nil: they do not
}

func (h *sanHost) Unmount(target string) error {
	if h.stuck != nil {
		return h.stuck
	}
	return h.Host.Unmount(target)
}

func option(argv []string, name string) string {
	if i := slices.Index(argv, name); i >= 0 && i+1 < len(argv) {
		return argv[i+1]
	}
	return ""
}

func (h *sanHost) RunTool(ctx context.Context, argv []string) (hostfs.Ran, error) {
	if argv[0] != "iscsiadm" && argv[0] != "multipath" {
		return h.Host.RunTool(ctx, argv)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ran = append(h.ran, strings.Join(argv, " "))
	at, iface := option(argv, "-p"), option(argv, "-I")
	key := at + " " + iface
	fail := func(code int, text string) (hostfs.Ran, error) { return hostfs.Ran{Code: code}, errors.New(text) }
	switch {
	case argv[0] == "multipath":
		maps.DeleteFunc(h.multipath, func(_, dm string) bool { return dm == argv[2] })
		maps.DeleteFunc(h.links["by-id"], func(_, to string) bool { return to == argv[2] })
		h.flushed = append(h.flushed, argv[2])
	case slices.Contains(argv, "--discover") && (h.hidden[at] || h.portals[at] == nil):
		return fail(4, "cannot make connection to "+at)
	case slices.Contains(argv, "--login"):
		h.sessions[key] = &hostfs.ISCSISession{Portal: at, Interface: iface, Host: len(h.sessions), Disks: map[int]string{}}
	case slices.Contains(argv, "--logout") && h.hung:
		return fail(8, "timed out")
	case slices.Contains(argv, "--logout"):
		if h.sessions[key] == nil {
			return fail(21, "no matching sessions")
		}
		delete(h.sessions, key)
	case slices.Contains(argv, "show"):
		return hostfs.Ran{Output: "# BEGIN RECORD\niface.iscsi_ifacename = default\niface.transport_name = tcp\niface.mtu = 0\niface.hwaddress = <empty>\niface.initiatorname = iqn.host\n# END RECORD\n"}, nil
	}
	return hostfs.Ran{}, nil
}

func (h *sanHost) ISCSISessions(target string) (all []hostfs.ISCSISession, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		if target == iqn {
			all = append(all, hostfs.ISCSISession{Portal: s.Portal, Interface: s.Interface, Host: s.Host, Disks: maps.Clone(s.Disks)})
		}
	}
	return all, nil
}

// asks counts a scan or removal, and waits until it goes on.
func (h *sanHost) asks(what string) {
	h.mu.Lock()
	h.asked = append(h.asked, what)
	hang := h.hang
	h.mu.Unlock()
	if hang != nil {
		<-hang
	}
}

func (h *sanHost) ScanUnit(host, unit int) error {
	h.asks("scan unit " + strconv.Itoa(unit))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		if device := h.portals[s.Portal][unit]; s.Host == host && device != "" {
			s.Disks[unit] = device
		}
	}
	return nil
}

func (h *sanHost) ScanFibreChannel() error {
	h.asks("scan")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.scanned == nil {
		return errors.New("this node has no Fibre Channel port")
	}
	h.links = h.scanned
	return nil
}

func (h *sanHost) DiskLinks(by string) (map[string]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.links[by]), nil
}

func (h *sanHost) MultipathOf(device string) (string, []string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := ""
	for path, dm := range h.multipath {
		if path == device || dm == device {
			found = dm
		}
	}
	var paths []string
	for path, dm := range h.multipath {
		if dm == found {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return found, paths, nil
}

func (h *sanHost) DiskID(device string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id, ok := h.ids[device]; ok || slices.Contains(h.removed, device) {
		return id
	}
	return "naa.1"
}

func (h *sanHost) RemoveDisk(device string) error {
	h.asks("remove " + device)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy[device] {
		return hostfs.ErrDiskBusy
	}
	if slices.Contains(h.flushed, device) {
		return fmt.Errorf("%q is not the name of a SCSI disk", device)
	}
	h.removed = append(h.removed, device)
	for _, s := range h.sessions {
		maps.DeleteFunc(s.Disks, func(_ int, d string) bool { return d == device })
	}
	return nil
}

// commands returns the command lines since the last call.
func (h *sanHost) commands() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.ran
	h.ran = nil
	return all
}

// newSAN returns a fixture on a node whose attach-detach controller attaches each volume at once.
func newSAN(t *testing.T, h *sanHost) *fixture {
	t.Helper()
	needRoot(t)
	f := newFixture(t)
	h.sessions = map[string]*hostfs.ISCSISession{}
	f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: h, Objects: f.api, Claims: f.claims, InUseChanged: func() { f.attachAll() }})
	return f
}

// attachAll does what the status loop of the node and the attach-detach controller do.
func (f *fixture) attachAll() {
	names, _ := f.InUse()
	f.claims.set(func() {
		f.claims.node.Status.VolumesInUse, f.claims.node.Status.VolumesAttached = names, nil
		for _, name := range names {
			f.claims.node.Status.VolumesAttached = append(f.claims.node.Status.VolumesAttached, v1.AttachedVolume{Name: name})
		}
	})
	f.Reported(names)
	f.NodeChanged()
}

func iscsiPod(uid types.UID, src v1.ISCSIVolumeSource) *v1.Pod {
	if src.TargetPortal == "" {
		src.TargetPortal = "192.0.2.1"
	}
	if src.IQN == "" {
		src.IQN = iqn
	}
	p := aPod(vol("v", v1.VolumeSource{ISCSI: &src}))
	p.UID, p.Name = uid, "p-"+string(uid)
	return p
}

// down takes down the volumes of a pod, and lets the node disconnect the disks that no pod uses.
func (f *fixture) down(t *testing.T, uid types.UID) {
	t.Helper()
	f.leave(t, uid)
	if err := f.UnstageUnused(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// leave takes down the volumes of a pod.
func (f *fixture) leave(t *testing.T, uid types.UID) {
	t.Helper()
	if err := f.TearDown(t.Context(), pod.Ref{UID: uid}); err != nil {
		t.Fatal(err)
	}
}

// nothingLeft checks that no mount, no directory of a disk and no session is left.
func (f *fixture) nothingLeft(t *testing.T, h *sanHost) {
	t.Helper()
	if left, err := host(t).MountPoints(f.root); len(left) > 0 || err != nil {
		t.Errorf("mounts are left: %v %v", left, err)
	}
	for _, plugin := range []string{"plugins/kubernetes.io/iscsi", "plugins/kubernetes.io/fc", "plugins/kubernetes.io/iscsi/volumeDevices", "plugins/kubernetes.io/fc/volumeDevices"} {
		entries, _ := os.ReadDir(filepath.Join(f.root, plugin))
		for _, e := range entries {
			if e.Name() != "volumeDevices" {
				t.Errorf("%s has %s", plugin, e.Name())
			}
		}
	}
	if len(h.sessions) > 0 {
		t.Errorf("sessions are left: %v", h.sessions)
	}
	if names, ok := f.InUse(); len(names) > 0 || !ok {
		t.Errorf("in use: %v %v", names, ok)
	}
}

const (
	discovery = "iscsiadm -m discoverydb -t sendtargets -p " + portal + " -I default"
	nodeOf    = "iscsiadm -m node -p " + portal + " -T " + iqn + " -I default"
)

// Two pods of a node share an iSCSI disk, which is formatted once. The node logs in for the first and logs out after the last one.
func TestISCSI(t *testing.T) {
	t.Parallel()
	h := &sanHost{portals: map[string]map[int]string{portal: {3: emptyDisk(t)}}}
	f := newSAN(t, h)
	one, two := iscsiPod("uid-1", v1.ISCSIVolumeSource{Lun: 3}), iscsiPod("uid-2", v1.ISCSIVolumeSource{Lun: 3, TargetPortal: portal})
	one.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(4242))}
	setUp(t, f, one)
	if diff := cmp.Diff([]string{
		discovery + " -o new", discovery + " --discover", nodeOf + " -o update -n node.session.scan -v manual",
		nodeOf + " -o update -n node.startup -v manual", nodeOf + " --login",
	}, h.commands()); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	setUp(t, f, one)
	setUp(t, f, two)
	if got := h.commands(); len(got) > 0 {
		t.Errorf("the second pod makes the node run %q", got)
	}
	if names, _ := f.InUse(); !slices.Contains(names, "kubernetes.io/iscsi/192.0.2.1:"+iqn+":3") {
		t.Errorf("in use: %v", names)
	}
	at := dir(t, f, one, "v")
	if want := filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~iscsi/v"); at != want {
		t.Errorf("the container gets %s, want %s", at, want)
	}
	if got := ownerOf(t, at); got.GID != 4242 {
		t.Errorf("owner %+v", got)
	}
	if err := os.WriteFile(filepath.Join(at, "file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir(t, f, two, "v"), "file")); err != nil {
		t.Errorf("the second pod: %v", err)
	}
	f.down(t, "uid-1")
	if mounted, err := host(t).Mounted(filepath.Join(f.root, "plugins/kubernetes.io/iscsi/iface-default/"+portal+"-"+iqn+"-lun-3")); !mounted || err != nil {
		t.Errorf("the disk that a pod uses is not mounted: %v", err)
	}
	f.down(t, "uid-2")
	if diff := cmp.Diff([]string{nodeOf + " --logout", nodeOf + " -o delete"}, h.commands()); diff != "" {
		t.Errorf("commands at the end (-want +got):\n%s", diff)
	}
	if !slices.Equal(h.removed, []string{h.portals[portal][3]}) {
		t.Errorf("removed disks: %v", h.removed)
	}
	f.nothingLeft(t, h)

	three := iscsiPod("uid-3", v1.ISCSIVolumeSource{Lun: 3, ReadOnly: true})
	setUp(t, f, three)
	at = dir(t, f, three, "v")
	if _, err := os.Stat(filepath.Join(at, "file")); err != nil {
		t.Errorf("the data is gone: %v", err)
	}
	if err := os.WriteFile(filepath.Join(at, "more"), nil, 0o644); err == nil {
		t.Error("a read-only volume can be written to")
	}
	f.down(t, "uid-3")
	f.nothingLeft(t, h)
}

// A persistent volume with volumeMode Block is the disk itself, at the paths of upstream's kubelet.
func TestISCSIBlockVolume(t *testing.T) {
	t.Parallel()
	device := emptyDisk(t)
	h := &sanHost{portals: map[string]map[int]string{portal: {0: device}}}
	f := newSAN(t, h)
	pv := f.claims.bind("c", v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: portal, IQN: iqn}})
	pv.Spec.VolumeMode = ptr(v1.PersistentVolumeBlock)
	p := raw(claimPod("uid-1", "c"), "v")
	setUp(t, f, p)
	setUp(t, f, p)
	devices, err := f.Devices(p, &p.Spec.Containers[0])
	if err != nil || len(devices) != 1 {
		t.Fatalf("%v %v", devices, err)
	}
	if want := filepath.Join(f.root, "pods/uid-1/volumeDevices/kubernetes.io~iscsi/pv-c"); devices[0].HostPath != want {
		t.Errorf("device %v, want %s", devices[0], want)
	}
	if real, err := filepath.EvalSymlinks(devices[0].HostPath); err != nil || real != device {
		t.Errorf("the link leads to %s: %v", real, err)
	}
	held := filepath.Join(f.root, "plugins/kubernetes.io/iscsi/volumeDevices/iface-default/"+portal+"-"+iqn+"-lun-0/uid-1")
	if n := heldBy(t, held); n != 1 {
		t.Errorf("held by %d loop devices", n)
	}
	if err := os.RemoveAll(filepath.Join(f.root, "pods/uid-1/claims")); err != nil { // upstream's kubelet has no records
		t.Fatal(err)
	}
	f.down(t, "uid-1")
	if n := heldBy(t, held); n != 0 {
		t.Errorf("still held by %d loop devices", n)
	}
	f.nothingLeft(t, h)
}

// A disk that upstream's kubelet has mounted has no record. Its volume is in use until the disk is disconnected. A disk that is busy keeps no pod from
// ending: the node tries again, and so does the next agent.
func TestISCSIDiskOfUpstreamsKubelet(t *testing.T) {
	t.Parallel()
	device := emptyDisk(t)
	h := &sanHost{portals: map[string]map[int]string{portal: {3: device}}}
	f := newSAN(t, h)
	setUp(t, f, iscsiPod("uid-1", v1.ISCSIVolumeSource{Lun: 3}))
	if err := os.RemoveAll(filepath.Join(f.root, "pods/uid-1/claims")); err != nil {
		t.Fatal(err)
	}
	again := func() {
		f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: h, Objects: f.api, Claims: f.claims})
	}
	again()
	both := []v1.UniqueVolumeName{"kubernetes.io/iscsi/192.0.2.1:" + iqn + ":3", "kubernetes.io/iscsi/192.0.2.1:3260:" + iqn + ":3"} // the path does not show which is right
	if names, ok := f.InUse(); !ok || !slices.Equal(names, both) {
		t.Errorf("in use: %v %v", names, ok)
	}
	h.busy = map[string]bool{device: true}
	f.leave(t, "uid-1")
	if err := f.UnstageUnused(t.Context()); err == nil || !strings.Contains(err.Error(), "disk is still in use") {
		t.Errorf("error %v", err)
	}
	if names, _ := f.InUse(); !slices.Equal(names, both) {
		t.Errorf("in use, while the disk is busy: %v", names)
	}
	if len(h.sessions) != 1 {
		t.Error("the node logged out of a target whose disk is busy")
	}
	again()
	if names, _ := f.InUse(); !slices.Equal(names, both) {
		t.Errorf("in use, while the disk is busy, as the next agent says: %v", names)
	}
	h.busy = nil
	if err := f.UnstageUnused(t.Context()); err != nil {
		t.Error(err)
	}
	f.nothingLeft(t, h)
}

// A target that does not answer to the logout keeps no pod from ending. The Node has an event about it, the next pod gets the disk, and after
// that one the node logs out.
func TestISCSITargetThatDoesNotAnswerAtTheEnd(t *testing.T) {
	t.Parallel()
	h := &sanHost{portals: map[string]map[int]string{portal: {3: emptyDisk(t)}}, hung: true}
	f := newSAN(t, h)
	var events []string
	f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: h, Objects: f.api, Claims: f.claims, InUseChanged: func() { f.attachAll() },
		Event: func(about *v1.ObjectReference, _, reason, message string) {
			events = append(events, about.Kind+" "+reason+": "+message)
		}})
	setUp(t, f, iscsiPod("uid-1", v1.ISCSIVolumeSource{Lun: 3}))
	f.leave(t, "uid-1")
	for range 3 {
		if err := f.UnstageUnused(t.Context()); err == nil {
			t.Error("no error, although the target does not answer")
		}
	}
	want := "Node FailedUnstageVolume: iscsi disk 192.0.2.1:" + iqn + ":3 stays connected to this node, although no pod uses it: disconnect the disk: log out of " + iqn + ": timed out. The node tries again"
	if !slices.Equal(events, []string{want}) {
		t.Errorf("events %q, want one: %q", events, want)
	}
	if names, _ := f.InUse(); len(names) != 1 {
		t.Errorf("in use, while the node is logged in: %v", names)
	}
	setUp(t, f, iscsiPod("uid-2", v1.ISCSIVolumeSource{Lun: 3}))
	if err := f.UnstageUnused(t.Context()); err != nil {
		t.Errorf("while the next pod uses the disk: %v", err)
	}
	h.hung = false
	f.down(t, "uid-2")
	f.nothingLeft(t, h)
}

// An agent disconnects what the agent before it has left: disks that are mounted, and disks that pods had as devices. It leaves alone what is no
// directory of a disk.
func TestDisksOfAnEarlierAgent(t *testing.T) {
	t.Parallel()
	h := &sanHost{portals: map[string]map[int]string{portal: {0: emptyDisk(t), 3: emptyDisk(t), 4: emptyDisk(t)}}}
	f := newSAN(t, h)
	pv := f.claims.bind("c", v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: portal, IQN: iqn}})
	pv.Spec.VolumeMode = ptr(v1.PersistentVolumeBlock)
	setUp(t, f, raw(claimPod("uid-1", "c"), "v"))
	setUp(t, f, iscsiPod("uid-2", v1.ISCSIVolumeSource{Lun: 3}))
	setUp(t, f, iscsiPod("uid-3", v1.ISCSIVolumeSource{Lun: 4}))
	f.leave(t, "uid-1")
	f.leave(t, "uid-2")
	plugin := filepath.Join(f.root, "plugins/kubernetes.io/iscsi")
	others := []string{filepath.Join(plugin, "file"), filepath.Join(plugin, "volumeDevices/file")}
	for _, file := range others {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: h, Objects: f.api, Claims: f.claims, InUseChanged: func() { f.attachAll() }})
	if names, ok := f.InUse(); len(names) != 5 || !ok { // both spellings of the names of two disks
		t.Errorf("in use: %v", names)
	}
	if err := f.UnstageUnused(t.Context()); err != nil {
		t.Error(err)
	}
	if names, _ := f.InUse(); !slices.Equal(names, []v1.UniqueVolumeName{"kubernetes.io/iscsi/192.0.2.1:" + iqn + ":4"}) || len(h.removed) != 2 || len(h.sessions) != 1 {
		t.Errorf("in use: %v; removed %v; sessions %v", names, h.removed, h.sessions)
	}
	for _, file := range others {
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
	f.down(t, "uid-3")
	f.nothingLeft(t, h)
}

// A session in which the machine sees another disk stays: that disk may be one of the machine itself.
func TestISCSISessionOfOthersStays(t *testing.T) {
	t.Parallel()
	h := &sanHost{portals: map[string]map[int]string{portal: {3: emptyDisk(t)}}}
	f := newSAN(t, h)
	h.sessions[portal+" default"] = &hostfs.ISCSISession{Portal: portal, Interface: "default", Disks: map[int]string{0: "/dev/sda"}}
	setUp(t, f, iscsiPod("uid-1", v1.ISCSIVolumeSource{Lun: 3}))
	f.down(t, "uid-1")
	if got := h.commands(); len(got) > 0 || len(h.sessions) != 1 || len(h.removed) != 1 {
		t.Errorf("commands %q, sessions %v, removed %v", got, h.sessions, h.removed)
	}
	clear(h.sessions)
	f.nothingLeft(t, h)
}

// One portal of two is enough. The device of multipathd stands for both.
func TestISCSIWithTwoPortals(t *testing.T) {
	t.Parallel()
	device := emptyDisk(t)
	const other = "[2001:db8::1]:3260"
	h := &sanHost{portals: map[string]map[int]string{portal: {3: "/dev/sdx"}, other: {3: "/dev/sdy"}}, multipath: map[string]string{"/dev/sdx": device, "/dev/sdy": device}}
	f := newSAN(t, h)
	src := v1.ISCSIVolumeSource{Lun: 3, Portals: []string{"192.0.2.1", "2001:db8::1"}}
	setUp(t, f, iscsiPod("uid-1", src))
	if len(h.sessions) != 2 {
		t.Errorf("sessions %v", h.sessions)
	}
	h.commands()
	f.down(t, "uid-1")
	if got := h.commands(); len(got) != 5 || got[0] != "multipath -f "+device {
		t.Errorf("commands at the end: %q", got)
	}
	slices.Sort(h.removed)
	if !slices.Equal(h.removed, []string{"/dev/sdx", "/dev/sdy"}) {
		t.Errorf("removed disks: %v", h.removed)
	}
	f.nothingLeft(t, h)

	h.hidden, h.flushed = map[string]bool{other: true}, nil
	h.portals[portal][3] = device
	setUp(t, f, iscsiPod("uid-2", src))
	f.down(t, "uid-2")
	f.nothingLeft(t, h)
}

// A volume that names its initiator has an interface of its own, which is removed with it. Names and passwords come from the secret.
func TestISCSIInitiatorAndCHAP(t *testing.T) {
	t.Parallel()
	h := &sanHost{portals: map[string]map[int]string{portal: {3: emptyDisk(t)}}}
	f := newSAN(t, h)
	f.claims.secrets["ns/chap"] = &v1.Secret{Data: map[string][]byte{
		"discovery.sendtargets.auth.username": []byte("u1"), "discovery.sendtargets.auth.password": []byte("p1"),
		"node.session.auth.username": []byte("u2"), "node.session.auth.password": []byte("p2"), "node.session.auth.password_in": []byte("p3"), "other": []byte("o"),
	}}
	setUp(t, f, iscsiPod("uid-1", v1.ISCSIVolumeSource{Lun: 3, InitiatorName: ptr("iqn.2026-11.com.example:node"), SecretRef: &v1.LocalObjectReference{Name: "chap"},
		DiscoveryCHAPAuth: true, SessionCHAPAuth: true}))
	own := portal + ":v"
	iface, found, node := "iscsiadm -m iface -I "+own, "iscsiadm -m discoverydb -t sendtargets -p "+portal+" -I "+own, "iscsiadm -m node -p "+portal+" -T "+iqn+" -I "+own
	if diff := cmp.Diff([]string{
		"iscsiadm -m iface -I default -o show", iface + " -o new", iface + " -o update -n iface.transport_name -v tcp", iface + " -o update -n iface.mtu -v 0",
		iface + " -o update -n iface.initiatorname -v iqn.2026-11.com.example:node",
		found + " -o new", found + " -o update -n discovery.sendtargets.auth.authmethod -v CHAP", found + " -o update -n discovery.sendtargets.auth.username -v u1",
		found + " -o update -n discovery.sendtargets.auth.password -v p1", found + " --discover", node + " -o update -n node.session.scan -v manual",
		node + " -o update -n node.session.auth.authmethod -v CHAP", node + " -o update -n node.session.auth.username -v u2",
		node + " -o update -n node.session.auth.password -v p2", node + " -o update -n node.session.auth.password_in -v p3",
		node + " -o update -n node.startup -v manual", node + " --login",
	}, h.commands()); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	f.down(t, "uid-1")
	if diff := cmp.Diff([]string{node + " --logout", node + " -o delete", iface + " -o delete"}, h.commands()); diff != "" {
		t.Errorf("commands at the end (-want +got):\n%s", diff)
	}
	f.nothingLeft(t, h)
}

// A persistent volume may name its secret without a namespace: then it is that of the claim.
func TestISCSISecretOfAPersistentVolume(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"", "vault"} {
		h := &sanHost{portals: map[string]map[int]string{portal: {3: emptyDisk(t)}}}
		f := newSAN(t, h)
		at := namespace
		if at == "" {
			at = "ns"
		}
		f.claims.secrets[at+"/chap"] = &v1.Secret{Data: map[string][]byte{"node.session.auth.password": []byte("p1")}}
		f.claims.bind("c", v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{
			TargetPortal: portal, IQN: iqn, Lun: 3, SessionCHAPAuth: true, SecretRef: &v1.SecretReference{Name: "chap", Namespace: namespace},
		}})
		setUp(t, f, claimPod("uid-1", "c"))
		if got := h.commands(); !slices.Contains(got, nodeOf+" -o update -n node.session.auth.password -v p1") {
			t.Errorf("namespace %q: commands %q", namespace, got)
		}
		f.down(t, "uid-1")
		f.nothingLeft(t, h)
	}
}

func TestISCSIVolumesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		src  v1.ISCSIVolumeSource
		want string
	}{
		"a host name":              {v1.ISCSIVolumeSource{TargetPortal: "storage.example.com"}, `portal "storage.example.com" is not an IP address`},
		"an option":                {v1.ISCSIVolumeSource{TargetPortal: "--help"}, "is not an IP address"},
		"another portal":           {v1.ISCSIVolumeSource{Portals: []string{"192.0.2.1/24"}}, "is not an IP address"},
		"very many portals":        {v1.ISCSIVolumeSource{Portals: make([]string, 1000)}, "iscsi.portals has 1000 addresses"},
		"a zone":                   {v1.ISCSIVolumeSource{TargetPortal: "[fe80::1%../..]:3260"}, "is not an IP address"},
		"a path":                   {v1.ISCSIVolumeSource{IQN: "iqn.x/../../../etc"}, "iscsi.iqn"},
		"an option as a target":    {v1.ISCSIVolumeSource{IQN: "-x"}, "iscsi.iqn"},
		"no target":                {v1.ISCSIVolumeSource{IQN: "disks"}, "must begin with iqn., eui. or naa., as qualified names do"},
		"a path as an interface":   {v1.ISCSIVolumeSource{ISCSIInterface: "../x"}, "iscsi.iscsiInterface"},
		"an option as initiator":   {v1.ISCSIVolumeSource{InitiatorName: ptr("-x")}, "iscsi.initiatorName"},
		"a unit":                   {v1.ISCSIVolumeSource{Lun: 256}, "iscsi.lun 256 must be between 0 and 255"},
		"a negative unit":          {v1.ISCSIVolumeSource{Lun: -1}, "iscsi.lun -1"},
		"no secret":                {v1.ISCSIVolumeSource{SessionCHAPAuth: true}, "asks for CHAP authentication and has no secretRef"},
		"a secret that is missing": {v1.ISCSIVolumeSource{SessionCHAPAuth: true, SecretRef: &v1.LocalObjectReference{Name: "s"}}, "secret ns/s of the volume not found"},
		"a target that is away":    {v1.ISCSIVolumeSource{TargetPortal: "192.0.2.9"}, "portal 192.0.2.9:3260: ask for the targets: cannot make connection to 192.0.2.9:3260"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &sanHost{portals: map[string]map[int]string{portal: {}}}
			f := newSAN(t, h)
			wantError(t, f.SetUp(t.Context(), volume.Pod{Pod: iscsiPod("uid-1", tt.src)}), "v", tt.want)
			f.down(t, "uid-1")
			f.nothingLeft(t, h)
		})
	}
}

// Whatever is in the file beside a disk, and in the name of its directory, the disk can be disconnected, and no command gets an argument that is not a name.
func TestISCSIFileOfAnotherDisk(t *testing.T) {
	t.Parallel()
	for i, text := range []string{"", "{", `{"Portals":["192.0.2.9:3260"],"Iqn":"iqn.other","Lun":"3","Iface":"default","InitIface":"default"}`, `{"Portals":["--help"],"Iqn":"` + iqn + `","Lun":"3","Iface":"default","InitIface":"default"}`, `{"Lun":"x"}`} {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			h := &sanHost{portals: map[string]map[int]string{portal: {3: emptyDisk(t)}}}
			f := newSAN(t, h)
			p := iscsiPod("uid-1", v1.ISCSIVolumeSource{Lun: 3})
			setUp(t, f, p)
			at := filepath.Join(f.root, "plugins/kubernetes.io/iscsi/iface-default/"+portal+"-"+iqn+"-lun-3")
			real := host(t)
			if err := errors.Join(real.Unmount(filepath.Join(f.root, "pods/uid-1/volumes/kubernetes.io~iscsi/v")), real.Unmount(at), os.WriteFile(filepath.Join(at, "iscsi.json"), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
			h.commands()
			f.down(t, "uid-1")
			if diff := cmp.Diff([]string{nodeOf + " --logout", nodeOf + " -o delete"}, h.commands()); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
			f.nothingLeft(t, h)
		})
	}
}

// Until the Node's status lists the disk as in use and as attached, it is not connected: another node may still write to it.
func TestSANDiskWaitsForTheController(t *testing.T) {
	t.Parallel()
	h := &sanHost{portals: map[string]map[int]string{portal: {}}}
	f := newSAN(t, h)
	f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: h, Objects: f.api, Claims: f.claims})
	ctx, cancel := context.WithCancel(t.Context())
	f.claims.looked = cancel
	if err := f.SetUp(ctx, volume.Pod{Pod: iscsiPod("uid-1", v1.ISCSIVolumeSource{Lun: 3})}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got := h.commands(); len(got) > 0 {
		t.Errorf("commands before the disk is attached: %q", got)
	}
	f.claims.set(func() { f.claims.looked = nil })
	// A node without an API server has no such controller.
	alone := volume.New(volume.Config{RootDir: t.TempDir(), Host: h})
	wantError(t, alone.SetUp(t.Context(), volume.Pod{Pod: iscsiPod("uid-1", v1.ISCSIVolumeSource{TargetPortal: "192.0.2.9"})}), "v", "cannot make connection")
	if err := alone.TearDown(t.Context(), pod.Ref{UID: "uid-1"}); err != nil {
		t.Error(err)
	}
}

// A disk that one pod has as a file system and another one as a device stays connected until both have ended.
func TestISCSIDiskInBothModes(t *testing.T) {
	t.Parallel()
	device := emptyDisk(t)
	h := &sanHost{portals: map[string]map[int]string{portal: {0: device}}}
	f := newSAN(t, h)
	pv := f.claims.bind("c", v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: portal, IQN: iqn}})
	pv.Spec.VolumeMode = ptr(v1.PersistentVolumeBlock)
	setUp(t, f, iscsiPod("uid-1", v1.ISCSIVolumeSource{}))
	setUp(t, f, raw(claimPod("uid-2", "c"), "v"))
	f.down(t, "uid-1")
	if len(h.removed) > 0 || len(h.sessions) != 1 {
		t.Errorf("the device of a pod was taken away: removed %v, sessions %v", h.removed, h.sessions)
	}
	f.down(t, "uid-2")
	if len(h.removed) != 1 {
		t.Errorf("removed disks: %v", h.removed)
	}
	f.nothingLeft(t, h)
}
