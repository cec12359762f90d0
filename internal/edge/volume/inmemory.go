package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/claims"
	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// InMemory takes the place of Volumes on a simulated node. It reads all objects that a pod refers to, and fails like Volumes if one
// is missing, but it uses no disk. It does not check the types of hostPaths, because there is no host. For volumes of CSI drivers it uses
// Volumes itself, on a disk in memory.
type InMemory struct {
	csi         *Volumes // nil: the node has no CSI drivers
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
// Credentials, Claims and Notify. If cfg.Driver is not nil, the node can have volumes of CSI drivers, and all fields are used: Disk has
// to be a MemoryDisk then, and Host a MemoryHost.
func NewInMemory(cfg Config) *InMemory {
	if cfg.Notify == nil {
		cfg.Notify = func(types.UID) {}
	}
	m := &InMemory{
		objects: cfg.Objects, credentials: cfg.Credentials, claims: cfg.Claims, notify: cfg.Notify,
		layout: layout{root: cfg.RootDir}, pods: map[types.UID]map[string]bound{},
	}
	if cfg.Driver != nil {
		m.csi = New(cfg)
	}
	return m
}

// Drivers returns the part that handles the volumes of CSI drivers, or nil if the node has no CSI drivers.
func (m *InMemory) Drivers() *Volumes { return m.csi }

// SetUp resolves the volumes of a pod; see Volumes.SetUp.
func (m *InMemory) SetUp(ctx context.Context, p Pod) error {
	m.mu.Lock()
	if _, known := m.pods[p.Pod.UID]; !known {
		m.pods[p.Pod.UID] = nil
	}
	m.mu.Unlock()
	wanted := usedVolumes(p.Pod)
	errs := make([]*Error, len(wanted))
	var wg sync.WaitGroup
	for i, vol := range wanted {
		k, err := kindOf(vol)
		switch {
		case err != nil:
		case (k == kindCSI || k == kindInTree) && m.csi == nil:
			err = errNoDrivers
		case k == kindCSI, k == kindInTree, k == kindClaim && m.csi != nil:
			wg.Go(func() { // a volume that waits for its attachment does not delay the others
				if err := m.setUpCSI(ctx, p, vol, k); err != nil {
					errs[i] = failed(vol.Name, err)
				}
			})
		case k == kindClaim:
			err = m.setUpClaim(ctx, p.Pod, vol, nil)
		case k.files():
			var files map[string]file
			if files, err = (&resolver{ctx: ctx, objects: m.objects, credentials: m.credentials, pod: p}).volume(vol); err == nil {
				err = checkFiles(files)
			}
		}
		if err != nil {
			errs[i] = failed(vol.Name, err)
		}
	}
	wg.Wait()
	return joinErrors(errs)
}

var errNoDrivers = errors.New("a simulated node has no CSI drivers")

// setUpCSI sets up a volume that is, or may be, one of a CSI driver.
func (m *InMemory) setUpCSI(ctx context.Context, p Pod, vol *v1.Volume, k kind) (err error) {
	began := time.Now()
	switch k {
	case kindCSI:
		err = m.csi.setUpInline(ctx, p, vol)
	case kindInTree:
		err = m.csi.setUpInTree(ctx, p, vol)
	default:
		have, readErr := m.csi.mountedBefore(p.Pod.UID, vol.Name)
		if readErr != nil || have != nil && !m.csi.visits.republishes(have) {
			return readErr
		}
		err = m.csi.orAsBefore(p.Pod, vol, have, m.setUpClaim(ctx, p.Pod, vol, have))
	}
	m.csi.mounted(ctx, p.Pod, vol, began, err)
	return err
}

// setUpClaim resolves a volume with a claim, once. have is the record of a volume of a CSI driver that is to be published again, or nil.
func (m *InMemory) setUpClaim(ctx context.Context, p *v1.Pod, vol *v1.Volume, have *bound) error {
	if have == nil {
		if _, err := m.resolved(p.UID, vol.Name); err == nil {
			return nil
		}
	}
	f, err := findClaim(ctx, m.claims, p, vol)
	if err != nil {
		return err
	}
	b, err := boundOf(f, vol)
	if err != nil {
		return err
	}
	switch {
	case b.Kind == kindCSI && m.csi == nil:
		return errNoDrivers
	case b.Kind == kindCSI:
		b.Block = false // there are no devices: the driver stages and publishes a block volume at directories in memory, too, which nobody looks into
		return m.csi.setUpBound(ctx, p, vol, b.after(have), &csispec.Input{PV: f.pv, Claim: f.claim})
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

// bound returns the record of a volume with a claim, or of an inline volume.
func (m *InMemory) bound(uid types.UID, volume string) (bound, error) {
	b, err := m.resolved(uid, volume)
	if err != nil && m.csi != nil {
		return m.csi.readRecord(uid, volume)
	}
	return b, err
}

// resolved returns the record of a volume with a claim that is not one of a CSI driver.
func (m *InMemory) resolved(uid types.UID, volume string) (bound, error) {
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

// Devices returns the block devices that the containers of a real node would get. They do not exist. SetUp has refused a claim's volume that is no block volume
// and that a container uses as a device.
func (m *InMemory) Devices(p *v1.Pod, c *v1.Container) ([]*runtimeapi.Device, error) {
	return devicesOf(p, c, places{m.layout, func(uid types.UID, volume string) (bound, error) {
		b, err := m.bound(uid, volume)
		b.Block = b.Block || b.Kind == kindCSI && !b.Inline
		return b, err
	}})
}

// TearDown ends the pod's use of its persistent volumes.
func (m *InMemory) TearDown(ctx context.Context, ref pod.Ref) error {
	if m.csi != nil {
		if err := m.csi.TearDown(ctx, ref); err != nil {
			return err
		}
	}
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
func (m *InMemory) Remove(ctx context.Context, ref pod.Ref) error {
	if m.csi != nil {
		if err := m.csi.Remove(ctx, ref); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits.forget(ref.UID)
	delete(m.pods, ref.UID)
	return nil
}

// Orphans lists the pods that were set up and not removed, and for which known returns false.
func (m *InMemory) Orphans(known func(types.UID) bool) (orphans []types.UID, err error) {
	if m.csi != nil { // also the pods of an earlier agent
		if orphans, err = m.csi.Orphans(known); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.pods {
		if !known(uid) && !slices.Contains(orphans, uid) {
			orphans = append(orphans, uid)
		}
	}
	return orphans, nil
}

// Usage returns nothing, because no volume uses disk space.
func (m *InMemory) Usage(context.Context, *v1.Pod) ([]Usage, error) { return nil, nil }

// PersistentUsage returns how full the volumes of CSI drivers are.
func (m *InMemory) PersistentUsage(ctx context.Context, p *v1.Pod) ([]Usage, error) {
	if m.csi == nil {
		return nil, nil
	}
	return m.csi.PersistentUsage(ctx, p)
}

// FilesUsage is zero, because no file is written.
func (m *InMemory) FilesUsage(types.UID) (FilesUsage, error) { return FilesUsage{}, nil }

// BoundFiles returns nothing, because there are no files.
func (m *InMemory) BoundFiles(types.UID) (FilesUsage, error) { return FilesUsage{}, nil }

// ReadFile returns fs.ErrNotExist, because no container of a simulated node writes into a volume.
func (m *InMemory) ReadFile(_ *v1.Pod, volume, path string) ([]byte, error) {
	return nil, fmt.Errorf("read %s of volume %s: %w", path, volume, fs.ErrNotExist)
}
