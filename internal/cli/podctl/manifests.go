package podctl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/wherry-node/wherry/internal/core/manifest"
)

// manifests is the input of wherry run.
type manifests struct {
	all   []byte // all documents as one stream
	pods  int
	notes []string // notes for the user about documents that are left out
}

// readManifests reads files, directories (their .yaml, .yml and .json files, except those that begin with a dot) and - for
// stdin. It checks them, so that errors name the file and line before anything is pushed.
func readManifests(paths []string, stdin io.Reader) (*manifests, error) {
	out := &manifests{}
	var errs []error
	for _, path := range paths {
		files, err := manifestFiles(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, file := range files {
			if err := out.read(file, stdin); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

func manifestFiles(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	var files []string
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".yaml", ".yml", ".json":
			if !strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read manifests: directory %s has no .yaml, .yml or .json file", path)
	}
	return files, nil
}

func (m *manifests) read(file string, stdin io.Reader) error {
	in, name := stdin, "stdin"
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("read manifest: %w", err)
		}
		defer f.Close()
		in, name = f, file
	}
	text, err := io.ReadAll(io.LimitReader(in, manifest.MaxBytes+1))
	if err != nil {
		return fmt.Errorf("read manifest %s: %w", name, err)
	}
	got := manifest.Decode(name, text)
	if err := got.Err(); err != nil {
		return err
	}
	if len(got.Pods)+len(got.ConfigMaps)+len(got.Secrets) == 0 {
		return fmt.Errorf("%s: the file is empty: a manifest needs a Pod, ConfigMap or Secret", name)
	}
	m.pods += len(got.Pods)
	for _, note := range got.Notes {
		m.notes = append(m.notes, note.Error())
	}
	if len(m.all) > 0 {
		m.all = append(bytes.TrimRight(m.all, "\n"), "\n---\n"...)
	}
	m.all = append(m.all, text...)
	return nil
}
