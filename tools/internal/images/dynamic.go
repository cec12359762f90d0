package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Dynamic returns the files of a program of this machine that is not static: the program and the libraries that it is linked with, at their
// paths on this machine. It looks for the program in PATH.
func Dynamic(ctx context.Context, name string) ([]File, error) {
	program, err := exec.LookPath(name)
	if err != nil {
		return nil, err
	}
	listing, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("find the libraries of %s: %w", program, err)
	}
	var files []File
	for _, path := range append(libraries(string(listing)), program) {
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
