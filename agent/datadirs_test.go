package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The directories that pods of CSI drivers mount exist before the first of these pods starts, and where SELinux is on, unprivileged containers may
// create their sockets there. A directory that cannot be made is named, and keeps no other from being made.
func TestDataDirs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	var labelled []string
	label := func(dir string) error {
		labelled = append(labelled, filepath.Base(dir))
		return nil
	}
	for range 2 { // the directories exist when an agent starts again
		if err := makeDataDirs(root, label); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"plugins", "plugins_registry", "plugins", "plugins_registry"}; !slices.Equal(labelled, want) {
		t.Errorf("labelled %v, want %v", labelled, want)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "plugins"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeDataDirs(other, nil); err == nil || !strings.Contains(err.Error(), filepath.Join(other, "plugins")) {
		t.Errorf("with a file in the way: %v", err)
	}
	for _, dir := range []string{root + "/pods", root + "/plugins", root + "/plugins_registry", other + "/pods", other + "/plugins_registry"} {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			t.Errorf("%s: %v, %v", dir, st, err)
		}
	}
}
