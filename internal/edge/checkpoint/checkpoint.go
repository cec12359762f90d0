package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/decide"
)

const fileName = "wherry-checkpoint.json"

// version is the version of the file format, and is written into each file. A file with another version counts as missing.
const version = 1

// Dir keeps checkpoints under <Root>/pods/<uid>/.
type Dir struct {
	Root string
	// Boot identifies the present run of the machine (the kernel's boot_id). The memory in a checkpoint of another run is told of the reboot
	// (decide.Memory.Rebooted). Empty: it is not known.
	Boot string
}

type file struct {
	Version int            `json:"version"`
	Boot    string         `json:"boot,omitzero"` // Dir.Boot when the file was written
	Memory  *decide.Memory `json:"memory"`
}

func (d Dir) path(uid types.UID) string { return filepath.Join(d.Root, "pods", string(uid), fileName) }

// Load returns the memory in a pod's checkpoint, or nil if there is none.
func (d Dir) Load(uid types.UID) (*decide.Memory, error) {
	raw, err := os.ReadFile(d.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	m, boot, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("read checkpoint %s (delete the file to continue without it): %w", d.path(uid), err)
	}
	if m != nil && boot != "" && d.Boot != "" && boot != d.Boot {
		m.Rebooted()
	}
	return m, nil
}

// decode returns the memory in a checkpoint file, and during which run of the machine it was written. The memory is nil if the file has another
// version of the format.
func decode(raw []byte) (m *decide.Memory, boot string, err error) {
	var f file
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, "", err
	}
	if f.Version != version {
		return nil, "", nil
	}
	return f.Memory, f.Boot, nil
}

func encode(m *decide.Memory, boot string) ([]byte, error) {
	kept := m.Kept()
	raw, err := json.Marshal(file{Version: version, Boot: boot, Memory: &kept})
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return raw, nil
}

// Save replaces the checkpoint of a pod. It replaces the old file only when the new one is complete.
func (d Dir) Save(uid types.UID, m *decide.Memory) error {
	raw, err := encode(m, d.Boot)
	if err != nil {
		return err
	}
	path := d.path(uid)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("make pod directory: %w", err)
	}
	if err := hostfs.ReplaceFile(path, raw, 0o600); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}

// Files stores one small file per pod. Calls may be concurrent.
type Files interface {
	// Load returns the file of a pod, or nil if there is none.
	Load(uid types.UID) ([]byte, error)
	// Save replaces the file of a pod.
	Save(uid types.UID, file []byte) error
}

// In stores encoded checkpoints in Files, for a simulated machine.
type In struct{ Files Files }

// Load returns the memory in a pod's checkpoint, or nil if there is none.
func (i In) Load(uid types.UID) (*decide.Memory, error) {
	raw, err := i.Files.Load(uid)
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	if raw == nil {
		return nil, nil
	}
	m, _, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	return m, nil
}

// Save replaces the checkpoint of a pod.
func (i In) Save(uid types.UID, m *decide.Memory) error {
	raw, err := encode(m, "")
	if err != nil {
		return err
	}
	if err := i.Files.Save(uid, raw); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}

// InMemory is a Files without a disk, for simulated machines whose agents are restarted. The zero value is ready to use. It may
// be used concurrently.
type InMemory struct {
	mu    sync.Mutex
	files map[types.UID][]byte
}

// Load returns the file of a pod, or nil if there is none.
func (m *InMemory) Load(uid types.UID) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[uid], nil
}

// Save replaces the file of a pod.
func (m *InMemory) Save(uid types.UID, file []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		m.files = map[types.UID][]byte{}
	}
	m.files[uid] = file
	return nil
}

// Remove removes the file of a pod, as the removal of its directory does.
func (m *InMemory) Remove(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, uid)
}

// UIDs returns the pods that have a file, sorted.
func (m *InMemory) UIDs() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.files))
}

// Nowhere stores nothing. It is for simulated nodes that have no checkpoints after a restart.
type Nowhere struct{}

// Load returns nil, because Nowhere has no checkpoints.
func (Nowhere) Load(types.UID) (*decide.Memory, error) { return nil, nil }

// Save stores nothing.
func (Nowhere) Save(types.UID, *decide.Memory) error { return nil }
