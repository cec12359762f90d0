package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

const (
	iscsiPort     = "3260"
	iscsiFile     = "iscsi.json"
	iscsiDefault  = "default" // the interface that a volume uses if it names none
	discoveryMode = "discovery.sendtargets.auth."
	sessionMode   = "node.session.auth."
	// loginWithin is how long one call of iscsiadm may take. iscsid tries to log in for two minutes by itself.
	loginWithin = 125 * time.Second
)

// Exit codes of iscsiadm(8).
const (
	iscsiNoSession = 2
	iscsiExists    = 15
	iscsiNoRecord  = 21
)

// iscsiTarget is what the machine has to know of an iSCSI disk. It is written as JSON into the file iscsiFile in the disk's directory, below the
// mount, so that the disk can be disconnected without its persistent volume. Upstream's kubelet writes and reads the same file.
type iscsiTarget struct {
	VolName string
	// Portals are the addresses of the target, each with its port. The first is part of the disk's path.
	Portals []string
	IQN     string `json:"Iqn"`
	Lun     string
	// InitIface is the interface that the volume names. Iface is the one that is used. They differ if the volume names the initiator: the
	// interface is then a copy that only this volume uses.
	InitIface, Iface, InitiatorName string

	unit                     int
	discoveryAuth, loginAuth bool
	secret                   map[string]string
}

// portalOf returns an address with its port.
func portalOf(text string) (string, error) {
	if a, err := netip.ParseAddrPort(text); err == nil && a.Addr().Zone() == "" {
		return a.String(), nil
	}
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil && a.Zone() == "" {
		return net.JoinHostPort(a.String(), iscsiPort), nil
	}
	return "", fmt.Errorf("iscsi: portal %q is not an IP address, or an IP address with a port", text)
}

// newISCSI returns the target of a volume, without its secret.
func newISCSI(src *v1.ISCSIPersistentVolumeSource, volume string) (*iscsiTarget, error) {
	t := &iscsiTarget{VolName: volume, IQN: src.IQN, Lun: strconv.Itoa(int(src.Lun)), unit: int(src.Lun), InitIface: src.ISCSIInterface,
		discoveryAuth: src.DiscoveryCHAPAuth, loginAuth: src.SessionCHAPAuth}
	if t.InitIface == "" {
		t.InitIface = iscsiDefault
	}
	if len(src.Portals) > maxPaths {
		return nil, fmt.Errorf("iscsi.portals has %d addresses: the node uses at most %d", len(src.Portals), maxPaths)
	}
	for _, text := range append([]string{src.TargetPortal}, src.Portals...) {
		portal, err := portalOf(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(t.Portals, portal) {
			t.Portals = append(t.Portals, portal)
		}
	}
	if t.Iface = t.InitIface; src.InitiatorName != nil {
		t.InitiatorName, t.Iface = *src.InitiatorName, t.Portals[0]+":"+volume
	}
	return t, t.check()
}

// maxPaths bounds the portals of a target, or the ports or identifiers of a Fibre Channel disk. The node logs in to all portals at the same time.
const maxPaths = 32

// maxUnit is the greatest number of a logical unit that the API allows.
const maxUnit = 255

// maxISCSIName is the longest name of a target or of an initiator, in bytes (RFC 3720).
const maxISCSIName = 223

// checkISCSIName returns an error if a name could be an option of iscsiadm or a path.
func checkISCSIName(field, name string) error {
	if name == "" || len(name) > maxISCSIName || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '/' }) {
		return fmt.Errorf("iscsi.%s %q is not a valid name", field, name)
	}
	return nil
}

// checkQualifiedName returns an error if the name of a target or of an initiator is not valid.
func checkQualifiedName(field, name string) error {
	if err := checkISCSIName(field, name); err != nil {
		return err
	}
	if !strings.HasPrefix(name, "iqn.") && !strings.HasPrefix(name, "eui.") && !strings.HasPrefix(name, "naa.") {
		return fmt.Errorf("iscsi.%s %q must begin with iqn., eui. or naa., as qualified names do", field, name)
	}
	return nil
}

// check returns an error if a name is not one that iscsiadm takes, or cannot be part of a path.
func (t *iscsiTarget) check() error {
	if err := checkISCSIName("iscsiInterface", t.InitIface); err != nil {
		return err
	}
	if err := checkQualifiedName("iqn", t.IQN); err != nil {
		return err
	}
	if t.InitiatorName != "" {
		if err := checkQualifiedName("initiatorName", t.InitiatorName); err != nil {
			return err
		}
	}
	if t.unit < 0 || t.unit > maxUnit {
		return fmt.Errorf("iscsi.lun %d must be between 0 and %d", t.unit, maxUnit)
	}
	return checkDiskPath(kindISCSI, t.path())
}

// path returns the path of the disk's directory, below the directory of the plugin.
func (t *iscsiTarget) path() string {
	return "iface-" + t.Iface + "/" + t.Portals[0] + "-" + t.IQN + "-lun-" + t.Lun
}

// iscsiNames returns the path of a disk's directory, and the name by which the attach-detach controller knows the disk.
func iscsiNames(src *v1.ISCSIPersistentVolumeSource, volume string) (disk, handle string, err error) {
	t, err := newISCSI(src, volume)
	if err != nil {
		return "", "", err
	}
	return t.path(), fmt.Sprintf("%s:%s:%d", src.TargetPortal, src.IQN, src.Lun), nil
}

// iscsiOfPath returns what the path of a disk's directory says about its target.
func iscsiOfPath(disk string) *iscsiTarget {
	iface, name, _ := strings.Cut(disk, "/")
	t := &iscsiTarget{Iface: strings.TrimPrefix(iface, "iface-")}
	if i := strings.LastIndex(name, "-lun-"); i >= 0 {
		name, t.Lun = name[:i], name[i+len("-lun-"):]
	}
	portal := name
	for _, sort := range []string{"-iqn.", "-eui.", "-naa."} {
		if i := strings.Index(name, sort); i >= 0 {
			portal, t.IQN = name[:i], name[i+1:]
			break
		}
	}
	t.Portals, t.InitIface = []string{portal}, t.Iface
	t.unit, _ = strconv.Atoi(t.Lun)
	return t
}

// iscsiOf returns the target of a disk that was connected: from the file in its directory, or else from the directory's path.
func (v *Volumes) iscsiOf(b *bound, dir string) *iscsiTarget {
	t, err := v.readISCSI(b, dir)
	if err == nil {
		return t
	}
	if !errors.Is(err, fs.ErrNotExist) {
		v.cfg.Log.Warn("the file about an iSCSI disk is not valid: only the portal in the name of its directory is used", "dir", dir, "err", err)
	}
	return iscsiOfPath(b.Disk)
}

// readISCSI reads the file in the directory of a disk.
func (v *Volumes) readISCSI(b *bound, dir string) (*iscsiTarget, error) {
	text, err := v.cfg.Disk.ReadFile(filepath.Join(dir, iscsiFile))
	if err != nil {
		return nil, err
	}
	t := &iscsiTarget{}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, err
	}
	if t.unit, err = strconv.Atoi(t.Lun); err != nil {
		return nil, err
	}
	if len(t.Portals) == 0 || len(t.Portals) > 1+maxPaths {
		return nil, fmt.Errorf("it has %d portals", len(t.Portals))
	}
	for i := range t.Portals {
		if t.Portals[i], err = portalOf(t.Portals[i]); err != nil {
			return nil, err
		}
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	if t.path() != b.Disk {
		return nil, fmt.Errorf("it is the file of another disk: %s", t.path())
	}
	return t, nil
}

// session returns the session with a portal of the target, or nil if there is none.
func (t *iscsiTarget) session(all []hostfs.ISCSISession, portal string) *hostfs.ISCSISession {
	for i := range all {
		if all[i].Portal == portal && all[i].Interface == t.Iface {
			return &all[i]
		}
	}
	return nil
}

// lockTarget waits until nobody else logs in to a target or logs out of it.
func (v *Volumes) lockTarget(ctx context.Context, t *iscsiTarget) (unlock func(), err error) {
	if unlock, err = v.ofVolume.lock(ctx, "iscsi-target/"+t.IQN); err != nil {
		return nil, fmt.Errorf("wait for other logins to %s: %w", t.IQN, err)
	}
	return unlock, nil
}

// connectISCSI logs in to the target of a volume at all of its portals, and returns the devices of the disk. One portal is enough.
func (v *Volumes) connectISCSI(ctx context.Context, pv *v1.PersistentVolume, dir string) (devices []string, err error) {
	src := pv.Spec.ISCSI
	t, err := newISCSI(src, pv.Name)
	if err != nil {
		return nil, err
	}
	ref := src.SecretRef
	if ref != nil && ref.Namespace == "" && pv.Spec.ClaimRef != nil { // the secret is beside the claim
		ref = &v1.SecretReference{Namespace: pv.Spec.ClaimRef.Namespace, Name: ref.Name}
	}
	if err := v.iscsiSecret(ctx, t, ref); err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err == nil {
		err = v.cfg.Disk.ReplaceFile(filepath.Join(dir, iscsiFile), append(text, '\n'), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", iscsiFile, err)
	}
	unlock, err := v.lockTarget(ctx, t)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := v.copyInterface(ctx, t, dir); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	err = together(t.Portals, func(portal string) error {
		device, err := v.connectPortal(ctx, t, portal, dir)
		if err != nil {
			return fmt.Errorf("portal %s: %w", portal, err)
		}
		mu.Lock()
		defer mu.Unlock()
		devices = append(devices, device)
		return nil
	})
	if len(devices) == 0 {
		return nil, fmt.Errorf("connect iSCSI disk %s, unit %d: %w", t.IQN, t.unit, err)
	}
	if err != nil {
		v.cfg.Log.Warn("an iSCSI disk is connected, but not by all portals", "target", t.IQN, "unit", t.unit, "err", err)
	}
	slices.Sort(devices)
	return devices, nil
}

// iscsiSecret reads the names and passwords of the target, if the volume asks for authentication.
func (v *Volumes) iscsiSecret(ctx context.Context, t *iscsiTarget, ref *v1.SecretReference) (err error) {
	switch {
	case !t.discoveryAuth && !t.loginAuth:
		return nil
	case ref == nil || ref.Name == "":
		return errors.New("iscsi: the volume asks for CHAP authentication and has no secretRef")
	case v.cfg.Claims == nil:
		return errNoObjects
	}
	t.secret, err = v.secrets(ctx, ref)
	return err
}

// connectPortal logs in to a target at one of its portals, unless this was done, and returns the device of the disk.
func (v *Volumes) connectPortal(ctx context.Context, t *iscsiTarget, portal, dir string) (string, error) {
	all, err := v.cfg.Host.ISCSISessions(t.IQN)
	if err != nil {
		return "", err
	}
	s := t.session(all, portal)
	if s == nil {
		if err := v.login(ctx, t, portal, dir); err != nil {
			return "", err
		}
		if all, err = v.cfg.Host.ISCSISessions(t.IQN); err != nil {
			return "", err
		}
		if s = t.session(all, portal); s == nil {
			return "", errors.New("iscsiadm says that it has logged in, but there is no session with this address")
		}
	}
	if device := s.Disks[t.unit]; device != "" {
		return device, nil
	}
	scan, cancel := context.WithTimeout(ctx, scanWithin)
	defer cancel()
	host, unit := s.Host, t.unit
	if err := v.scsi.do(scan, fmt.Sprintf("unit/%d/%d", host, unit), func() error { return v.cfg.Host.ScanUnit(host, unit) }); err != nil {
		return "", err
	}
	device := ""
	if !poll(ctx, diskWithin, func() bool {
		all, err = v.cfg.Host.ISCSISessions(t.IQN)
		if s := t.session(all, portal); s != nil {
			device = s.Disks[t.unit]
		}
		return device != "" || err != nil
	}) {
		err = fmt.Errorf("the target shows no disk with the unit number %d: see which units it exports to this node's initiator", t.unit)
	}
	return device, err
}

// iscsiadm runs iscsiadm(8). dir is the directory of the disk.
func (v *Volumes) iscsiadm(ctx context.Context, dir string, args ...string) (hostfs.Ran, error) {
	return v.runTool(ctx, dir, loginWithin, append([]string{"iscsiadm"}, args...)...)
}

// login finds the target at a portal, and logs in to it. The machine then sees only those units of the target that it asks for, and does not log in
// again by itself when it boots.
func (v *Volumes) login(ctx context.Context, t *iscsiTarget, portal, dir string) error {
	found := []string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", t.Iface}
	node := []string{"-m", "node", "-p", portal, "-T", t.IQN, "-I", t.Iface}
	run := func(record []string, args ...string) error {
		_, err := v.iscsiadm(ctx, dir, slices.Concat(record, args)...)
		return err
	}
	if err := run(found, "-o", "new"); err != nil {
		return err
	}
	if t.discoveryAuth {
		if err := v.authenticate(ctx, t, discoveryMode, found, dir); err != nil {
			return err
		}
	}
	if err := run(found, "--discover"); err != nil {
		_ = run(found, "-o", "delete")
		return fmt.Errorf("ask for the targets: %w", err)
	}
	if err := run(node, "-o", "update", "-n", "node.session.scan", "-v", "manual"); err != nil {
		v.cfg.Log.Warn("this node may see more disks of an iSCSI target than its pods use", "target", t.IQN, "err", err)
	}
	if t.loginAuth {
		if err := v.authenticate(ctx, t, sessionMode, node, dir); err != nil {
			return err
		}
	}
	if err := run(node, "-o", "update", "-n", "node.startup", "-v", "manual"); err != nil {
		return err
	}
	if ran, err := v.iscsiadm(ctx, dir, append(node, "--login")...); err != nil && ran.Code != iscsiExists {
		_ = run(node, "-o", "delete")
		return fmt.Errorf("log in: %w", err)
	}
	return nil
}

// authenticate writes names and passwords from the secret into a record of iscsiadm.
func (v *Volumes) authenticate(ctx context.Context, t *iscsiTarget, mode string, record []string, dir string) error {
	set := func(name, value string) error {
		_, err := v.iscsiadm(ctx, dir, slices.Concat(record, []string{"-o", "update", "-n", name, "-v", value})...)
		if err != nil && value != "CHAP" {
			err = fmt.Errorf("iscsiadm does not accept the secret's value of %s", name) // its message may have the value
		}
		return err
	}
	if err := set(mode+"authmethod", "CHAP"); err != nil {
		return err
	}
	for _, key := range []string{"username", "password", "username_in", "password_in"} {
		if value := t.secret[mode+key]; value != "" {
			if err := set(mode+key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyInterface makes the interface of a volume that names its initiator: a copy of the interface that the volume names, with that initiator.
func (v *Volumes) copyInterface(ctx context.Context, t *iscsiTarget, dir string) error {
	if t.InitiatorName == "" {
		return nil
	}
	ran, err := v.iscsiadm(ctx, dir, "-m", "iface", "-I", t.InitIface, "-o", "show")
	if err != nil {
		return fmt.Errorf("read iSCSI interface %s: %w", t.InitIface, err)
	}
	if ran, err := v.iscsiadm(ctx, dir, "-m", "iface", "-I", t.Iface, "-o", "new"); err != nil && ran.Code != iscsiExists {
		return fmt.Errorf("make iSCSI interface: %w", err)
	}
	for _, field := range interfaceFields(ran.Output, t.InitiatorName) {
		if _, err := v.iscsiadm(ctx, dir, "-m", "iface", "-I", t.Iface, "-o", "update", "-n", field[0], "-v", field[1]); err != nil {
			return fmt.Errorf("copy iSCSI interface %s: %w", t.InitIface, err)
		}
	}
	return nil
}

// interfaceFields returns the fields of an interface as iscsiadm shows them, and their values, with another initiator. Fields without a value and the interface's own name are
// left out.
func interfaceFields(shown, initiator string) (fields [][2]string) {
	const name, own = "iface.initiatorname", "iface.iscsi_ifacename"
	for line := range strings.Lines(shown) {
		field, value, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if !ok || !strings.HasPrefix(field, "iface.") || value == "" || value == "<empty>" || field == own || field == name {
			continue
		}
		fields = append(fields, [2]string{field, value})
	}
	return append(fields, [2]string{name, initiator})
}

// iscsiDevices returns the devices of a disk in all sessions with its target.
func (v *Volumes) iscsiDevices(t *iscsiTarget) (devices []string, err error) {
	all, err := v.cfg.Host.ISCSISessions(t.IQN)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if device := s.Disks[t.unit]; device != "" && s.Interface == t.Iface {
			devices = append(devices, device)
		}
	}
	return devices, nil
}

// disconnectISCSI removes a disk that is not mounted any more, and logs out of its target. It does not log out of a session in which the machine still
// sees another disk of the target: that is another volume, or none of Kubernetes.
func (v *Volumes) disconnectISCSI(ctx context.Context, t *iscsiTarget, dir string) error {
	devices, err := v.iscsiDevices(t)
	if err != nil {
		return err
	}
	if err := v.removeDisks(ctx, dir, devices); err != nil {
		return err
	}
	unlock, err := v.lockTarget(ctx, t)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := v.cfg.Host.ISCSISessions(t.IQN)
	if err != nil {
		return err
	}
	used := false
	for _, portal := range t.Portals {
		if s := t.session(all, portal); s != nil && len(s.Disks) > 0 {
			used = true
			continue
		}
		node := []string{"-m", "node", "-p", portal, "-T", t.IQN, "-I", t.Iface}
		for _, what := range [][]string{{"--logout"}, {"-o", "delete"}} {
			if ran, err := v.iscsiadm(ctx, dir, slices.Concat(node, what)...); err != nil && ran.Code != iscsiNoSession && ran.Code != iscsiNoRecord {
				return fmt.Errorf("log out of %s: %w", t.IQN, err)
			}
		}
	}
	if t.Iface == t.InitIface || used {
		return nil
	}
	if ran, err := v.iscsiadm(ctx, dir, "-m", "iface", "-I", t.Iface, "-o", "delete"); err != nil && ran.Code != iscsiNoRecord {
		return fmt.Errorf("remove iSCSI interface: %w", err)
	}
	return nil
}
