package packages

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// All returns all files for all architectures of the source: name to content.
func (s *Source) All() (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, arch := range slices.Sorted(maps.Keys(s.Programs)) {
		packs, err := s.packs(arch)
		if err != nil {
			return nil, err
		}
		for _, p := range packs {
			for _, kind := range []string{"deb", "rpm"} {
				name, data, err := p.write(s, kind, arch)
				if err != nil {
					return nil, err
				}
				all[name] = data
			}
		}
		for _, write := range []func(string) (string, []byte, error){s.tarball, s.image} {
			name, data, err := write(arch)
			if err != nil {
				return nil, err
			}
			all[name] = data
		}
	}
	return all, nil
}

// Write writes the files and a file with their checksums into a directory, and prints their names. Other files in the directory stay.
func Write(dir string, all map[string][]byte, progress io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := os.WriteFile(filepath.Join(dir, name), all[name], 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(all[name]), name)
		fmt.Fprintf(progress, "%6.1f MiB  %s\n", float64(len(all[name]))/(1<<20), name)
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
