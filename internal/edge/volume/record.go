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
)

// bound is what a volume of a pod with a claim stands for. One file per volume keeps it below the pod's directory, so that a
// container can start again, and the volume can be taken down, while the API server does not answer.
type bound struct {
	// Pod is namespace/name of the pod, for messages.
	Pod              string `json:"pod"`
	Claim            string `json:"claim"`
	PersistentVolume string `json:"persistentVolume"`
	Kind             kind   `json:"kind"`
	// Path is the path on the node that an administrator gave (kinds local and hostPath).
	Path     string `json:"path,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// Exclusive: the claim may be used by one pod only.
	Exclusive bool `json:"exclusive,omitempty"`
	// Done: the set-up has come to its end.
	Done bool `json:"done,omitempty"`
}

// dir returns the directory that containers see.
func (b bound) dir(l layout, uid types.UID) string {
	if b.Kind == kindHostPath {
		return b.Path
	}
	return l.volume(uid, b.Kind, b.PersistentVolume)
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
	if err == nil && b.Kind != kindHostPath && b.Kind != kindLocal {
		err = fmt.Errorf("kind %q is unknown", b.Kind)
	}
	if err != nil {
		v.cfg.Log.Warn("the record of a persistent volume cannot be read; it is made again", "pod", uid, "volume", volume, "err", err)
		return b, errNotSetUp
	}
	return b, nil
}

func (v *Volumes) writeRecord(uid types.UID, volume string, b bound) error {
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
	return nil
}

// othersWith lists the other pods of this node that use a persistent volume. It reads the disk, so that a new agent knows as much
// as the last one, and also finds volumes that upstream's kubelet mounted, which have no record.
func (v *Volumes) othersWith(pv string, self types.UID) ([]types.UID, error) {
	pods, err := v.Orphans(func(uid types.UID) bool { return uid == self })
	if err != nil {
		return nil, err
	}
	var others []types.UID
	for _, uid := range pods {
		if v.hasDir(uid, kindLocal, pv) || v.recorded(uid, pv) {
			others = append(others, uid)
		}
	}
	return others, nil
}

// hasDir reports whether a pod has a directory for a persistent volume. It looks at the entry in the directory above and not at
// the directory, on which a dead file system may be mounted.
func (v *Volumes) hasDir(uid types.UID, k kind, pv string) bool {
	entries, err := os.ReadDir(filepath.Join(v.layout.volumes(uid), k.dir()))
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.Name() == pv {
			return true
		}
	}
	return false
}

// recorded reports whether a pod has a record of a persistent volume.
func (v *Volumes) recorded(uid types.UID, pv string) bool {
	return slices.ContainsFunc(v.records(uid), func(b bound) bool { return b.PersistentVolume == pv })
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
