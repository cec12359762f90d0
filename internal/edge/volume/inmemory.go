package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/claims"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// InMemory takes the place of Volumes on a simulated node. It reads all objects that a pod refers to, and fails like Volumes if one
// is missing, but it uses no disk. It does not check the types of hostPaths, because there is no host.
type InMemory struct {
	objects     Objects
	credentials Credentials
	claims      Claims
	notify      func(types.UID)
	layout      layout
	waits       waits

	mu   sync.Mutex
	pods map[types.UID]map[string]bound // each pod's records of volumes with claims, by volume name; nil: none
}

// NewInMemory returns an InMemory. It uses these fields of cfg: RootDir, which only appears in the paths that Mounts returns, Objects,
// Credentials, Claims and Notify.
func NewInMemory(cfg Config) *InMemory {
	if cfg.Notify == nil {
		cfg.Notify = func(types.UID) {}
	}
	return &InMemory{
		objects: cfg.Objects, credentials: cfg.Credentials, claims: cfg.Claims, notify: cfg.Notify,
		layout: layout{root: cfg.RootDir}, pods: map[types.UID]map[string]bound{},
	}
}

// SetUp resolves the volumes of a pod; see Volumes.SetUp.
func (m *InMemory) SetUp(ctx context.Context, p Pod) error {
	m.mu.Lock()
	if _, known := m.pods[p.Pod.UID]; !known {
		m.pods[p.Pod.UID] = nil
	}
	m.mu.Unlock()
	var errs []*Error
	for _, vol := range usedVolumes(p.Pod) {
		k, err := kindOf(vol)
		switch {
		case err != nil:
		case k == kindCSI, k == kindInTree:
			err = errNoDrivers
		case k == kindClaim:
			err = m.setUpClaim(ctx, p.Pod, vol)
		case k.files():
			var files map[string]file
			if files, err = (&resolver{ctx: ctx, objects: m.objects, credentials: m.credentials, pod: p}).volume(vol); err == nil {
				err = checkFiles(files)
			}
		}
		if err != nil {
			errs = append(errs, failed(vol.Name, err))
		}
	}
	return joinErrors(errs)
}

var errNoDrivers = errors.New("a simulated node has no CSI drivers")

// setUpClaim resolves a volume with a claim, once.
func (m *InMemory) setUpClaim(ctx context.Context, p *v1.Pod, vol *v1.Volume) error {
	if _, err := m.bound(p.UID, vol.Name); err == nil {
		return nil
	}
	f, err := findClaim(ctx, m.claims, p, vol)
	if err != nil {
		return err
	}
	b, err := boundOf(f, vol)
	if err != nil {
		return err
	}
	if b.Kind == kindCSI {
		return errNoDrivers
	}
	b.Pod = p.Namespace + "/" + p.Name
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, volumes := range m.pods {
		for _, other := range volumes {
			if b.Exclusive && uid != p.UID && other.PersistentVolume == b.PersistentVolume {
				m.waits.add(b.PersistentVolume, p.UID)
				return claims.InUse(b.Claim, other.Pod)
			}
		}
	}
	if m.pods[p.UID] == nil {
		m.pods[p.UID] = map[string]bound{}
	}
	m.pods[p.UID][vol.Name] = *b
	return nil
}

func (m *InMemory) bound(uid types.UID, volume string) (bound, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.pods[uid][volume]
	if !ok {
		return b, errNotSetUp
	}
	return b, nil
}

// Mounts returns the mounts that a real node would make. Their host paths do not exist; see Volumes.Mounts.
func (m *InMemory) Mounts(_ context.Context, in MountInput) ([]*runtimeapi.Mount, error) {
	mounts := make([]*runtimeapi.Mount, 0, len(in.Container.VolumeMounts))
	for i := range in.Container.VolumeMounts {
		mount, err := mountOf(&in, i, places{m.layout, m.bound}, func(s subPath) (string, error) { return filepath.Join(s.root, s.path), nil })
		if err != nil {
			return nil, mountError(&in, i, err)
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

// Devices returns the block devices of a container. No volume of a simulated node is a block device.
func (m *InMemory) Devices(p *v1.Pod, c *v1.Container) ([]*runtimeapi.Device, error) {
	return devicesOf(p, c, places{m.layout, m.bound})
}

// TearDown ends the pod's use of its persistent volumes.
func (m *InMemory) TearDown(_ context.Context, ref pod.Ref) error {
	m.mu.Lock()
	volumes := m.pods[ref.UID]
	if volumes != nil {
		m.pods[ref.UID] = nil
	}
	m.mu.Unlock()
	for _, b := range volumes {
		for _, uid := range m.waits.take(b.PersistentVolume) {
			m.notify(uid)
		}
	}
	return nil
}

// Remove forgets the pod.
func (m *InMemory) Remove(_ context.Context, ref pod.Ref) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits.forget(ref.UID)
	delete(m.pods, ref.UID)
	return nil
}

// Orphans lists the pods that were set up and not removed, and for which known returns false.
func (m *InMemory) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var orphans []types.UID
	for uid := range m.pods {
		if !known(uid) {
			orphans = append(orphans, uid)
		}
	}
	return orphans, nil
}

// Usage returns nothing, because no volume uses disk space.
func (m *InMemory) Usage(context.Context, *v1.Pod) ([]Usage, error) { return nil, nil }

// PersistentUsage returns nothing, because nothing is mounted.
func (m *InMemory) PersistentUsage(context.Context, *v1.Pod) ([]Usage, error) { return nil, nil }

// FilesUsage is zero, because no file is written.
func (m *InMemory) FilesUsage(types.UID) (FilesUsage, error) { return FilesUsage{}, nil }

// BoundFiles returns nothing, because there are no files.
func (m *InMemory) BoundFiles(types.UID) (FilesUsage, error) { return FilesUsage{}, nil }

// ReadFile returns fs.ErrNotExist, because no container of a simulated node writes into a volume.
func (m *InMemory) ReadFile(_ *v1.Pod, volume, path string) ([]byte, error) {
	return nil, fmt.Errorf("read %s of volume %s: %w", path, volume, fs.ErrNotExist)
}
