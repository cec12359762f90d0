package volume

import "context"

// MemoryHost is a SimulatedHost whose directories are in memory, too. InMemory uses it for the volumes of CSI drivers. Files
// must be set.
type MemoryHost struct {
	SimulatedHost
	Files *MemoryDisk
}

var _ Host = (*MemoryHost)(nil)

// RemoveTree removes dir and all below it from Files.
func (h *MemoryHost) RemoveTree(_ context.Context, dir string) error {
	h.Files.removeTree(dir)
	return nil
}

// IsBlockDevice returns false: there are no devices.
func (h *MemoryHost) IsBlockDevice(string) (bool, error) { return false, nil }

// MountDir makes the directory target and mounts something on it, as a CSI driver does with the paths that it gets.
func (h *MemoryHost) MountDir(target string) error {
	if err := h.Files.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return h.Mount("", target, "", "")
}

// UnmountDir undoes MountDir. It does nothing if there is no such directory.
func (h *MemoryHost) UnmountDir(target string) error {
	if !h.Files.Exists(target) {
		return nil
	}
	if err := h.Unmount(target); err != nil {
		return err
	}
	return h.Files.Remove(target)
}
