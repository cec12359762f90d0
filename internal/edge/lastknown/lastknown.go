package lastknown

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// Kind is the kind of an object in the record.
type Kind string

// These are the kinds of objects that a record can contain.
const (
	KindNode         Kind = "node"
	KindPod          Kind = "pod"
	KindConfigMap    Kind = "configmap"
	KindSecret       Kind = "secret"
	KindToken        Kind = "token"
	KindServices     Kind = "services"
	KindClaim        Kind = "persistentvolumeclaim"
	KindVolume       Kind = "persistentvolume"
	KindDriver       Kind = "csidriver"
	KindAttachment   Kind = "volumeattachment"
	KindRuntimeClass Kind = "runtimeclass"
)

// maxFile is the largest file in bytes. An object of the API has at most 1.5 MiB, and its JSON is little larger.
const maxFile = 4 << 20

// maxFiles is the largest number of files of a record.
const maxFiles = 20_000

// Files of a record have this mode; its directory has dirMode.
const (
	fileMode = 0o600
	dirMode  = 0o700
)

// ID identifies one object in the record.
type ID struct {
	Kind            Kind
	Namespace, Name string
}

// String returns for example "secret ns/name".
func (id ID) String() string {
	if id.Namespace == "" {
		return fmt.Sprintf("%s %s", id.Kind, id.Name)
	}
	return fmt.Sprintf("%s %s/%s", id.Kind, id.Namespace, id.Name)
}

// Entry is one object that Write stores.
type Entry struct {
	ID
	// Version changes whenever the content changes. If it is empty, Write compares the contents.
	Version string
	// Content is written as JSON. Nil: the API server answered that the object does not exist.
	Content any
	// Keep leaves the file on disk as it is, because the API server has not answered yet for this object.
	Keep bool
}

// Known is one object of a loaded record.
type Known struct {
	ID
	// Content is JSON; nil: the object did not exist.
	Content json.RawMessage
}

// Record is the loaded record: the last answers of the API server.
type Record struct {
	// At is when the API server last answered.
	At    time.Time
	Known []Known
	// Refused has an error for each file that is not used.
	Refused []error
}

// These are reasons to refuse a record.
var (
	ErrNone     = errors.New("there is no record")
	ErrTooOld   = errors.New("the record is too old")
	ErrTooLarge = errors.New("the record is too large")
)

// Disk writes and removes files. Store calls it from one goroutine.
type Disk interface {
	// WriteFile replaces a file, or leaves it as it was. The new content is on the disk when WriteFile returns.
	WriteFile(path string, data []byte, mode fs.FileMode) error
	Remove(path string) error
	SyncDir(dir string) error
}

// OS is the Disk of the machine.
type OS struct{}

// WriteFile replaces a file.
func (OS) WriteFile(path string, data []byte, mode fs.FileMode) error {
	return hostfs.WriteFile(path, data, mode)
}

// Remove removes a file.
func (OS) Remove(path string) error { return os.Remove(path) }

// SyncDir waits until changes of the directory are on the disk.
func (OS) SyncDir(dir string) error { return hostfs.SyncDir(dir) }

// Config configures a Store.
type Config struct {
	// Dir is the directory of the record. Only this Store writes to it.
	Dir string
	// KeyFile is the file that contains the key. If it is missing and MakeKey is set, it is created.
	KeyFile string
	MakeKey bool
	// Node is the node's name; Cluster identifies the cluster. A file of another node or cluster is refused.
	Node, Cluster string
	// MaxBytes limits the total size of all files. MaxAge limits the time since the API server last answered.
	MaxBytes int64
	MaxAge   time.Duration
	// Disk writes and removes the files; nil: the machine's own disk (OS).
	Disk Disk
}

// Store is the record on disk. One goroutine uses it.
type Store struct {
	cfg   Config
	seal  *seal
	files map[string]onDisk // by file name, without the head; nil: the directory has not been read
}

// onDisk describes a file on disk.
type onDisk struct {
	version string // "": not known
	sum     [sha256.Size]byte
	size    int64
}

// content is the plain text of a file.
type content struct {
	Node    string          `json:"node"`
	Cluster string          `json:"cluster"`
	Kind    Kind            `json:"kind,omitempty"` // "": the file is the head, which contains no object
	NS      string          `json:"namespace,omitempty"`
	Name    string          `json:"name,omitempty"`
	At      *time.Time      `json:"at,omitempty"` // when the API server last answered; only in the head
	Content json.RawMessage `json:"content,omitempty"`
}

// New returns a Store. It does no IO.
func New(cfg Config) *Store {
	if cfg.Disk == nil {
		cfg.Disk = OS{}
	}
	return &Store{cfg: cfg}
}

// Load reads the record; now is the time of the machine's clock. If the record is refused as a whole, the error says why, and what
// the administrator can do. The error is ErrNone if there is no record.
func (s *Store) Load(now time.Time) (*Record, error) {
	names, err := s.open()
	if err != nil {
		return nil, err
	}
	at, err := s.loadHead()
	if err != nil {
		return nil, err
	}
	if age := now.Sub(at); age > s.cfg.MaxAge {
		return nil, fmt.Errorf("%w: the API server last answered at %s, %s ago by this machine's clock; offlineStart.maxAge allows %s. If the clock is wrong, set it; the node tries again",
			ErrTooOld, at.Format(time.RFC3339), age.Round(time.Second), s.cfg.MaxAge)
	}
	rec := &Record{At: at}
	s.files = map[string]onDisk{}
	total := int64(0)
	for _, name := range names {
		k, size, err := s.loadFile(name)
		if total += size; total > s.cfg.MaxBytes {
			s.files = nil // not all files have been read
			return nil, fmt.Errorf("%w: its files have more than the %d bytes of offlineStart.maxSize: raise it", ErrTooLarge, s.cfg.MaxBytes)
		}
		if err != nil {
			rec.Refused = append(rec.Refused, fmt.Errorf("%s: %w", filepath.Join(s.cfg.Dir, name), err))
			continue
		}
		rec.Known = append(rec.Known, k)
	}
	return rec, nil
}

// open reads the key, and returns the sorted names of the record's files without that of the head. It removes temporary files that remain
// from a write during which the agent ended.
func (s *Store) open() ([]string, error) {
	if s.seal == nil {
		secret, err := readKey(s.cfg.KeyFile, s.cfg.MakeKey)
		if err != nil {
			return nil, err
		}
		if s.seal, err = newSeal(secret); err != nil {
			return nil, fmt.Errorf("use the key of the record: %w", err)
		}
	}
	dir, err := os.Open(s.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("read the record: %w", err)
	}
	defer dir.Close()
	all, err := dir.Readdirnames(maxFiles + 2)
	if err != nil && len(all) == 0 {
		return nil, ErrNone // io.EOF: the directory is empty
	}
	if len(all) > maxFiles+1 {
		return nil, fmt.Errorf("%w: %s has more than %d files: remove those that are not of the record (*%s)", ErrTooLarge, s.cfg.Dir, maxFiles, suffix)
	}
	var names []string
	for _, name := range all {
		switch {
		case filepath.Ext(name) == hostfs.Unfinished:
			_ = os.Remove(filepath.Join(s.cfg.Dir, name)) // an unfinished write: the next Write repeats it
		case name != headName && filepath.Ext(name) == suffix:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// loadHead returns when the API server last answered.
func (s *Store) loadHead() (time.Time, error) {
	c, _, err := s.read(headName)
	path := filepath.Join(s.cfg.Dir, headName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return time.Time{}, ErrNone
	case err != nil:
		return time.Time{}, fmt.Errorf("the record is refused: %s: %w", path, err)
	case c.At == nil || c.Kind != "":
		return time.Time{}, fmt.Errorf("the record is refused: %s does not say when the API server last answered", path)
	}
	return *c.At, nil
}

// loadFile reads one file and remembers it in files.
func (s *Store) loadFile(name string) (Known, int64, error) {
	c, size, err := s.read(name)
	id := ID{c.Kind, c.NS, c.Name}
	if err == nil && s.seal.name(id) != name {
		err = errors.New("the file has the name of another file") // cannot happen without the key
	}
	if err != nil {
		s.files[name] = onDisk{size: size} // without version and sum, the next Write replaces or removes the file
		return Known{}, size, err
	}
	s.files[name] = onDisk{sum: sha256.Sum256(c.Content), size: size}
	return Known{ID: id, Content: c.Content}, size, nil
}

// read reads and decrypts one file, and checks that the file belongs to this node and cluster.
func (s *Store) read(name string) (content, int64, error) {
	raw, err := hostfs.ReadUntrusted(filepath.Join(s.cfg.Dir, name), 1, maxFile)
	if err != nil {
		return content{}, 0, err
	}
	size := int64(len(raw))
	plain, err := s.seal.decrypt(name, raw)
	if err != nil {
		return content{}, size, err
	}
	var c content
	if err := json.Unmarshal(plain, &c); err != nil {
		return content{}, size, err
	}
	switch {
	case c.Node != s.cfg.Node:
		return content{}, size, fmt.Errorf("it is of the node %q, and this node is %q", c.Node, s.cfg.Node)
	case c.Cluster != s.cfg.Cluster:
		return content{}, size, errors.New("it is of another cluster: the certificate authority of the kubeconfig differs")
	}
	return c, size, nil
}
