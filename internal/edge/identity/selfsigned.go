package identity

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// selfSignedLife is the life of a self-signed certificate. A new one is made after four fifths of it.
const selfSignedLife = 365 * 24 * time.Hour

// selfSignedMark is the organization in certificates that the agent signed itself and may replace. A pair that somebody
// else put into kubelet.crt and kubelet.key is used unchanged.
const selfSignedMark = "wherry self-signed"

// selfSign makes sure that there is a certificate that covers the node's name and addresses and does not expire soon.
func (s *Serving) selfSign() error {
	certFile, keyFile := s.selfSignedFiles()
	pair := s.current()
	var err error
	if pair == nil {
		pair, err = loadPair(certFile, keyFile)
	}
	wish := s.selfSignedWish()
	switch {
	case err == nil && !ours(pair.Leaf):
		s.use(pair)
		return nil
	case err == nil && covers(pair.Leaf, wish) && fresh(pair.Leaf):
		s.use(pair)
		return s.saveSelfSigned()
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		// Certificate and key may not belong together, for example after a crash between the two writes.
		s.cfg.Log.Warn("Making a new self-signed serving certificate: the old one cannot be used", "err", err)
	}
	if err != nil {
		s.setAside(certFile, keyFile)
	}
	pair, certPEM, keyPEM, err := newSelfSigned(wish)
	if err != nil {
		return err
	}
	s.use(pair) // the new pair is used even if it cannot be written, because clients have no more reason to trust the old one
	s.unsaved = &pemPair{cert: certPEM, key: keyPEM}
	s.cfg.Log.Info("Made a self-signed serving certificate", "file", certFile, "names", wish.DNSNames, "addresses", wish.IPAddresses, "ends", stamp(pair.Leaf.NotAfter))
	return s.saveSelfSigned()
}

// setAside renames the certificate and the key, whichever exists, unless the certificate is one that the agent has signed itself: somebody else has put them there,
// is perhaps about to, and may have no other copy.
func (s *Serving) setAside(certFile, keyFile string) {
	if data, err := os.ReadFile(certFile); err == nil {
		if block, _ := pem.Decode(data); block != nil {
			if cert, err := x509.ParseCertificate(block.Bytes); err == nil && ours(cert) {
				return
			}
		}
	}
	for _, file := range []string{certFile, keyFile} {
		err := os.Rename(file, file+".replaced")
		switch {
		case err == nil:
			s.cfg.Log.Warn("A file of the serving certificate is not the agent's and is kept under another name", "file", file+".replaced")
		case !errors.Is(err, fs.ErrNotExist):
			s.cfg.Log.Error("A file of the serving certificate is not the agent's, and cannot be kept under another name", "file", file, "err", err)
		}
	}
}

// fresh reports whether a self-signed certificate is valid and need not be renewed yet. One that was made while the clock was early is not
// valid yet when the clock has been set.
func fresh(cert *x509.Certificate) bool {
	now := time.Now()
	return !now.Before(cert.NotBefore) && now.Before(cert.NotBefore.Add(selfSignedLife*4/5))
}

// pemPair is a certificate and its key in PEM.
type pemPair struct{ cert, key []byte }

// saveSelfSigned writes the self-signed pair in use to its files, if it has not been written yet.
func (s *Serving) saveSelfSigned() error {
	if s.unsaved == nil {
		return nil
	}
	certFile, keyFile := s.selfSignedFiles()
	if err := makeParent(keyFile); err != nil {
		return err
	}
	if err := hostfs.WriteFile(keyFile, s.unsaved.key, 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	if err := hostfs.WriteFile(certFile, s.unsaved.cert, 0o644); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	s.unsaved = nil
	return nil
}

// ours reports whether the agent has signed a certificate itself, and so may replace it.
func ours(cert *x509.Certificate) bool {
	return slices.Contains(cert.Subject.Organization, selfSignedMark)
}

// selfSignedWish returns what the certificate must cover: the node's name and all its addresses.
func (s *Serving) selfSignedWish() *x509.CertificateRequest {
	names, ips := hostsOf(s.cfg.Addresses())
	if name := strings.ToLower(s.cfg.NodeName); name != "" && !slices.Contains(names, name) {
		names = append(names, name)
	}
	return &x509.CertificateRequest{DNSNames: names, IPAddresses: ips}
}

func newSelfSigned(wish *x509.CertificateRequest) (pair *tls.Certificate, certPEM, keyPEM []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("make serial number: %w", err)
	}
	now := time.Now()
	name := "wherry"
	if len(wish.DNSNames) > 0 {
		name = wish.DNSNames[len(wish.DNSNames)-1]
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: []string{selfSignedMark}},
		DNSNames:     wish.DNSNames, IPAddresses: wish.IPAddresses,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedLife), // an hour early, because clocks differ
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},

		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.key.Public(), key.key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("sign certificate: %w", err)
	}
	certPEM = pemBlock("CERTIFICATE", der)
	pair, err = parsePair(certPEM, key.pem)
	return pair, certPEM, key.pem, err
}
