package volume

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// InMemory is the Volumes of a simulated node. It reads all objects that a pod refers to, and fails like Volumes if one
// is missing, but it touches no disk. It checks no hostPath types, because there is no host.
type InMemory struct {
	objects Objects
	layout  layout

	mu   sync.Mutex
	pods map[types.UID]bool
}

// NewInMemory returns an InMemory. RootDir only appears in the paths that Mounts returns.
func NewInMemory(rootDir string, objects Objects) *InMemory {
	return &InMemory{objects: objects, layout: layout{root: rootDir}, pods: map[types.UID]bool{}}
}

// SetUp resolves the volumes of a pod; see Volumes.SetUp.
func (m *InMemory) SetUp(ctx context.Context, p Pod) error {
	m.mu.Lock()
	m.pods[p.Pod.UID] = true
	m.mu.Unlock()
	var errs []*Error
	for _, vol := range usedVolumes(p.Pod) {
		k, err := kindOf(vol)
		if err == nil && k.files() {
			var files map[string]file
			if files, err = (&resolver{ctx: ctx, objects: m.objects, pod: p}).volume(vol); err == nil {
				err = checkFiles(files)
			}
		}
		if err != nil {
			errs = append(errs, failed(vol.Name, err))
		}
	}
	return joinErrors(errs)
}

// Mounts returns the mounts that a real node would make. Their host paths do not exist; see Volumes.Mounts.
func (m *InMemory) Mounts(_ context.Context, in MountInput) ([]*runtimeapi.Mount, error) {
	mounts := make([]*runtimeapi.Mount, 0, len(in.Container.VolumeMounts))
	for i := range in.Container.VolumeMounts {
		mount, err := mountOf(&in, i, m.layout, func(s subPath) (string, error) { return filepath.Join(s.root, s.path), nil })
		if err != nil {
			return nil, mountError(&in, i, err)
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

// TearDown does nothing, because Remove forgets the pod.
func (m *InMemory) TearDown(context.Context, pod.Ref) error { return nil }

// Remove forgets the pod.
func (m *InMemory) Remove(_ context.Context, ref pod.Ref) error {
	m.mu.Lock()
	defer m.mu.Unlock()
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

// FilesUsage is zero, because no file is written.
func (m *InMemory) FilesUsage(types.UID) (FilesUsage, error) { return FilesUsage{}, nil }

// BoundFiles has nothing to bound.
func (m *InMemory) BoundFiles(types.UID) (FilesUsage, error) { return FilesUsage{}, nil }

// ReadFile returns fs.ErrNotExist, because no container of a simulated node writes into a volume.
func (m *InMemory) ReadFile(_ *v1.Pod, volume, path string) ([]byte, error) {
	return nil, fmt.Errorf("read %s of volume %s: %w", path, volume, fs.ErrNotExist)
}
