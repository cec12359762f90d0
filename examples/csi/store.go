package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// kind is what the volumes of a driver are like.
type kind string

const (
	disk  kind = "disk"  // a disk that is attached to one node at a time: the node stages it once and publishes it for each pod
	local kind = "local" // a disk that stays on one node, which is its topology: it is neither attached nor staged
	share kind = "share" // a directory that all nodes can use at once, as on a file server: it is neither attached nor staged
)

// store is the directory of all volumes. A persistent volume is ID.json with its record, and its content: the file ID.img or, of a driver of
// shared directories, the directory ID.share. While a node makes the file system of a volume, there is an empty file ID.half. An inline volume is the
// directory inline/ID.
type store struct {
	dir  string
	kind kind
}

// record is what the controller knows about a volume. Only the controller writes records.
type record struct {
	Bytes  int64  `json:"bytes"`
	Block  bool   `json:"block,omitempty"`
	Node   string `json:"node,omitempty"`   // node that the volume is attached to
	Home   string `json:"home,omitempty"`   // node that the volume is on for ever
	Source string `json:"source,omitempty"` // volume of which it is a copy
}

func (s store) image(id string) string  { return filepath.Join(s.dir, id+".img") }
func (s store) shared(id string) string { return filepath.Join(s.dir, id+".share") }
func (s store) record(id string) string { return filepath.Join(s.dir, id+recordEnds) }
func (s store) half(id string) string   { return filepath.Join(s.dir, id+".half") }
func (s store) inline(id string) string { return filepath.Join(s.dir, "inline", id) }

// staging returns the path on which a node mounts the file system of a volume that the node agent does not stage.
func (s store) staging(node, id string) string { return filepath.Join(s.dir, "staged", node, id) }

// recordEnds ends the names of the files with records.
const recordEnds = ".json"

// content returns the path of what a volume contains.
func (s store) content(id string) string {
	if s.kind == share {
		return s.shared(id)
	}
	return s.image(id)
}

// ids returns the IDs of all persistent volumes, sorted.
func (s store) ids() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	var ids []string
	for _, entry := range entries { // ReadDir sorts them
		if id, ok := strings.CutSuffix(entry.Name(), recordEnds); ok {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// checkID refuses an ID that is no plain file name.
func checkID(id string) error {
	if id == "" || len(id) > 128 || strings.ContainsAny(id, "/\x00") || strings.HasPrefix(id, ".") {
		return status.Errorf(codes.InvalidArgument, "%q is no name of a volume", id)
	}
	return nil
}

// read returns the record of a volume. Without one, the code of the error is NotFound.
func (s store) read(id string) (record, error) {
	if err := checkID(id); err != nil {
		return record{}, err
	}
	var r record
	text, err := os.ReadFile(s.record(id))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, status.Errorf(codes.NotFound, "there is no volume %s", id)
	case err != nil:
		return r, status.Errorf(codes.Internal, "read record of volume %s: %v", id, err)
	}
	return r, nil
}

// write replaces the record of a volume, and gives its content the size of the record. A directory has no size of its own.
func (s store) write(id string, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := s.resize(id, r.Bytes); err != nil {
		return err
	}
	if err := os.WriteFile(s.record(id)+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.record(id)+".new", s.record(id))
}

func (s store) resize(id string, bytes int64) error {
	if s.kind == share {
		if err := os.MkdirAll(s.shared(id), 0o777); err != nil {
			return err
		}
		return os.Chmod(s.shared(id), 0o777) // whatever the umask: any user of any pod writes into it
	}
	image, err := os.OpenFile(s.image(id), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(image.Truncate(bytes), image.Close())
}

// clone makes the image of a volume a copy of another one's. What is not allocated in the one is not allocated in the other. The copy of half a file system
// is half a file system, too.
func (s store) clone(from, id string) (err error) {
	if exists(s.half(from)) {
		if err := touch(s.half(id)); err != nil {
			return err
		}
	}
	source, err := os.Open(s.image(from))
	if err != nil {
		return err
	}
	defer source.Close()
	image, err := os.OpenFile(s.image(id), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, image.Close()) }()
	for at := int64(0); ; {
		begin, err := source.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // no data from here on
			return nil
		}
		if err != nil {
			return err
		}
		if at, err = source.Seek(begin, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(image, begin), io.NewSectionReader(source, begin, at-begin)); err != nil {
			return err
		}
	}
}

// touch makes an empty file that is still there after a power cut.
func touch(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	return errors.Join(file.Sync(), syncDirectory(filepath.Dir(path)))
}

// erase removes a file, which does not come back after a power cut.
func erase(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// remove deletes a volume and its data. The record goes last, so that a removal that was interrupted can be repeated.
func (s store) remove(id string) error {
	if err := s.discard(id); err != nil {
		return err
	}
	return os.Remove(s.record(id))
}

// discard deletes the data of a volume.
func (s store) discard(id string) error {
	return errors.Join(os.RemoveAll(s.content(id)), os.RemoveAll(s.half(id)))
}
