package runtime

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/wherry-node/wherry/tools/internal/proc"
)

// DetachLoops detaches the loop devices of the files NAME.img in and below dir, which need not exist. What is on the devices must not be
// mounted any more. It asks for the devices of each file, because the list of all devices has the paths in the mount namespaces of those who
// made them.
func DetachLoops(ctx context.Context, dir string) error {
	var errs []error
	run := func(args ...string) string {
		out, err := proc.Output(exec.CommandContext(ctx, "losetup", args...), proc.Line("losetup", args...))
		errs = append(errs, err)
		return out
	}
	walked := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".img" {
			return err
		}
		for device := range strings.FieldsSeq(run("--associated", path, "--noheadings", "--output", "NAME")) {
			run("--detach", device)
		}
		return nil
	})
	if errors.Is(walked, os.ErrNotExist) {
		walked = nil
	}
	return errors.Join(append(errs, walked)...)
}
