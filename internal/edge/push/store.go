package push

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// store keeps records in a directory, one file each, only for its owner: Secrets are among them. Each change is on disk
// when it returns, or nothing has changed.
type store struct{ dir string }

const recordSuffix = ".json"

// file is where a record lies. Names of pods are longer than names of files may be.
func (s store) file(r *record) string {
	sum := sha256.Sum256([]byte(r.key()))
	m := r.meta()
	readable := m.Namespace + "_" + m.Name
	return filepath.Join(s.dir, strings.ToLower(r.kind())+"_"+readable[:min(len(readable), 100)]+"_"+hex.EncodeToString(sum[:6])+recordSuffix)
}

func encodeRecord(r *record) []byte {
	raw, err := json.Marshal(r)
	if err != nil { // API types always encode
		return nil
	}
	return raw
}

// load reads all records. A file that is none is put aside, with its content, and said: one of them does not keep the
// others from running.
func (s store) load(log *slog.Logger) ([]*record, error) {
	if s.dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of pushed pods: %w", err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read directory of pushed pods: %w", err)
	}
	var out []*record
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		if strings.HasSuffix(path, hostfs.Unfinished) {
			_ = os.Remove(path) // of an agent that ended while it wrote: nobody was told that it is kept
			continue
		}
		if !strings.HasSuffix(path, recordSuffix) {
			continue
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read pushed pods: %w", err)
		}
		r, err := decodeRecord(raw)
		if err != nil {
			log.Error("what was pushed cannot be read; it is put aside, push it again", "file", path, "aside", path+".bad", "err", err)
			if err := os.Rename(path, path+".bad"); err != nil {
				return nil, fmt.Errorf("put a bad file aside: %w", err)
			}
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

func decodeRecord(raw []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, err
	}
	m := r.meta()
	if m == nil || m.Name == "" || m.Namespace == "" || !pod.PathSegment(m.Namespace) || !pod.PathSegment(m.Name) || (r.Pod != nil && !pod.RefOf(r.Pod).Plausible()) {
		return nil, errors.New("it holds no object with a name")
	}
	return r, nil
}

// save writes a record in place of the old one, which stays whole until the new one is.
func (s store) save(r *record) error {
	if s.dir == "" {
		return nil
	}
	path := s.file(r)
	if err := hostfs.WriteFile(path, encodeRecord(r), 0o600); err != nil {
		return fmt.Errorf("keep %s %s/%s: %w", strings.ToLower(r.kind()), r.meta().Namespace, r.meta().Name, err)
	}
	return nil
}

func (s store) remove(r *record) error {
	if s.dir == "" {
		return nil
	}
	if err := os.Remove(s.file(r)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return hostfs.SyncDir(s.dir)
}
