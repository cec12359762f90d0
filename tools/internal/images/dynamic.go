package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Dynamic returns the files of programs of this machine that are not static: the programs and the libraries that they are linked with, at
// their paths on this machine. It looks for the programs in PATH.
func Dynamic(ctx context.Context, names ...string) ([]File, error) {
	var paths []string
	for _, name := range names {
		program, err := exec.LookPath(name)
		if err != nil {
			return nil, err
		}
		listing, err := exec.CommandContext(ctx, "ldd", program).Output()
		if err != nil {
			return nil, fmt.Errorf("find the libraries of %s: %w", program, err)
		}
		paths = append(append(paths, program), libraries(string(listing))...)
	}
	slices.Sort(paths) // two programs may have a library in common
	var files []File
	for _, path := range slices.Compact(paths) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: strings.TrimPrefix(filepath.Clean(path), "/"), Mode: 0o755, Data: data})
	}
	return files, nil
}

// libraries returns the paths in the output of ldd.
func libraries(listing string) []string {
	var found []string
	for field := range strings.FieldsSeq(listing) {
		if strings.HasPrefix(field, "/") {
			found = append(found, field)
		}
	}
	return found
}
