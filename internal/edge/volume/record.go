package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/csispec"
)

// bound is the record of a pod's volume: the persistent volume that its claim is bound to, or an inline CSI volume. Each record is a file in
// the pod's directory, so that a container can start again, and the volume can be taken down, while the API server does not answer.
type bound struct {
	// Pod is namespace/name of the pod, for messages.
	Pod string `json:"pod"`
	// Claim is the name of the claim.
	Claim string `json:"claim"`
	// PersistentVolume is the name of the persistent volume. For an inline CSI volume, which has none, it is the name of the pod's volume.
	PersistentVolume string `json:"persistentVolume"`
	Kind             kind   `json:"kind"`
	// Driver and Handle identify a CSI volume. Of a disk of a storage area network, Handle is the name that the attach-detach controller gives
	// it. Guessed: the agent made up this name from the path of the disk's directory. Inline: the volume has no persistent volume.
	Driver  string `json:"driver,omitempty"`
	Handle  string `json:"volumeHandle,omitempty"`
	Guessed bool   `json:"guessed,omitempty"`
	Inline  bool   `json:"inline,omitempty"`
	// Disk identifies a disk of a storage area network: the path of its directory, below that of its kind's plugin.
	Disk string `json:"disk,omitempty"`
	// Block: the volume is a block device, and not a file system.
	Block bool `json:"block,omitempty"`
	// Attach: the volume has to be attached to the node. Republish: the driver's CSIDriver object asks the node to publish the volume
	// periodically (requiresRepublish).
	Attach    bool `json:"attach,omitempty"`
	Republish bool `json:"republish,omitempty"`
	// Path is the path on the node that an administrator gave (kinds local and hostPath).
	Path     string `json:"path,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Exclusive: the claim may be used by one pod only.
	Exclusive bool `json:"exclusive,omitempty"`
	// SELinux is the SELinux label with which the volume is mounted; "": it is mounted without one, and the runtime labels its files.
	SELinux string `json:"selinux,omitempty"`
	// Size is the size in bytes that a CSI volume with a claim is known to have; 0: it is not known.
	Size int64 `json:"size,omitempty"`
	// Done: the set-up has succeeded.
	Done bool `json:"done,omitempty"`
}

// dir returns the directory that containers see, or the path at which a driver has published a block volume.
func (b *bound) dir(l layout, uid types.UID) string {
	switch b.Kind {
	case kindHostPath:
		return b.Path
	case kindCSI:
		if b.Block {
			return l.devicePublished(uid, b)
		}
		return filepath.Join(l.published(uid, b), mountDir)
	}
	return l.volume(uid, b.Kind, b.PersistentVolume)
}

// key identifies the volume, which several pods may share: by the driver and its handle for a CSI volume, by the disk for one of a storage
// area network, otherwise by the name of the persistent volume.
func (b *bound) key() string {
	switch {
	case b.Kind == kindCSI:
		return b.Driver + "^" + b.Handle
	case b.Kind.san():
		return string(b.Kind) + "^" + b.Disk
	}
	return b.PersistentVolume
}

// unique returns the name of the volume in the status of nodes.
func (b *bound) unique() v1.UniqueVolumeName {
	if b.Kind.san() {
		return b.Kind.unique(b.Handle)
	}
	return csispec.UniqueName(b.Driver, b.Handle)
}

// ref returns the pod of a record, for events.
func (b *bound) ref(uid types.UID) *v1.ObjectReference {
	namespace, name, _ := strings.Cut(b.Pod, "/")
	return &v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: name, UID: uid}
}

// maxRecord bounds the file of a record, in bytes. The agent writes these files itself, but after a power cut they may have any content.
const maxRecord = 64 << 10

var errNotSetUp = errors.New("the volume has not been set up")

// readRecord reads the record of a volume. If there is none, or its content is not valid, the error is errNotSetUp. Any other error says
// that the disk cannot be read at the moment.
func (v *Volumes) readRecord(uid types.UID, volume string) (b bound, err error) {
	data, err := v.cfg.Disk.ReadFile(filepath.Join(v.layout.claims(uid), volume))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return b, errNotSetUp
	case failedToRead(err):
		return b, fmt.Errorf("read record of volume %q: %w", volume, err)
	case err == nil:
		err = json.Unmarshal(data, &b)
	}
	if err == nil {
		err = checkName("persistentVolume", b.PersistentVolume)
	}
	switch {
	case err == nil && b.Kind.san():
		err = errors.Join(checkDiskPath(b.Kind, b.Disk), checkHandle(b.Handle))
	case err != nil || b.Kind == kindHostPath || b.Kind == kindLocal || b.Kind == kindNFS:
	case b.Kind == kindCSI:
		err = errors.Join(checkName("driver", b.Driver), checkHandle(b.Handle))
	default:
		err = fmt.Errorf("kind %q is unknown", b.Kind)
	}
	if err != nil {
		v.cfg.Log.Warn("the record of a persistent volume is not valid; it is made again", "pod", uid, "volume", volume, "err", err)
		return b, errNotSetUp
	}
	return b, nil
}

// failedToRead reports whether err says that a file could not be read, so that a later try may succeed. It returns false if the
// content, the size or the type of the file is wrong.
func failedToRead(err error) bool {
	var errno unix.Errno
	return errors.As(err, &errno) && errno != unix.ENOENT && errno != unix.ENOTDIR && errno != unix.ELOOP && !errors.Is(err, hostfs.ErrNotRegular) && !errors.Is(err, hostfs.ErrTooLarge)
}

func (v *Volumes) writeRecord(uid types.UID, volume string, b *bound) error {
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("encode record of volume: %w", err)
	}
	dir := v.layout.claims(uid)
	if err := v.cfg.Disk.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory of volume records: %w", err)
	}
	if err := v.cfg.Disk.ReplaceFile(filepath.Join(dir, volume), data, 0o600); err != nil {
		return fmt.Errorf("write record of volume: %w", err)
	}
	if b.Attach && !b.Done {
		v.usesChanged(b, false)
	}
	return nil
}

// adopt writes a record of a volume that upstream's kubelet set up, unless the volume has a record. With this record, the next agent can unstage
// or disconnect the volume even if this agent removes the volume's directory and then ends.
func (v *Volumes) adopt(uid types.UID, b *bound) error {
	records, err := v.records(uid)
	if err != nil || slices.ContainsFunc(records, func(have bound) bool { return have.Kind == b.Kind && have.key() == b.key() && have.Block == b.Block }) {
		return err
	}
	return v.writeRecord(uid, "~"+csispec.StagingDir(b.key()), b) // the name begins with ~, so no volume of a pod has the same name
}

// removeRecord removes the record of a volume of a pod, if it has one.
func (v *Volumes) removeRecord(uid types.UID, b *bound) error {
	entries, err := v.cfg.Disk.ReadDir(v.layout.claims(uid))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list records of volumes: %w", err)
	}
	for _, e := range entries {
		have, err := v.readRecord(uid, e.Name())
		if err != nil && !errors.Is(err, errNotSetUp) {
			return err
		}
		if err != nil || have.Kind != b.Kind || have.PersistentVolume != b.PersistentVolume {
			continue
		}
		if err := v.cfg.Disk.Remove(filepath.Join(v.layout.claims(uid), e.Name())); err != nil {
			return fmt.Errorf("remove record of volume: %w", err)
		}
	}
	if b.Attach {
		v.usesChanged(b, true)
	}
	return nil
}

// othersWith lists the other pods of this node that use a volume. It reads the disk, so that a new agent gets the same result as the
// agent before it. It also finds volumes without a record, which upstream's kubelet mounted.
func (v *Volumes) othersWith(b *bound, self types.UID) ([]types.UID, error) {
	pods, err := v.Orphans(func(uid types.UID) bool { return uid == self })
	if err != nil {
		return nil, err
	}
	var others []types.UID
	for _, uid := range pods {
		used, err := v.uses(uid, b)
		if err != nil {
			return nil, fmt.Errorf("find out whether pod %s uses the volume: %w", uid, err)
		}
		if used {
			others = append(others, uid)
		}
	}
	return others, nil
}

// uses reports whether a pod uses a volume.
func (v *Volumes) uses(uid types.UID, b *bound) (bool, error) {
	if b.Kind == kindCSI {
		all, err := v.csiOf(uid)
		return slices.ContainsFunc(all, func(have *bound) bool { return have.key() == b.key() }), err
	}
	if b.Kind.san() {
		all, err := v.sanOf(uid)
		return slices.ContainsFunc(all, func(have *bound) bool { return have.key() == b.key() && have.Block == b.Block }), err
	}
	if b.Kind == kindLocal {
		dir, err := v.entryOf(filepath.Join(v.layout.volumes(uid), kindLocal.dir()), b.PersistentVolume)
		if err != nil || dir != nil {
			return dir != nil, err
		}
		link := v.layout.deviceLink(uid, b)
		if dir, err = v.entryOf(filepath.Dir(link), filepath.Base(link)); err != nil || dir != nil {
			return dir != nil, err
		}
	}
	records, err := v.records(uid)
	return slices.ContainsFunc(records, func(have bound) bool { return have.Kind != kindCSI && have.key() == b.key() }), err
}

// records returns the valid records of a pod.
func (v *Volumes) records(uid types.UID) (all []bound, err error) {
	entries, err := v.cfg.Disk.ReadDir(v.layout.claims(uid))
	if errors.Is(err, fs.ErrNotExist) { // most pods have no claims, so they have no directory of records
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list records of volumes: %w", err)
	}
	for _, e := range entries {
		b, err := v.readRecord(uid, e.Name())
		switch {
		case err == nil:
			all = append(all, b)
		case !errors.Is(err, errNotSetUp):
			return nil, err
		}
	}
	return all, nil
}

// nameOf returns the name of a pod for messages: namespace/name if the pod has records, otherwise its UID.
func (v *Volumes) nameOf(uid types.UID) string {
	if all, err := v.records(uid); err == nil && len(all) > 0 {
		return all[0].Pod
	}
	return string(uid)
}
