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

// maxFile bounds the size of a file in bytes. It is enough for a record of two thousand secrets.
const maxFile = 1 << 20

const filePrefix = "sha256-"

// isUnfinished reports whether a file is the temporary file of a write that was not finished. The names of temporary files of other
// kubelets end in .tmp.
func isUnfinished(name string) bool {
	return strings.HasSuffix(name, hostfs.Unfinished) || strings.HasSuffix(name, ".tmp")
}

// fileName returns the file name of an intent (by image name) or a record (by image ID).
func fileName(of string) string { return fmt.Sprintf("%s%x", filePrefix, sha256.Sum256([]byte(of))) }

// isFile reports whether a name is the name of an intent or a record.
func isFile(name string) bool {
	return strings.HasPrefix(name, filePrefix) && !isUnfinished(name)
}

// read returns the content of a file, or nil if there is none. It follows no link, does not block on a FIFO and reads at most
// maxFile bytes.
func read(path string) ([]byte, error) {
	raw, err := hostfs.ReadUntrusted(path, 1, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// write replaces a whole file. If sync is true, the file is on the disk under its name before write returns.
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

// encode returns the JSON of an intent or a record, or an error if a file cannot hold it.
func encode(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	raw = append(raw, '\n')
	if len(raw) > maxFile {
		return nil, fmt.Errorf("the record would grow beyond %d bytes", maxFile)
	}
	return raw, nil
}

// remove removes a file. A missing file is no error.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// list returns the names of the intents or records in a directory. The directory may be missing.
func list(dir string) ([]string, error) { return names(dir, isFile) }

// sweep removes the temporary files of an agent that crashed.
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
		return nil, errors.New("the intent names no image")
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

// decode is strict: if it ignored fields of a newer kubelet, writing the file back would lose them. It does not use package yamldoc, because
// kubelets write these files, as JSON on one line: nobody corrects them by line and field, and the first fault is enough to refuse a file.
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
		return fmt.Errorf("the file is %s, not a %s of %s", gvk, kind, kubelet.GroupName)
	}
	return nil
}
