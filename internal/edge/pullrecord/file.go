package pullrecord

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	kubelet "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// maxFile bounds a file that is read or written: a record of two thousand secrets.
const maxFile = 1 << 20

const filePrefix = "sha256-"

// isUnfinished: what an agent had not finished when it ended; other agents' end in .tmp.
func isUnfinished(name string) bool {
	return strings.HasSuffix(name, hostfs.Unfinished) || strings.HasSuffix(name, ".tmp")
}

// fileName is where an image's intent (by name) or record (by ID) lies.
func fileName(of string) string { return fmt.Sprintf("%s%x", filePrefix, sha256.Sum256([]byte(of))) }

// isFile: other names in the directories are not ours.
func isFile(name string) bool {
	return strings.HasPrefix(name, filePrefix) && !isUnfinished(name)
}

// read returns the file's bytes, or nil where there is none. It follows no link, waits for no FIFO and reads no more than
// maxFile.
func read(path string) ([]byte, error) {
	raw, err := hostfs.ReadUntrusted(path, 1, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// write replaces a file whole. With sync it is on the disk, under its name, before write returns.
func write(path string, v any, sync bool) error {
	raw, err := encode(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if sync {
		return hostfs.WriteFile(path, raw, 0o600)
	}
	return hostfs.ReplaceFile(path, raw, 0o600)
}

// encode is what write writes.
func encode(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	raw = append(raw, '\n')
	if len(raw) > maxFile {
		return nil, fmt.Errorf("it would grow beyond %d bytes", maxFile)
	}
	return raw, nil
}

// remove removes a file; one that is not there is removed.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// list returns the names of our files in a directory, which may be absent.
func list(dir string) ([]string, error) { return names(dir, isFile) }

// sweep removes the half-written files of an agent that crashed.
func sweep(dir string) error {
	torn, err := names(dir, isUnfinished)
	errs := []error{err}
	for _, name := range torn {
		errs = append(errs, remove(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

func names(dir string, ours func(name string) bool) ([]string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Readdirnames(-1)
	return slices.DeleteFunc(all, func(name string) bool { return !ours(name) }), err
}

// decodeIntent reads an ImagePullIntent.
func decodeIntent(raw []byte) (*kubelet.ImagePullIntent, error) {
	intent := &kubelet.ImagePullIntent{}
	if err := decode(raw, "ImagePullIntent", intent); err != nil {
		return nil, err
	}
	if intent.Image == "" {
		return nil, errors.New("it names no image")
	}
	return intent, nil
}

// decodeRecord reads an ImagePulledRecord.
func decodeRecord(raw []byte) (*kubelet.ImagePulledRecord, error) {
	record := &kubelet.ImagePulledRecord{}
	if err := decode(raw, "ImagePulledRecord", record); err != nil {
		return nil, err
	}
	return record, nil
}

// decode is strict: what a newer kubelet wrote into a field that is not known here must not be lost by writing it back.
func decode(raw []byte, kind string, into runtime.Object) error {
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return err
	}
	if len(strict) > 0 {
		return strict[0]
	}
	gvk := into.GetObjectKind().GroupVersionKind()
	if gvk.Kind != kind || gvk.Group != kubelet.GroupName || gvk.Version != "v1beta1" && gvk.Version != "v1alpha1" {
		return fmt.Errorf("it is %s, not a %s of %s", gvk, kind, kubelet.GroupName)
	}
	return nil
}
