package lastknown

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

const (
	// minKey and maxKey bound the size of a key file in bytes.
	minKey = 16
	maxKey = 4096
	// magic is the beginning of every file. It contains the version of the format.
	magic = "wherry last known 1\n"
	// suffix ends the name of every file of the record.
	suffix = ".known"
	// headName is the name of the file that says when the API server last answered.
	headName = "head" + suffix
)

// seal encrypts files and derives their names, with two keys that come from the content of the key file.
type seal struct {
	aead  cipher.AEAD
	names []byte
}

func newSeal(secret []byte) (*seal, error) {
	files, err := hkdf.Key(sha256.New, secret, nil, "wherry last known: files", 32)
	if err != nil {
		return nil, err
	}
	names, err := hkdf.Key(sha256.New, secret, nil, "wherry last known: names", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(files)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &seal{aead: aead, names: names}, nil
}

// name returns the name of the file that stores the object id.
func (s *seal) name(id ID) string {
	mac := hmac.New(sha256.New, s.names)
	fmt.Fprintf(mac, "%d:%s%d:%s%d:%s", len(id.Kind), id.Kind, len(id.Namespace), id.Namespace, len(id.Name), id.Name)
	return hex.EncodeToString(mac.Sum(nil)[:16]) + suffix
}

// encrypt encrypts plain and returns the content of the file with this name. The content is valid only under this name.
func (s *seal) encrypt(name string, plain []byte) []byte {
	out := make([]byte, len(magic), len(magic)+len(plain)+s.aead.Overhead())
	copy(out, magic)
	return s.aead.Seal(out, nil, plain, []byte(magic+name))
}

var errTampered = errors.New("the file was written with another key, or it is torn, changed or moved")

// decrypt returns the plain text of the file with this name.
func (s *seal) decrypt(name string, file []byte) ([]byte, error) {
	sealed, ok := bytes.CutPrefix(file, []byte(magic))
	if !ok {
		return nil, errors.New("the file is not a file of this version of the record")
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(magic+name))
	if err != nil {
		return nil, errTampered
	}
	return plain, nil
}

// readKey reads the key file. If the file is missing and create is set, readKey creates it with a random key.
func readKey(path string, create bool) ([]byte, error) {
	info, err := os.Stat(path) // a symbolic link is allowed: systemd and administrators make them
	switch {
	case errors.Is(err, fs.ErrNotExist) && create:
		return makeKey(path)
	case err != nil:
		return nil, fmt.Errorf("read the key of the record (offlineStart.keyFile): %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read the key of the record (offlineStart.keyFile): %s is not a regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("the key of the record (offlineStart.keyFile) %s has the mode %04o, so others than its owner can use it: chmod 0600 it", path, info.Mode().Perm())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the key of the record (offlineStart.keyFile): %w", err)
	}
	defer f.Close()
	key, err := hostfs.ReadBounded(f, maxKey)
	if err != nil {
		return nil, fmt.Errorf("read the key of the record (offlineStart.keyFile): %w", err)
	}
	if len(key) < minKey {
		return nil, fmt.Errorf("the key of the record (offlineStart.keyFile) %s has %d bytes; it needs at least %d random bytes, for example of: head -c 32 /dev/urandom", path, len(key), minKey)
	}
	return key, nil
}

func makeKey(path string) ([]byte, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the key of the record: %w", err)
	}
	if err := hostfs.WriteFile(path, key, 0o600); err != nil {
		return nil, fmt.Errorf("make the key of the record: %w", err)
	}
	return key, nil
}
