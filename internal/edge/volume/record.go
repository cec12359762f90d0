package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/csispec"
)

// bound is what a volume of a pod with a claim stands for. One file per volume keeps it below the pod's directory, so that a
// container can start again, and the volume can be taken down, while the API server does not answer.
type bound struct {
	// Pod is namespace/name of the pod, for messages.
	Pod   string `json:"pod"`
	Claim string `json:"claim"`
	// PersistentVolume is the name of the persistent volume. An inline CSI volume has none: its own name stands here.
	PersistentVolume string `json:"persistentVolume"`
	Kind             kind   `json:"kind"`
	// Driver and Handle name a CSI volume; Inline: it belongs to the pod and has no persistent volume.
	Driver string `json:"driver,omitempty"`
	Handle string `json:"volumeHandle,omitempty"`
	Inline bool   `json:"inline,omitempty"`
	// Attach: the volume has to be attached to the node. Republish: its driver wants to publish it again from time to time.
	Attach    bool `json:"attach,omitempty"`
	Republish bool `json:"republish,omitempty"`
	// Path is the path on the node that an administrator gave (kinds local and hostPath).
	Path     string `json:"path,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Exclusive: the claim may be used by one pod only.
	Exclusive bool `json:"exclusive,omitempty"`
	// Done: the set-up has come to its end.
	Done bool `json:"done,omitempty"`
}

// dir returns the directory that containers see.
func (b *bound) dir(l layout, uid types.UID) string {
	switch b.Kind {
	case kindHostPath:
		return b.Path
	case kindCSI:
		return filepath.Join(l.published(uid, b), mountDir)
	}
	return l.volume(uid, b.Kind, b.PersistentVolume)
}

// key identifies the volume, which several pods may share: by the driver and its handle for a CSI volume, otherwise by the name of the
// persistent volume.
func (b *bound) key() string {
	if b.Kind == kindCSI {
		return b.Driver + "^" + b.Handle
	}
	return b.PersistentVolume
}

// maxRecord bounds a record when it is read. The agent writes them itself; a power cut may leave anything.
const maxRecord = 64 << 10

var errNotSetUp = errors.New("the volume has not been set up")

// readRecord reads the record of a volume. The error is errNotSetUp if there is none, or none that can be read.
func (v *Volumes) readRecord(uid types.UID, volume string) (b bound, err error) {
	data, err := hostfs.ReadUntrusted(filepath.Join(v.layout.claims(uid), volume), 1, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return b, errNotSetUp
	}
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	if err == nil {
		err = checkName("persistentVolume", b.PersistentVolume)
	}
	switch {
	case err != nil || b.Kind == kindHostPath || b.Kind == kindLocal:
	case b.Kind == kindCSI:
		err = errors.Join(checkName("driver", b.Driver), checkHandle(b.Handle))
	default:
		err = fmt.Errorf("kind %q is unknown", b.Kind)
	}
	if err != nil {
		v.cfg.Log.Warn("the record of a persistent volume cannot be read; it is made again", "pod", uid, "volume", volume, "err", err)
		return b, errNotSetUp
	}
	return b, nil
}

func (v *Volumes) writeRecord(uid types.UID, volume string, b *bound) error {
	data, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("encode record of volume: %w", err)
	}
	dir := v.layout.claims(uid)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory of volume records: %w", err)
	}
	if err := hostfs.ReplaceFile(filepath.Join(dir, volume), data, 0o600); err != nil {
		return fmt.Errorf("write record of volume: %w", err)
	}
	if b.Attach && !b.Done {
		v.usesChanged()
	}
	return nil
}

// adopt makes a record of a CSI volume that upstream's kubelet published, so that the rest of the work is found again when the
// directory of the volume is gone.
func (v *Volumes) adopt(uid types.UID, b *bound) error {
	if slices.ContainsFunc(v.records(uid), func(have bound) bool { return have.Kind == kindCSI && have.key() == b.key() }) {
		return nil
	}
	return v.writeRecord(uid, "~"+csispec.StagingDir(b.Handle), b) // no volume has such a name
}

// removeRecord removes the record of a CSI volume of a pod, if it has one.
func (v *Volumes) removeRecord(uid types.UID, b *bound) error {
	entries, _ := os.ReadDir(v.layout.claims(uid))
	for _, e := range entries {
		if have, err := v.readRecord(uid, e.Name()); err != nil || have.Kind != kindCSI || have.PersistentVolume != b.PersistentVolume {
			continue
		}
		if err := os.Remove(filepath.Join(v.layout.claims(uid), e.Name())); err != nil {
			return fmt.Errorf("remove record of volume: %w", err)
		}
	}
	if b.Attach {
		v.usesChanged()
	}
	return nil
}

// othersWith lists the other pods of this node that use a volume. It reads the disk, so that a new agent knows as much as the last
// one, and also finds volumes that upstream's kubelet mounted, which have no record.
func (v *Volumes) othersWith(b *bound, self types.UID) ([]types.UID, error) {
	pods, err := v.Orphans(func(uid types.UID) bool { return uid == self })
	if err != nil {
		return nil, err
	}
	var others []types.UID
	for _, uid := range pods {
		if v.uses(uid, b) {
			others = append(others, uid)
		}
	}
	return others, nil
}

// uses reports whether a pod has a volume.
func (v *Volumes) uses(uid types.UID, b *bound) bool {
	if b.Kind == kindCSI {
		return slices.ContainsFunc(v.csiOf(uid), func(have *bound) bool { return have.key() == b.key() })
	}
	return b.Kind == kindLocal && entryOf(filepath.Join(v.layout.volumes(uid), kindLocal.dir()), b.PersistentVolume) ||
		slices.ContainsFunc(v.records(uid), func(have bound) bool { return have.Kind != kindCSI && have.key() == b.key() })
}

// records returns the records of a pod that can be read.
func (v *Volumes) records(uid types.UID) (all []bound) {
	entries, err := os.ReadDir(v.layout.claims(uid))
	if err != nil { // nearly always because the pod has no claims
		return nil
	}
	for _, e := range entries {
		if b, err := v.readRecord(uid, e.Name()); err == nil {
			all = append(all, b)
		}
	}
	return all
}

// nameOf returns namespace/name of a pod that has records, otherwise its UID.
func (v *Volumes) nameOf(uid types.UID) string {
	if all := v.records(uid); len(all) > 0 {
		return all[0].Pod
	}
	return string(uid)
}
