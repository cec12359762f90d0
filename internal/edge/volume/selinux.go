package volume

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/csispec"
)

// SELinux says how volumes are mounted on a machine with SELinux: a volume of a pod whose containers all have one label is mounted with this
// label (the mount option context), and otherwise the runtime labels each file of the volume, which takes long for many files.
type SELinux struct {
	// FileLabel returns the label of files that a container may use whose process has this user and level. user may be empty.
	FileLabel func(user, level string) (string, error)
	// AnyMode: volumes of all access modes are mounted so (feature gate SELinuxMount), and not only those of ReadWriteOncePod.
	AnyMode bool
}

// seLinuxLabel returns the SELinux label with which a persistent volume is mounted for a pod; "": it is mounted without one. "The CSI driver must
// announce that it supports mounting with -o context by setting spec.seLinuxMount: true in its CSIDriver instance."
func (v *Volumes) seLinuxLabel(p *v1.Pod, volume string, b *bound, in *csispec.Input) (string, error) {
	if v.cfg.SELinux == nil || b.Kind != kindCSI && !b.Kind.san() || b.Block {
		return "", nil
	}
	if label, mounted, err := v.labelNow(p.UID, b); mounted || err != nil {
		return label, err
	}
	can := b.Kind.san() || in.Driver != nil && in.Driver.Spec.SELinuxMount != nil && *in.Driver.Spec.SELinuxMount
	if !can || b.Inline || in.Claim == nil {
		return "", nil
	}
	if modes := in.PV.Spec.AccessModes; !v.cfg.SELinux.AnyMode && !slices.Equal(modes, []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}) {
		return "", nil
	}
	o, err := crispec.VolumeSELinux(p, volume)
	if err != nil || o == nil {
		return "", err
	}
	for field, value := range map[string]string{"user": o.User, "level": o.Level} {
		if err := checkSELinux(field, value); err != nil {
			return "", err
		}
	}
	return v.cfg.SELinux.FileLabel(o.User, o.Level)
}

// labelNow returns the SELinux label of a volume that is mounted for a pod already. It keeps this label until it is unmounted, even if the CSIDriver
// object changes, or the agent that mounted it knew no labels.
func (v *Volumes) labelNow(uid types.UID, b *bound) (label string, mounted bool, err error) {
	if mounted, err = v.cfg.Host.Mounted(b.dir(v.layout, uid)); err != nil || !mounted {
		return "", false, err
	}
	if b.Kind == kindCSI {
		data, err := v.loadVolumeData(v.layout.published(uid, b))
		if failedToRead(err) {
			return "", true, fmt.Errorf("read %s: %w", volumeData, err)
		}
		return data[labelKey], true, nil
	}
	records, err := v.records(uid)
	for _, have := range records {
		if have.Kind == b.Kind && have.key() == b.key() && !have.Block {
			label = have.SELinux
		}
	}
	return label, true, err
}

// checkSELinux refuses a field of seLinuxOptions that would end the mount option context and begin another one. The API server accepts any text.
func checkSELinux(field, value string) error {
	bad := strings.IndexFunc(value, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_.:,-", r))
	})
	if bad >= 0 || len(value) > 255 {
		return fmt.Errorf("seLinuxOptions.%s %.300q is not valid: use letters, digits and '_', '.', ':', ',', '-', and at most 255 of them", field, value)
	}
	return nil
}

// seLinuxConflict returns an error if a pod in others has the volume mounted with another SELinux label than b. The pod of b then waits for the end
// of that pod.
func (v *Volumes) seLinuxConflict(uid types.UID, b *bound, others []types.UID) error {
	if v.cfg.SELinux == nil {
		return nil
	}
	for _, other := range others {
		all, err := v.csiOf(other)
		if b.Kind.san() {
			all, err = v.sanOf(other)
		}
		if err != nil {
			return err
		}
		for _, have := range all {
			if have.key() == b.key() && !have.Block && !b.Block && have.SELinux != b.SELinux {
				v.waits.add(b.key(), uid)
				return fmt.Errorf("pod %s of this node has the volume mounted with %s, and this pod needs %s: waits for the end of that pod "+
					"(give both the same seLinuxOptions, or set seLinuxChangePolicy: Recursive)", v.nameOf(other), labelled(have.SELinux), labelled(b.SELinux))
			}
		}
	}
	return nil
}

func labelled(label string) string {
	if label == "" {
		return "no SELinux label"
	}
	return "the SELinux label " + label
}
