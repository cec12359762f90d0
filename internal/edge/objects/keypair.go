package objects

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"

	"github.com/wherry-node/wherry/internal/core/nodeclock"
)

// These are the types of PEM blocks.
const (
	typeCertificate = "CERTIFICATE"
	typePrivateKey  = "PRIVATE KEY" // a private key in the form PKCS#8
)

// maxChain is the longest certificate chain in bytes that a pod gets. The API server stores no object that is larger than this.
const maxChain = 2 << 20

// newKey makes a private key, in PEM format, and an empty PKCS#10 request that is signed with it. keyType is one of those that
// Kubernetes documents for podCertificate projections.
func newKey(keyType string) (key, csr []byte, err error) {
	var made crypto.Signer
	switch keyType {
	case "RSA3072":
		made, err = rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		made, err = rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		made, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		made, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		made, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, made, err = ed25519.GenerateKey(rand.Reader)
	default:
		return nil, nil, fmt.Errorf("podCertificate: keyType %q is unknown: use RSA3072, RSA4096, ECDSAP256, ECDSAP384, ECDSAP521 or ED25519", keyType)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make %s key: %w", keyType, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(made)
	if err != nil {
		return nil, nil, fmt.Errorf("encode %s key: %w", keyType, err)
	}
	if csr, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, made); err != nil {
		return nil, nil, fmt.Errorf("sign certificate request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: typePrivateKey, Bytes: der}), csr, nil
}

// credential is a private key with the certificate chain that a signer issued for it, both in PEM format.
type credential struct {
	key, chain     []byte
	renew, expires time.Time // when to request the next certificate, and until when this one is valid
	due            time.Time // the first value of renew, which later tries do not move
}

// bundle returns the key and the chain as one text; nil for no credential.
func (c *credential) bundle() []byte {
	if c == nil {
		return nil
	}
	return append(bytes.Clone(c.key), c.chain...)
}

// issued returns the credential of a request that a signer has answered, or an error if the answer is unusable. clock is Config.Clock.
func issued(req *certificatesv1beta1.PodCertificateRequest, key []byte, now time.Time, clock nodeclock.Clock) (*credential, error) {
	chain, leaf, err := readChain([]byte(req.Status.CertificateChain))
	if err == nil {
		err = belongs(key, leaf)
	}
	if err != nil {
		return nil, fmt.Errorf("signer %q issued a certificate for podcertificaterequest %q that cannot be used: %w", req.Spec.SignerName, req.Name, err)
	}
	c := &credential{key: key, chain: chain, expires: leaf.NotAfter}
	if at := req.Status.NotAfter; at != nil && at.Time.Before(c.expires) {
		c.expires = at.Time
	}
	ends := c.expires
	c.expires = clock.Instant(ends)
	if at := req.Status.BeginRefreshAt; at != nil {
		c.renew = clock.Instant(at.Time)
	} else {
		c.renew = now.Add(c.expires.Sub(now) * 2 / 3)
	}
	if !now.Before(c.expires) {
		return nil, fmt.Errorf("signer %q issued a certificate for podcertificaterequest %q that expired at %s (is the node's clock right?)",
			req.Spec.SignerName, req.Name, ends.UTC().Format(time.RFC3339))
	}
	c.renew = c.renew.Add(spread(c.renew, c.expires))
	if soonest := now.Add(renewRetry); c.renew.Before(soonest) { // a signer whose clock is behind may name a time that has passed
		c.renew = soonest
	}
	c.due = c.renew
	return c, nil
}

// spread returns a random delay for a renewal that is due at renew. It leaves at least half of the time until the expiry.
func spread(renew, expires time.Time) time.Duration {
	if most := min(renewSpread, expires.Sub(renew)/2); most > 0 {
		return mathrand.N(most)
	}
	return 0
}

// adopted returns the credential that a volume contains. It returns nil if have is not a credential, or if the credential has
// expired. The agent does not know when the signer wanted the credential to be renewed, so it renews the credential soon.
func adopted(have []byte, now time.Time, clock nodeclock.Clock) *credential {
	block, rest := pem.Decode(have)
	if block == nil || block.Type != typePrivateKey {
		return nil
	}
	key := pem.EncodeToMemory(block)
	chain, leaf, err := readChain(rest)
	if err != nil || belongs(key, leaf) != nil {
		return nil
	}
	expires := clock.Instant(leaf.NotAfter)
	if !now.Before(expires) {
		return nil
	}
	renew := now.Add(spread(now, expires))
	return &credential{key: key, chain: chain, expires: expires, renew: renew, due: renew}
}

// readChain returns the certificates of a PEM text, without headers or text between them, and the first certificate as leaf.
func readChain(text []byte) (chain []byte, leaf *x509.Certificate, err error) {
	if len(text) > maxChain {
		return nil, nil, fmt.Errorf("the certificate chain is longer than %d bytes", maxChain)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != typeCertificate {
			continue
		}
		if leaf == nil {
			if leaf, err = x509.ParseCertificate(block.Bytes); err != nil {
				return nil, nil, fmt.Errorf("read the first certificate: %w", err)
			}
		}
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: typeCertificate, Bytes: block.Bytes})...)
	}
	if leaf == nil {
		return nil, nil, errors.New("the certificate chain is empty")
	}
	return chain, leaf, nil
}

// belongs returns an error unless a certificate was issued for a private key.
func belongs(key []byte, leaf *x509.Certificate) error {
	block, _ := pem.Decode(key)
	if block == nil {
		return errors.New("the private key is not in PEM format")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("read private key: %w", err)
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return fmt.Errorf("a private key of the type %T cannot sign", parsed)
	}
	public, ok := signer.Public().(interface{ Equal(x crypto.PublicKey) bool })
	if !ok || !public.Equal(leaf.PublicKey) {
		return errors.New("the first certificate is not for the pod's key")
	}
	return nil
}
