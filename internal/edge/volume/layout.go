package volume

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// layout knows the paths of pods below the root directory.
type layout struct{ root string }

const (
	volumesDir    = "volumes"
	subpathsDir   = "volume-subpaths"
	pluginsDir    = "plugins"
	containersDir = "containers"
	hostsFile     = "etc-hosts"
	claimsDir     = "claims"
)

func (l layout) pods() string                    { return filepath.Join(l.root, "pods") }
func (l layout) pod(uid types.UID) string        { return filepath.Join(l.root, "pods", string(uid)) }
func (l layout) volumes(uid types.UID) string    { return filepath.Join(l.pod(uid), volumesDir) }
func (l layout) containers(uid types.UID) string { return filepath.Join(l.pod(uid), containersDir) }
func (l layout) claims(uid types.UID) string     { return filepath.Join(l.pod(uid), claimsDir) }
func (l layout) hosts(uid types.UID) string      { return filepath.Join(l.pod(uid), hostsFile) }
func (l layout) volume(uid types.UID, k kind, name string) string {
	return filepath.Join(l.volumes(uid), k.dir(), name)
}

func (l layout) subpath(uid types.UID, volume, container string, index int) string {
	return filepath.Join(l.pod(uid), subpathsDir, volume, container, strconv.Itoa(index))
}

// checkName refuses a name that is not a plain file name. The API server does not allow such a name, but a pod may come from a
// manifest that no API server has validated.
func checkName(field, name string) error {
	if name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%s %q cannot be a directory name: use letters, digits and '-'", field, name)
	}
	return nil
}
