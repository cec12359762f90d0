package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Store is a directory of keys and certificates. Every field must be set.
type Store struct {
	Dir string
	Now func() time.Time
	// AuthorityLife is the lifetime of a new CA certificate, and LeafLife that of a certificate that a CA signs.
	AuthorityLife, LeafLife time.Duration
	// Margin is how long a certificate has to stay valid; otherwise Ensure and Authority replace it.
	Margin time.Duration
}

// Leaf describes a certificate that is not a CA. Its files are Name.crt and Name.key.
type Leaf struct {
	Name         string
	CommonName   string
	Organization []string
	DNSNames     []string
	IPs          []net.IP
	Server       bool
	Client       bool
}

// Pair has the paths of the files of a certificate and its private key.
type Pair struct{ Cert, Key string }

// Authority is a CA, which signs leaves. Its files are NAME.crt and NAME.key.
type Authority struct {
	Pair
	// Made is true if this call of Store.Authority created the CA. Certificates that an earlier CA signed are then invalid.
	Made  bool
	store *Store
	cert  *x509.Certificate
	key   crypto.Signer
}

// Authority returns the CA with this name. If the files have no valid CA, it creates a new one.
func (s *Store) Authority(name string) (*Authority, error) {
	pair := s.pair(name)
	cert, key, err := load(pair)
	if err == nil && cert.IsCA && s.fresh(cert) {
		return &Authority{Pair: pair, store: s, cert: cert, key: key}, nil
	}
	key, err = newKey()
	if err != nil {
		return nil, err
	}
	now := s.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(s.AuthorityLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{name},
	}
	cert, err = s.sign(pair, template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("make authority %s: %w", name, err)
	}
	return &Authority{Pair: pair, Made: true, store: s, cert: cert, key: key}, nil
}

// Ensure returns the paths of the leaf's certificate and key. It creates a new certificate if the files have no valid one.
func (a *Authority) Ensure(leaf Leaf) (Pair, error) {
	pair := a.store.pair(leaf.Name)
	if cert, _, err := load(pair); err == nil && a.store.fresh(cert) && a.signed(cert) && leaf.matches(cert) {
		return pair, nil
	}
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Pair{}, fmt.Errorf("make serial of %s: %w", leaf.Name, err)
	}
	now := a.store.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Organization},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(a.store.LeafLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:           leaf.usages(),
		BasicConstraintsValid: true,
		DNSNames:              leaf.DNSNames,
		IPAddresses:           leaf.IPs,
	}
	if _, err := a.store.sign(pair, template, a.cert, key, a.key); err != nil {
		return Pair{}, fmt.Errorf("make certificate %s: %w", leaf.Name, err)
	}
	return pair, nil
}

// KeyPair returns the paths of a private key, NAME.key, and its public key, NAME.pub, which sign and verify service account tokens. It
// creates the keys if they are missing.
func (s *Store) KeyPair(name string) (private, public string, err error) {
	private, public = filepath.Join(s.Dir, name+".key"), filepath.Join(s.Dir, name+".pub")
	key, err := loadKey(private)
	if err != nil {
		if key, err = newKey(); err != nil {
			return "", "", err
		}
		if err = writeKey(private, key); err != nil {
			return "", "", err
		}
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", "", fmt.Errorf("encode public key %s: %w", name, err)
	}
	return private, public, WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644)
}

func (s *Store) pair(name string) Pair {
	return Pair{Cert: filepath.Join(s.Dir, name+".crt"), Key: filepath.Join(s.Dir, name+".key")}
}

func (s *Store) fresh(cert *x509.Certificate) bool {
	now := s.Now()
	return !now.Before(cert.NotBefore) && now.Add(s.Margin).Before(cert.NotAfter)
}

func (s *Store) sign(pair Pair, template, parent *x509.Certificate, key, signer crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	// The key is written before the certificate. If a crash comes between, load notices that the two do not match, and both are created
	// again.
	if err := writeKey(pair.Key, key); err != nil {
		return nil, err
	}
	if err := WriteFile(pair.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func (a *Authority) signed(cert *x509.Certificate) bool {
	return cert.CheckSignatureFrom(a.cert) == nil
}

func (l Leaf) usages() []x509.ExtKeyUsage {
	var usages []x509.ExtKeyUsage
	if l.Server {
		usages = append(usages, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		usages = append(usages, x509.ExtKeyUsageClientAuth)
	}
	return usages
}

func (l Leaf) matches(cert *x509.Certificate) bool {
	if cert.Subject.CommonName != l.CommonName || !slices.Equal(cert.Subject.Organization, l.Organization) ||
		!slices.Equal(cert.ExtKeyUsage, l.usages()) {
		return false
	}
	for _, name := range l.DNSNames {
		if !slices.Contains(cert.DNSNames, name) {
			return false
		}
	}
	for _, ip := range l.IPs {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

// load reads a certificate and its private key, and returns an error if they do not match.
func load(pair Pair) (*x509.Certificate, crypto.Signer, error) {
	data, err := os.ReadFile(pair.Cert)
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, nil, fmt.Errorf("read certificate %s: no PEM certificate", pair.Cert)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("read certificate %s: %w", pair.Cert, err)
	}
	key, err := loadKey(pair.Key)
	if err != nil {
		return nil, nil, err
	}
	public, ok := cert.PublicKey.(*ecdsa.PublicKey)
	if !ok || !public.Equal(key.Public()) {
		return nil, nil, fmt.Errorf("read certificate %s: its key is not %s", pair.Cert, pair.Key)
	}
	return cert, key, nil
}

func loadKey(path string) (crypto.Signer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("read key %s: no PEM block", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", path, err)
	}
	return key, nil
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

func writeKey(path string, key crypto.Signer) error {
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return errors.New("write key: not an ECDSA key")
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return fmt.Errorf("encode key %s: %w", path, err)
	}
	return WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// WriteFile writes a new file and renames it to path, so that neither a reader nor a crash sees a partial file.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // has no effect after the rename
	if _, err := tmp.Write(data); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := errors.Join(tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
