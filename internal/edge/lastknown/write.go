package lastknown

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Write replaces the content of the record by the entries, and the time of the API server's last answer by at. It writes only
// entries that have changed. Entries that do not fit into MaxBytes are left out, the last ones first, and the error is ErrTooLarge.
// After any other error, the record holds the old or the new state of each entry, and a later Write completes it.
func (s *Store) Write(entries []Entry, at time.Time) error {
	if err := s.prepare(); err != nil {
		return err
	}
	// First remove the files that are no longer needed, because the new files may need their disk space. If the agent crashes after that,
	// the record may lack a Secret of a pod that it still contains; that pod then waits for the API server.
	if err := s.removeOthers(entries); err != nil {
		return err
	}
	room, left := s.cfg.MaxBytes, 0
	for _, e := range entries {
		name := s.seal.name(e.ID)
		size, err := s.put(name, e, room)
		switch {
		case errors.Is(err, ErrTooLarge):
			left++
			err = s.remove(name)
		case err == nil:
			room -= size
		}
		if err != nil {
			return err
		}
	}
	if err := s.Confirm(at); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%w: %d of %d things are left out, because the others fill the %d bytes of offlineStart.maxSize: raise it", ErrTooLarge, left, len(entries), s.cfg.MaxBytes)
	}
	return nil
}

// Confirm stores only the time of the API server's last answer.
func (s *Store) Confirm(at time.Time) error {
	if err := s.prepare(); err != nil {
		return err
	}
	plain, err := json.Marshal(content{Node: s.cfg.Node, Cluster: s.cfg.Cluster, At: &at})
	if err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	if err := s.cfg.Disk.WriteFile(filepath.Join(s.cfg.Dir, headName), s.seal.encrypt(headName, plain), fileMode); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}

// prepare creates the directory. If Load has not read the directory's files, prepare reads them.
func (s *Store) prepare() error {
	if s.files != nil {
		return nil
	}
	if err := os.MkdirAll(s.cfg.Dir, dirMode); err != nil {
		return fmt.Errorf("make the directory of the record: %w", err)
	}
	names, err := s.open()
	if err != nil && !errors.Is(err, ErrNone) {
		return err
	}
	s.files = map[string]onDisk{}
	for _, name := range names {
		_, _, _ = s.loadFile(name) // a file that cannot be read is replaced or removed
	}
	return nil
}

// put writes the file of an entry unless it is on disk already. It returns the size of the file, or ErrTooLarge if that exceeds
// room.
func (s *Store) put(name string, e Entry, room int64) (int64, error) {
	have, had := s.files[name]
	if e.Keep || had && e.Version != "" && have.version == e.Version {
		if have.size > room {
			return 0, ErrTooLarge
		}
		return have.size, nil
	}
	c := content{Node: s.cfg.Node, Cluster: s.cfg.Cluster, Kind: e.Kind, NS: e.Namespace, Name: e.Name}
	var err error
	if e.Content != nil {
		if c.Content, err = json.Marshal(e.Content); err != nil {
			return 0, fmt.Errorf("write %s to the record: %w", e.ID, err)
		}
	}
	sum := sha256.Sum256(c.Content)
	if had && have.sum == sum && have.size <= room {
		have.version = e.Version
		s.files[name] = have
		return have.size, nil
	}
	plain, err := json.Marshal(c)
	if err != nil {
		return 0, fmt.Errorf("write %s to the record: %w", e.ID, err)
	}
	file := s.seal.encrypt(name, plain)
	if size := int64(len(file)); size > room || size > maxFile || !had && len(s.files) >= maxFiles {
		return 0, ErrTooLarge
	}
	s.files[name] = onDisk{size: have.size} // until the file is written, its content is not known
	if err := s.cfg.Disk.WriteFile(filepath.Join(s.cfg.Dir, name), file, fileMode); err != nil {
		return 0, fmt.Errorf("write %s to the record: %w", e.ID, err)
	}
	s.files[name] = onDisk{version: e.Version, sum: sum, size: int64(len(file))}
	return int64(len(file)), nil
}

// removeOthers removes the files of objects that are not among the entries.
func (s *Store) removeOthers(entries []Entry) error {
	keep := make(map[string]bool, len(entries))
	for _, e := range entries {
		keep[s.seal.name(e.ID)] = true
	}
	removed := false
	for name := range s.files {
		if !keep[name] {
			if err := s.remove(name); err != nil {
				return err
			}
			removed = true
		}
	}
	if !removed {
		return nil
	}
	if err := s.cfg.Disk.SyncDir(s.cfg.Dir); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	return nil
}

func (s *Store) remove(name string) error {
	if _, ok := s.files[name]; !ok {
		return nil
	}
	if err := s.cfg.Disk.Remove(filepath.Join(s.cfg.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a file of the record: %w", err)
	}
	delete(s.files, name)
	return nil
}
