package hostfs

import (
	"errors"
	"fmt"

	"github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
)

// HasSELinux reports whether SELinux is on in this machine's kernel.
func HasSELinux() bool { return selinux.GetEnabled() }

// FileLabel returns the SELinux label of files that a container may use whose process has this user and level. An empty user is the one that
// the machine's policy has for containers; level must not be empty. It must be called only if HasSELinux.
func FileLabel(user, level string) (string, error) {
	options := []string{"level:" + level}
	if user != "" {
		options = append(options, "user:"+user)
	}
	process, file, err := label.InitLabels(options)
	if err != nil {
		return "", fmt.Errorf("find the SELinux label of files: %w", err)
	}
	selinux.ReleaseLabel(process) // the library has reserved the level for a container of its own
	if file == "" {
		return "", errors.New("SELinux is on, but its policy has no label for the files of containers (lxc_contexts): install the policy for containers (container-selinux)")
	}
	return file, nil
}

// LabelForContainers gives a directory the SELinux label with which every container may use it, as upstream's kubelet does for the directories of
// plugins. It must be called only if HasSELinux.
func LabelForContainers(dir string) error {
	if err := selinux.SetFileLabel(dir, "system_u:object_r:container_file_t:s0"); err != nil {
		return fmt.Errorf("set the SELinux label of %s: %w", dir, err)
	}
	return nil
}
