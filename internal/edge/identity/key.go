package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// keyPair is a private key with its PEM form, as stored on disk.
type keyPair struct {
	key *ecdsa.PrivateKey
	pem []byte
}

// newKey makes an ECDSA P-256 key.
func newKey() (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("make key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return keyPair{}, fmt.Errorf("encode key: %w", err)
	}
	return keyPair{key: key, pem: pemBlock("EC PRIVATE KEY", der)}, nil
}

// keptKey reads the key at path. If there is none, it makes one and writes it to disk before the public key is used. It replaces
// a file without a valid key, because no certificate can belong to it.
func keptKey(path string) (keyPair, error) {
	data, err := os.ReadFile(path)
	if err == nil {
		if block, _ := pem.Decode(data); block != nil {
			if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
				return keyPair{key: key, pem: data}, nil
			}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return keyPair{}, fmt.Errorf("read key: %w", err)
	}
	made, err := newKey()
	if err != nil {
		return keyPair{}, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return keyPair{}, fmt.Errorf("make certificate directory: %w", err)
	}
	if err := hostfs.WriteFile(path, made.pem, 0o600); err != nil {
		return keyPair{}, fmt.Errorf("keep key: %w", err)
	}
	return made, nil
}
