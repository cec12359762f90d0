package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// store is the directory of all volumes. A persistent volume is two files, ID.img with its content and ID.json with its record. An inline
// volume is the directory inline/ID.
type store struct{ dir string }

// record is what the controller knows about a volume. Only the controller writes records.
type record struct {
	Bytes int64  `json:"bytes"`
	Block bool   `json:"block,omitempty"`
	Node  string `json:"node,omitempty"` // node that the volume is attached to
}

func (s store) image(id string) string  { return filepath.Join(s.dir, id+".img") }
func (s store) record(id string) string { return filepath.Join(s.dir, id+".json") }
func (s store) inline(id string) string { return filepath.Join(s.dir, "inline", id) }

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

// write replaces the record of a volume, and gives its image the size of the record.
func (s store) write(id string, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	image, err := os.OpenFile(s.image(id), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(image.Truncate(r.Bytes), image.Close(), os.WriteFile(s.record(id)+".new", text, 0o600))
	if err != nil {
		return err
	}
	return os.Rename(s.record(id)+".new", s.record(id))
}

// remove deletes a volume and its data.
func (s store) remove(id string) error {
	for _, path := range []string{s.record(id), s.image(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
