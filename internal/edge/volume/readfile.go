package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// maxReadFile is the size in bytes of the largest file that the agent reads from a pod's volume.
const maxReadFile = 64 << 10

// ReadFile reads a file that a container wrote into an emptyDir of its pod (for fileKeyRef). It follows no link out of the
// volume, does not block on a device or pipe, and refuses a large file. For a missing file the error is fs.ErrNotExist.
func (v *Volumes) ReadFile(p *v1.Pod, volume, path string) ([]byte, error) {
	at := slices.IndexFunc(p.Spec.Volumes, func(vol v1.Volume) bool { return vol.Name == volume })
	if at < 0 {
		return nil, fmt.Errorf("the pod has no volume %q: add it to spec.volumes", volume)
	}
	if k, err := kindOf(&p.Spec.Volumes[at]); err != nil || k != kindEmptyDir {
		return nil, errors.Join(fmt.Errorf("volume %q is not an emptyDir: only files of an emptyDir can be read", volume), err)
	}
	if err := errors.Join(checkName("volume name", volume), checkPath(path)); err != nil {
		return nil, err
	}
	found, err := v.cfg.Host.OpenBeneath(v.layout.volume(p.UID, kindEmptyDir, volume), path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("file %q of volume %q: %w", path, volume, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("file %q of volume %q: cannot be opened inside of the volume", path, volume)
	}
	defer found.Close()
	data, err := hostfs.ReadPinned(found, maxReadFile)
	switch {
	case errors.Is(err, hostfs.ErrNotRegular):
		return nil, fmt.Errorf("file %q of volume %q is not a regular file", path, volume)
	case errors.Is(err, hostfs.ErrTooLarge):
		return nil, fmt.Errorf("file %q of volume %q has more than %d bytes", path, volume, maxReadFile)
	case err != nil:
		return nil, fmt.Errorf("file %q of volume %q: cannot be read", path, volume)
	}
	return data, nil
}
