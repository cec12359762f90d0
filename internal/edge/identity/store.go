package identity

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// store keeps the certificates of one kind in the layout of upstream's kubelet: each file holds one certificate with its key, and a
// link points to the current file.
type store struct {
	dir    string // the directory --cert-dir
	prefix string // beginning of the file names: kubelet-client or kubelet-server
}

// current returns the path of the link.
func (s store) current() string { return filepath.Join(s.dir, s.prefix+"-current.pem") }

// pendingKey returns the path of the key whose request is not answered yet.
func (s store) pendingKey() string { return filepath.Join(s.dir, s.prefix+".key.tmp") }

var _ keeper = store{}

func (s store) pending() (keyPair, error) { return keptKey(s.pendingKey()) }

func (s store) drop() error {
	if err := os.Remove(s.pendingKey()); err != nil {
		return fmt.Errorf("remove key: %w", err)
	}
	return nil
}

// load reads the current pair. If there is none yet, the error wraps fs.ErrNotExist.
func (s store) load() (*tls.Certificate, error) { return loadPair(s.current(), s.current()) }

// save writes the pair to a new file and then points the link to that file. Only then is the pair the current one.
func (s store) save(certPEM, keyPEM []byte) (*tls.Certificate, error) {
	pair, err := parsePair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("check new certificate: %w", err)
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make certificate directory: %w", err)
	}
	name, err := s.freeName()
	if err != nil {
		return nil, err
	}
	if err := hostfs.WriteFile(name, append(append([]byte{}, certPEM...), keyPEM...), 0o600); err != nil {
		return nil, fmt.Errorf("write certificate: %w", err)
	}
	if err := s.point(name); err != nil {
		return nil, err
	}
	if err := os.Remove(s.pendingKey()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove key of the answered request: %w", err)
	}
	return pair, hostfs.SyncDir(s.dir)
}

// point makes the link point to a file. A link cannot be changed, but renaming another link over it is atomic.
func (s store) point(file string) error {
	next := s.current() + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove old link: %w", err)
	}
	target, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("find certificate: %w", err)
	}
	if err := os.Symlink(target, next); err != nil {
		return fmt.Errorf("link certificate: %w", err)
	}
	if err := os.Rename(next, s.current()); err != nil {
		return fmt.Errorf("make certificate current: %w", err)
	}
	return nil
}

// mend points the link to the earlier pair that is valid longest, if the current pair is damaged or lost, as after a power cut or an error
// of the disk. If there is no such pair, it changes nothing, and the callers request a new one.
func (s store) mend(log *slog.Logger) {
	if _, err := os.Lstat(s.current()); s.dir == "" || err != nil {
		return // there has never been a pair, or somebody has removed the link to get a new one
	}
	_, damage := s.load()
	if damage == nil {
		return
	}
	file, earlier := s.newest()
	if file == "" {
		return
	}
	if err := s.point(file); err != nil {
		log.Error("The certificate is damaged, and an earlier one cannot take its place", "certificate", s.current(), "damage", damage, "earlier", file, "err", err)
		return
	}
	log.Warn("The certificate is damaged, an earlier one that is still valid has taken its place", "certificate", s.current(), "damage", damage,
		"earlier", file, "ends", stamp(earlier.Leaf.NotAfter))
}

// newest returns the pair that is valid longest, with its file. file is empty if no file has a pair that is valid now.
func (s store) newest() (file string, pair *tls.Certificate) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return "", nil
	}
	for _, e := range entries {
		name := filepath.Join(s.dir, e.Name())
		if !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), s.prefix+"-") || filepath.Ext(name) != ".pem" {
			continue
		}
		p, err := loadPair(name, name)
		if err != nil || time.Now().After(p.Leaf.NotAfter) {
			continue
		}
		if pair == nil || p.Leaf.NotAfter.After(pair.Leaf.NotAfter) {
			file, pair = name, p
		}
	}
	return file, pair
}

// freeName returns an unused file name for a new pair: the time, and a number if another pair was saved in the same second.
func (s store) freeName() (string, error) {
	base := filepath.Join(s.dir, s.prefix+"-"+time.Now().Format("2006-01-02-15-04-05"))
	for n := 0; ; n++ {
		name := base + ".pem"
		if n > 0 {
			name = fmt.Sprintf("%s-%d.pem", base, n)
		}
		_, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if err != nil {
			return "", fmt.Errorf("name new certificate: %w", err)
		}
	}
}

func loadPair(certFile, keyFile string) (*tls.Certificate, error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	pair, err := parsePair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", certFile, err)
	}
	return pair, nil
}

func parsePair(certPEM, keyPEM []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, err
		}
	}
	return &pair, nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func makeParent(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	return nil
}
