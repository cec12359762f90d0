package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/wherry-node/wherry/tools/internal/proc"
)

// DetachLoops detaches the loop devices of the files NAME.img in and below dir, which need not exist. What is on the devices must not be
// mounted any more: a device that is still in use is an error. After an error DetachLoops goes on with the other files, and returns all errors joined.
// It asks for the devices of each file, because the list of all devices has the paths in the mount namespaces of those who made them.
func DetachLoops(ctx context.Context, dir string) error {
	var errs []error
	run := func(args ...string) string {
		out, err := proc.Output(exec.CommandContext(ctx, "losetup", args...), proc.Line("losetup", args...))
		errs = append(errs, err)
		return out
	}
	devices := func(path string) string { return run("--associated", path, "--noheadings", "--output", "NAME") }
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error { // an error does not end the walk: errs has it
		switch {
		case errors.Is(err, os.ErrNotExist): // nothing is there, or no more
			return nil
		case err != nil:
			errs = append(errs, fmt.Errorf("look for images of loop devices: %w", err))
			return nil
		case entry.IsDir() || filepath.Ext(path) != ".img":
			return nil
		}
		all := devices(path)
		for device := range strings.FieldsSeq(all) {
			run("--detach", device)
		}
		if all == "" {
			return nil
		}
		if left := strings.Fields(devices(path)); len(left) > 0 { // losetup reports no error about a device that the kernel detaches only after its last use
			errs = append(errs, fmt.Errorf("detach %s from %s: still in use", strings.Join(left, ", "), path))
		}
		return nil
	})
	return errors.Join(errs...)
}
