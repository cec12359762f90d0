package agenttest

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc/test/bufconn"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// mountTable is the mount table of the machine, as one agent sees it. The Witness has the mounts, which outlive agents.
type mountTable struct {
	w *World
	l *line
}

var _ agent.MountTable = mountTable{}

// Points returns the mount points at or below dir, in mount order, unless the agent was killed.
func (t mountTable) Points(dir string) ([]string, error) {
	if t.l.isCut() {
		return nil, dead()
	}
	return t.w.Witness.mountPoints(dir), nil
}

// Mount adds a mount on point, unless the agent was killed.
func (t mountTable) Mount(point string) error {
	if t.l.isCut() {
		return dead()
	}
	t.w.Witness.mounts(point, "")
	return nil
}

// Unmount removes the newest mount on point, unless the agent was killed.
func (t mountTable) Unmount(point string) error {
	if t.l.isCut() {
		return dead()
	}
	return t.w.unmount(point)
}

// dataFile is the file of every mounted CSI volume. It is there only while the volume is mounted. So it shows whether somebody removes
// files below a mount.
const dataFile = "data-of-the-volume"

// newDriver makes the CSI driver of the machine and starts its first process.
func (w *World) newDriver() {
	cfg := *w.cfg.CSI
	cfg.Mount = func(volume, target string) error {
		w.Witness.mounts(target, volume)
		return os.WriteFile(filepath.Join(target, dataFile), nil, 0o600)
	}
	cfg.Unmount = w.unmount
	w.CSI = simcsi.New(cfg)
	w.startDriver()
}

// startDriver starts a process of the CSI driver. Its volumes stay as an earlier process has left them.
func (w *World) startDriver() {
	l := bufconn.Listen(64 << 10)
	w.driver.Store(l)
	w.CSI.ServeOn(l)
}

// unmount removes the newest mount on a directory, with the data of the volume that was mounted there.
func (w *World) unmount(target string) error {
	volume := w.Witness.unmounts(target)
	if volume == "" {
		return nil
	}
	switch err := os.Remove(filepath.Join(target, dataFile)); {
	case errors.Is(err, fs.ErrNotExist):
		w.Witness.note(RuleVolumeData, "the data of volume %s were gone when it was unmounted from %s", volume, target)
	case err != nil:
		return err
	}
	if bug := w.cfg.Plant; bug != nil && bug.Unmounted != nil {
		bug.Unmounted(w, volume, target)
	}
	return nil
}

// Reboot ends all sandboxes, containers and mounts, as a reboot of the machine does. No agent may run.
func (w *World) Reboot() {
	w.Helper()
	w.KillSandboxes()
	if w.CSI == nil {
		return
	}
	w.CSI.Forget()
	for _, point := range w.Witness.mountPoints(w.volumes) {
		if err := w.unmount(point); err != nil {
			w.Fatal(err)
		}
	}
}

// dialDriver connects the agent to the CSI driver of the machine, until the agent is killed.
func (l *line) dialDriver(ctx context.Context) (net.Conn, error) {
	c, err := l.w.driver.Load().DialContext(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = c.Close()
		return nil, dead()
	}
	l.conns = append(l.conns, c)
	return c, nil
}

// VolumesLeft lists the mounts, the directories of pods and the directories of staged volumes that the machine has now.
func (w *World) VolumesLeft() []string {
	w.Helper()
	all := w.Witness.mountPoints(w.volumes)
	for _, dir := range []string{"pods", filepath.Join("plugins", "kubernetes.io", "csi", w.cfg.CSI.Name)} {
		entries, err := os.ReadDir(filepath.Join(w.volumes, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, filepath.Join(w.volumes, dir, e.Name()))
		}
	}
	return all
}
