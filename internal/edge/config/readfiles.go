package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// These constants bound the files of one configuration. The files of kubeadm have about 1 KiB.
const (
	maxFile      = 1 << 20 // bytes of one file
	maxFiles     = 4 << 20 // bytes of all drop-in files
	maxDropIns   = 1024    // drop-in files
	maxEntries   = 10_000  // files of any name in --config-dir and below it
	maxDropDepth = 16      // depth of directories below --config-dir
)

// readBounded returns the content of a file of no more than most bytes.
func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes, the most that a configuration file may have", name, most)
	}
	return data, nil
}

// dropIns returns the *.conf files of a directory and its subdirectories, in lexical order, and also the directories.
func dropIns(dir string) (files, dirs []string, err error) {
	entries := 0
	var walk func(dir string, depth int) error
	walk = func(dir string, depth int) error {
		if depth > maxDropDepth {
			return fmt.Errorf("%s: more than %d directories, one in the other", dir, maxDropDepth)
		}
		list, err := entriesOf(dir, maxEntries-entries)
		if err != nil {
			return err
		}
		dirs, entries = append(dirs, dir), entries+len(list)
		for _, e := range list {
			switch path := filepath.Join(dir, e.Name()); {
			case e.IsDir():
				if err := walk(path, depth+1); err != nil {
					return err
				}
			case filepath.Ext(path) == ".conf":
				files = append(files, path)
			}
		}
		return nil
	}
	if err := walk(dir, 0); err != nil {
		return nil, nil, err
	}
	if len(files) > maxDropIns {
		return nil, nil, fmt.Errorf("%s has %d files *.conf, more than %d: write fewer and longer ones", dir, len(files), maxDropIns)
	}
	return files, dirs, nil
}

// entriesOf returns the entries of a directory in lexical order, but no more than most.
func entriesOf(dir string, most int) ([]os.DirEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	list, err := f.ReadDir(most + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(list) > most {
		return nil, fmt.Errorf("%s has more than %d files: keep files that are no drop-ins elsewhere", dir, maxEntries)
	}
	slices.SortFunc(list, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}
