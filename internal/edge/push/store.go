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

// store keeps records in a directory, one file each. Only the owner may read them, because Secrets are among them. When a method
// that changes a record returns, the change is on disk, or nothing has changed.
type store struct{ dir string }

const recordSuffix = ".json"

// file returns the path of a record. It shortens the name, because the name of a pod may be longer than the name of a
// file.
func (s store) file(r *record) string {
	sum := sha256.Sum256([]byte(r.key()))
	m := r.meta()
	readable := m.Namespace + "_" + m.Name
	return filepath.Join(s.dir, strings.ToLower(r.kind())+"_"+readable[:min(len(readable), 100)]+"_"+hex.EncodeToString(sum[:6])+recordSuffix)
}

func encodeRecord(r *record) []byte {
	raw, err := json.Marshal(r)
	if err != nil { // cannot happen: API types can always be encoded
		return nil
	}
	return raw
}

// load reads all records. It renames a file that is not a record, keeps its content and logs it, so that one bad file
// does not keep the other pods from running.
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
			_ = os.Remove(path) // an earlier agent ended while it wrote the file; it had not answered the request
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
			log.Error("cannot read a pushed object; its file was renamed, push the object again", "file", path, "aside", path+".bad", "err", err)
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

// save replaces the file of a record. The old file stays in place until the new file is complete.
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

// restore undoes what a push has done to ConfigMaps and Secrets. Before has the records from before the push.
func (p *Source) restore(before map[string]*record) {
	changed := false
	for key, r := range p.records {
		old := before[key]
		if old == r {
			continue
		}
		var err error
		if old == nil {
			err = p.store.remove(r)
		} else {
			err = p.store.save(old)
		}
		switch {
		case err != nil:
			p.cfg.Log.Error("an object of a refused push stays", "object", key, "err", err)
			continue
		case old == nil:
			delete(p.records, key)
		default:
			p.records[key] = old
		}
		changed = true
	}
	if changed {
		p.tellObjects()
	}
}
