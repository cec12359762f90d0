package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each module of the repository lists what it needs in its go.mod. If the root module takes a newer version of a library, a module that
// uses the root module needs `go mod tidy` too, or its programs and tests do not build.
func TestModulesAreTidy(t *testing.T) {
	t.Parallel()
	var modules []string
	for _, pattern := range []string{"go.mod", "*/go.mod", "*/*/go.mod"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		modules = append(modules, found...)
	}
	if len(modules) < 10 {
		t.Errorf("only %d modules were found: %s", len(modules), modules)
	}
	for _, file := range modules {
		// -mod=readonly makes the command fail instead of changing go.mod or go.sum. It reads what the packages and their tests import, and downloads nothing
		// that a build would not download.
		cmd := exec.Command("go", "list", "-mod=readonly", "-deps", "-test", "./...")
		cmd.Dir = filepath.Dir(file)
		cmd.Env = append(os.Environ(), "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", file, err, strings.TrimSpace(string(out)))
		}
	}
}
