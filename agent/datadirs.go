package agent

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// makeDataDirs prepares the directories that pods mount, if there is an API server. Without one, the node has no CSI drivers.
func (a *Agent) makeDataDirs() {
	if a.deps.Client == nil {
		return
	}
	var label func(string) error
	if hostfs.HasSELinux() {
		label = hostfs.LabelForContainers
	}
	if err := makeDataDirs(a.cfg.RootDir, label); err != nil {
		a.log.Error("CSI drivers may not start: their directories are not ready", "err", err)
	}
}

// makeDataDirs creates the directories below the root directory that pods mount, above all those of CSI drivers: a hostPath volume of type
// Directory needs them to exist. label gives a directory the SELinux label with which containers may create their sockets in it; nil: the machine
// has no SELinux. It makes all directories that it can.
func makeDataDirs(root string, label func(dir string) error) error {
	var errs []error
	for _, d := range []struct {
		name     string
		labelled bool
	}{{"pods", false}, {"plugins", true}, {"plugins_registry", true}} {
		dir := filepath.Join(root, d.name)
		err := os.MkdirAll(dir, 0o750)
		if err == nil && d.labelled && label != nil {
			err = label(dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
