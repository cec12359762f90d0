package pullrecord

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// maxOpen bounds how many intents of pulls with an unknown result the Store keeps.
const maxOpen = 1000

// Store keeps intents and records below a root directory. Its methods may be called concurrently.
type Store struct {
	pulling, pulled string
	log             *slog.Logger
	files           locks

	mu     sync.Mutex
	loaded bool
	open   map[string]*intent // the intents of pulls whose result is unknown, by file name
}

// intent is a pull that has begun and whose result is unknown.
type intent struct {
	image string    // name of the image in the spec; "": the intent's file cannot be read, and only the hash of the name is known
	pulls int       // number of pulls of the image that this agent has in flight
	ended time.Time // when the last of these pulls ended
}

// New returns the Store of <root>/image_manager. It does no IO.
func New(root string, log *slog.Logger) *Store {
	dir := filepath.Join(root, "image_manager")
	return &Store{pulling: filepath.Join(dir, "pulling"), pulled: filepath.Join(dir, "pulled"), log: log, open: map[string]*intent{}}
}

func meta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: kubelet.SchemeGroupVersion.String()}
}

// Begin writes the intent for a pull of the image, by its name in the spec. One End or Leave follows each Begin.
func (s *Store) Begin(image string) error {
	if err := s.load(); err != nil {
		return err
	}
	name := fileName(image)
	path := filepath.Join(s.pulling, name)
	defer s.files.take(path)()
	s.mu.Lock()
	busy := s.open[name] != nil && s.open[name].pulls > 0
	s.mu.Unlock()
	if !busy {
		if err := write(path, &kubelet.ImagePullIntent{TypeMeta: meta("ImagePullIntent"), Image: image}, false); err != nil {
			return fmt.Errorf("note that image %q is about to be pulled: %w", image, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[name] == nil {
		s.open[name] = &intent{}
	}
	s.open[name].image = image
	s.open[name].pulls++
	return nil
}

// End ends a pull whose result is known: it failed, or Pulled has recorded it.
func (s *Store) End(image string) { s.finish(image, false) }

// Leave ends a pull whose result is unknown: the runtime may still have added the image.
func (s *Store) Leave(image string) { s.finish(image, true) }

func (s *Store) finish(image string, leave bool) {
	name := fileName(image)
	defer s.files.take(filepath.Join(s.pulling, name))()
	s.mu.Lock()
	it := s.open[name]
	if it == nil { // there is no intent, because Begin failed
		s.mu.Unlock()
		return
	}
	it.pulls--
	it.ended = time.Now()
	last := it.pulls <= 0
	keep := leave && len(s.open) <= maxOpen
	s.mu.Unlock()
	if last && !keep {
		s.close(name)
	}
}

// close removes an intent. If that fails, Settle tries again. It is called with the file's lock held.
func (s *Store) close(name string) {
	if err := remove(filepath.Join(s.pulling, name)); err != nil {
		s.log.Warn("intent of an ended image pull not removed; pods need their own credentials for the image until then", "err", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, name)
}

// load reads the intents that earlier agents left. After it has succeeded once, it does nothing.
func (s *Store) load() error {
	s.mu.Lock()
	loaded := s.loaded
	s.mu.Unlock()
	if loaded {
		return nil
	}
	defer s.files.take(s.pulling)()
	s.mu.Lock()
	loaded = s.loaded
	s.mu.Unlock()
	if loaded {
		return nil
	}
	if err := errors.Join(sweep(s.pulling), sweep(s.pulled)); err != nil {
		return fmt.Errorf("remove unfinished files of image pulls: %w", err)
	}
	names, err := list(s.pulling)
	if err != nil {
		return fmt.Errorf("find image pulls that an earlier agent began: %w", err)
	}
	left := map[string]*intent{}
	for _, name := range names {
		left[name] = &intent{ended: time.Now()}
		raw, err := read(filepath.Join(s.pulling, name))
		if err == nil {
			var i *kubelet.ImagePullIntent
			if i, err = decodeIntent(raw); err == nil && fileName(i.Image) == name {
				left[name].image = i.Image
			}
		}
		if err != nil {
			s.log.Warn("intent of an image pull not readable; pods need their own credentials for the image until it is pulled again",
				"file", filepath.Join(s.pulling, name), "err", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.open, left)
	s.loaded = true
	return nil
}

// Claimed reports whether a pull of an image has begun and its result is unknown, that is, whether the image has an intent. image is
// the name in the pod spec, and img is the image as the runtime describes it. An intent for any name of img counts.
func (s *Store) Claimed(image string, img *runtimeapi.Image) (bool, error) {
	if err := s.load(); err != nil {
		return true, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) == 0 {
		return false, nil
	}
	if s.open[fileName(image)] != nil {
		return true, nil
	}
	for name, it := range s.open {
		if it.names(name, img) {
			return true, nil
		}
	}
	return false, nil
}

// names reports whether the intent's name is one of the runtime's names for an image.
func (it *intent) names(file string, img *runtimeapi.Image) bool {
	for _, names := range [][]string{img.GetRepoTags(), img.GetRepoDigests()} {
		for _, n := range names {
			if it.image == "" && fileName(n) == file || it.image != "" && pullaccess.SameImage(it.image, n) {
				return true
			}
		}
	}
	return false
}

// Record returns the record of the image with this ID. pulled is false if there is none. A record that cannot be read counts as
// one without credentials.
func (s *Store) Record(id string) (record *kubelet.ImagePulledRecord, pulled bool) {
	path := filepath.Join(s.pulled, fileName(id))
	raw, err := read(path)
	if err == nil && raw == nil {
		return nil, false
	}
	if err == nil {
		record, err = decodeRecord(raw)
	}
	if err == nil && record.ImageRef != id {
		err = fmt.Errorf("the record is of image %q", record.ImageRef)
	}
	if err != nil {
		s.log.Warn("record of a pulled image not readable; pods need their own credentials until it is pulled again", "image", id, "file", path, "err", err)
		return &kubelet.ImagePulledRecord{ImageRef: id}, true
	}
	return record, true
}

// Pulled records a pull: the image (its name in the spec), the runtime's ID of it, and the credentials of the pull. Empty
// credentials mean that they are unknown.
func (s *Store) Pulled(image, id string, by kubelet.ImagePullCredentials) error {
	return s.merge(image, id, by, true)
}

// Matched adds to the image's record the credentials that gave a pod access to the present image without a pull.
func (s *Store) Matched(image, id string, by kubelet.ImagePullCredentials) error {
	return s.merge(image, id, by, false)
}

// merge adds credentials to a record. If renew is true, it writes the record even if nothing changes: the new time in it protects the
// record from a list of images that is older than the pull.
func (s *Store) merge(image, id string, by kubelet.ImagePullCredentials, renew bool) error {
	if err := s.load(); err != nil {
		return err
	}
	repository, err := pullaccess.Repository(image)
	if err != nil && known(by) {
		return err
	}
	path := filepath.Join(s.pulled, fileName(id))
	defer s.files.take(path)()
	record, pulled := s.Record(id)
	if !pulled {
		record = &kubelet.ImagePulledRecord{}
	}
	changed := pullaccess.Add(record, repository, by) || !pulled
	if !changed && !renew {
		return nil
	}
	record.TypeMeta, record.ImageRef, record.LastUpdatedTime = meta("ImagePulledRecord"), id, metav1.Now()
	if err := write(path, record, changed); err != nil {
		return fmt.Errorf("record who pulled image %q: %w", image, err)
	}
	return nil
}

// known reports whether the credentials are known, so that the record gives access to some pods.
func known(c kubelet.ImagePullCredentials) bool {
	return c.NodePodsAccessible || len(c.KubernetesSecrets) > 0 || len(c.KubernetesServiceAccounts) > 0
}

// Count returns how many intents and records there are on disk.
func (s *Store) Count() (intents, records int) {
	pulling, err := list(s.pulling)
	if err != nil {
		return 0, 0
	}
	pulled, err := list(s.pulled)
	if err != nil {
		return len(pulling), 0
	}
	return len(pulling), len(pulled)
}

// age returns the modification time of a file; zero: unknown.
func age(path string) time.Time {
	st, err := os.Lstat(path)
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}
