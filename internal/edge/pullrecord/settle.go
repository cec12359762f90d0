package pullrecord

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// forgetAfter is how long the agent keeps the intent of a pull whose result is unknown: in this time, the runtime may still add the image.
const forgetAfter = 10 * time.Minute

// Settle compares intents and records with the images of the runtime. began is when the request for the list was sent. An intent whose
// image is present becomes a record without credentials. An intent whose image has not come is removed after forgetAfter. The record
// of an image that the list does not have is removed. An empty list changes nothing, because it may be an error of the runtime.
func (s *Store) Settle(began time.Time, images []*runtimeapi.Image) error {
	if len(images) == 0 {
		return nil
	}
	if err := s.load(); err != nil {
		return err
	}
	return errors.Join(s.settleIntents(began, images), s.dropRecords(began, images))
}

func (s *Store) settleIntents(began time.Time, images []*runtimeapi.Image) error {
	var errs []error
	for name, it := range s.left() {
		if err := s.settle(name, it, began, images); err != nil {
			errs = append(errs, fmt.Errorf("settle the pull of image %q: %w", it.image, err))
		}
	}
	return errors.Join(errs...)
}

// left returns the intents for which this agent has no pull in flight.
func (s *Store) left() map[string]intent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out map[string]intent
	for name, it := range s.open {
		if it.pulls > 0 {
			continue
		}
		if out == nil {
			out = map[string]intent{}
		}
		out[name] = *it
	}
	return out
}

func (s *Store) settle(name string, it intent, began time.Time, images []*runtimeapi.Image) error {
	defer s.files.take(filepath.Join(s.pulling, name))()
	s.mu.Lock()
	now := s.open[name]
	busy := now == nil || now.pulls > 0
	s.mu.Unlock()
	if busy {
		return nil
	}
	found := false
	for _, img := range images {
		if !it.names(name, img) {
			continue
		}
		found = true
		if err := s.Pulled(it.image, img.Id, kubelet.ImagePullCredentials{}); err != nil {
			return err
		}
	}
	// If the file of an intent cannot be read, the name of its image is not known (image is ""), only the hash of the name. Such an
	// intent stays until its image is present or pulled.
	if found || it.image != "" && began.Sub(it.ended) > forgetAfter {
		s.close(name)
	}
	return nil
}

func (s *Store) dropRecords(began time.Time, images []*runtimeapi.Image) error {
	names, err := list(s.pulled)
	if err != nil {
		return fmt.Errorf("list records of pulled images: %w", err)
	}
	if len(names) == 0 {
		return nil
	}
	present := make(map[string]bool, len(images))
	for _, img := range images {
		present[fileName(img.Id)] = true
	}
	var errs []error
	for _, name := range names {
		if present[name] {
			continue
		}
		if err := s.drop(name, began); err != nil {
			errs = append(errs, fmt.Errorf("remove the record of an image that is gone: %w", err))
		}
	}
	return errors.Join(errs...)
}

// drop removes a record that was written before the listing of images began. Times in records are whole seconds, so began is
// truncated too.
func (s *Store) drop(name string, began time.Time) error {
	path := filepath.Join(s.pulled, name)
	defer s.files.take(path)()
	raw, err := read(path)
	written := age(path)
	if err == nil && raw != nil {
		if record, err := decodeRecord(raw); err == nil {
			written = record.LastUpdatedTime.Time
		}
	}
	if !written.Before(began.Truncate(time.Second)) {
		return nil
	}
	return remove(path)
}
