package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	certv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// decide reads a request and decides about it, as an attempt does.
func decide(csr *certv1.CertificateSigningRequest, node *corev1.Node) (approve bool, why string) {
	c, why := readClaim(csr)
	if why != "" {
		return false, why
	}
	return c.decide(node)
}

// ask is a request of a node before it is signed.
type ask struct {
	template x509.CertificateRequest
	csr      certv1.CertificateSigningRequest
	key      crypto.Signer
}

// newAsk returns what node n1 asks for.
func newAsk(t testing.TB) *ask {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &ask{
		key: key,
		template: x509.CertificateRequest{
			Subject:  pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
			DNSNames: []string{"n1", "N1.example.com"}, IPAddresses: []net.IP{net.ParseIP("10.0.0.5"), net.ParseIP("fd00::5")},
		},
		csr: certv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "csr-1", UID: "uid-1"},
			Spec: certv1.CertificateSigningRequestSpec{
				SignerName: "kubernetes.io/kubelet-serving", Username: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"},
				Usages: []certv1.KeyUsage{"digital signature", "server auth"},
			},
		},
	}
}

func (a *ask) der(t testing.TB) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &a.template, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// withRSAKey puts an RSA key of so many bits into a request, which nobody has generated and whose signature is not valid.
func withRSAKey(t *testing.T, der []byte, bits uint) []byte {
	t.Helper()
	var req struct {
		Info struct {
			Version                     int
			Subject, Key, AndAttributes asn1.RawValue
		}
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &req); err != nil {
		t.Fatal(err)
	}
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	key, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537})
	if err != nil {
		t.Fatal(err)
	}
	req.Info.Key = asn1.RawValue{FullBytes: key}
	if der, err = asn1.Marshal(req); err != nil {
		t.Fatal(err)
	}
	return der
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// signed returns the request with the template in it.
func (a *ask) signed(t testing.TB) *certv1.CertificateSigningRequest {
	t.Helper()
	csr := a.csr.DeepCopy()
	csr.Spec.Request = pemOf("CERTIFICATE REQUEST", a.der(t))
	return csr
}

// named returns the request with another name in the API.
func named(csr *certv1.CertificateSigningRequest, name string) *certv1.CertificateSigningRequest {
	csr = csr.DeepCopy()
	csr.Name, csr.UID = name, types.UID("uid-of-"+name)
	return csr
}

// nodeOne returns node n1, with an address of each type.
func nodeOne() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "n1"},
		{Type: corev1.NodeInternalDNS, Address: "n1.Example.com"},
		{Type: corev1.NodeExternalDNS, Address: "n1.example.org"},
		{Type: corev1.NodeInternalIP, Address: "10.0.0.5"},
		{Type: corev1.NodeExternalIP, Address: "fd00:0::5"},
		{Type: "Other", Address: "10.0.0.9"},
		{Type: "Other", Address: "other"},
	}}}
}

func TestDecideApproves(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ask, *corev1.Node){
		"names and addresses": func(*ask, *corev1.Node) {},
		"one name":            func(a *ask, _ *corev1.Node) { a.template.DNSNames, a.template.IPAddresses = []string{"n1"}, nil },
		"one address": func(a *ask, _ *corev1.Node) {
			a.template.DNSNames = nil
			a.template.IPAddresses = a.template.IPAddresses[:1]
		},
		"an external name":       func(a *ask, _ *corev1.Node) { a.template.DNSNames = []string{"N1.EXAMPLE.ORG"} },
		"usage key encipherment": func(a *ask, _ *corev1.Node) { a.csr.Spec.Usages = append(a.csr.Spec.Usages, "key encipherment") },
		"another group":          func(a *ask, _ *corev1.Node) { a.csr.Spec.Groups = append(a.csr.Spec.Groups, "more") },
		"a host name that is an IP": func(_ *ask, n *corev1.Node) {
			n.Status.Addresses[0], n.Status.Addresses[3] = corev1.NodeAddress{Type: corev1.NodeHostName, Address: "10.0.0.5"}, corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: "n1"}
		},
		"an IPv4 address in IPv6 form": func(_ *ask, n *corev1.Node) { n.Status.Addresses[3].Address = "::ffff:10.0.0.5" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, n := newAsk(t), nodeOne()
			change(a, n)
			if ok, why := decide(a.signed(t), n); !ok || !strings.Contains(why, "node n1") {
				t.Errorf("approved: %t, %s", ok, why)
			}
		})
	}
}

// Each row changes one thing of a request that is approved, so that only this thing can be why it is refused.
func TestDecideRefuses(t *testing.T) {
	t.Parallel()
	type change struct {
		name string
		ask  func(a *ask)
		csr  func(t *testing.T, a *ask, csr *certv1.CertificateSigningRequest)
		node func(n *corev1.Node) *corev1.Node
		want string // a part of the reason
	}
	uri, err := url.Parse("spiffe://example.com/n1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []change{
		{name: "signer", ask: func(a *ask) { a.csr.Spec.SignerName = "kubernetes.io/kube-apiserver-client-kubelet" }, want: "the signer is"},
		{name: "user is a person", ask: func(a *ask) { a.csr.Spec.Username = "jane"; a.template.Subject.CommonName = "jane" }, want: `the user "jane" is not a node`},
		{name: "user without a name", ask: func(a *ask) { a.csr.Spec.Username = userPrefix; a.template.Subject.CommonName = userPrefix }, want: "is not a node"},
		{name: "user with a path", ask: func(a *ask) { a.csr.Spec.Username = "system:node:../n1" }, want: "is not a node"},
		{name: "user with control characters", ask: func(a *ask) { a.csr.Spec.Username = "system:node:n1\x1b[2J\n" }, want: `the user "system:node:n1\x1b[2J\n" is not a node`},
		{name: "group of nodes", ask: func(a *ask) { a.csr.Spec.Groups = []string{"system:authenticated"} }, want: "not in the group system:nodes"},
		{name: "group of the authenticated", ask: func(a *ask) { a.csr.Spec.Groups = []string{"system:nodes"} }, want: "not in the group system:authenticated"},
		{name: "no usages", ask: func(a *ask) { a.csr.Spec.Usages = nil }, want: `the usage "digital signature" is missing`},
		{name: "no server auth", ask: func(a *ask) { a.csr.Spec.Usages = []certv1.KeyUsage{"digital signature", "key encipherment"} }, want: `the usage "server auth" is missing`},
		{name: "client auth", ask: func(a *ask) { a.csr.Spec.Usages = append(a.csr.Spec.Usages, "client auth") }, want: `the usage "client auth"`},
		{name: "any usage", ask: func(a *ask) { a.csr.Spec.Usages = append(a.csr.Spec.Usages, "any") }, want: `the usage "any"`},
		{name: "empty request", csr: func(_ *testing.T, _ *ask, csr *certv1.CertificateSigningRequest) { csr.Spec.Request = nil }, want: "exactly one PEM block"},
		{name: "not PEM", csr: func(t *testing.T, a *ask, csr *certv1.CertificateSigningRequest) { csr.Spec.Request = a.der(t) }, want: "exactly one PEM block"},
		{name: "another PEM type", csr: func(t *testing.T, a *ask, csr *certv1.CertificateSigningRequest) {
			csr.Spec.Request = pemOf("CERTIFICATE", a.der(t))
		}, want: "exactly one PEM block"},
		{name: "two blocks", csr: func(_ *testing.T, _ *ask, csr *certv1.CertificateSigningRequest) {
			csr.Spec.Request = slices.Concat(csr.Spec.Request, csr.Spec.Request)
		}, want: "exactly one PEM block"},
		{name: "a broken block before it", csr: func(_ *testing.T, _ *ask, csr *certv1.CertificateSigningRequest) {
			csr.Spec.Request = slices.Concat([]byte("-----BEGIN CERTIFICATE REQUEST-----\n!\n-----END CERTIFICATE REQUEST-----\n"), csr.Spec.Request)
		}, want: "exactly one PEM block"},
		{name: "text before it", csr: func(_ *testing.T, _ *ask, csr *certv1.CertificateSigningRequest) {
			csr.Spec.Request = slices.Concat([]byte("hello\n"), csr.Spec.Request)
		}, want: "exactly one PEM block"},
		{name: "text after it", csr: func(_ *testing.T, _ *ask, csr *certv1.CertificateSigningRequest) {
			csr.Spec.Request = slices.Concat(csr.Spec.Request, []byte("hello\n"))
		}, want: "exactly one PEM block"},
		{name: "headers", csr: func(t *testing.T, a *ask, csr *certv1.CertificateSigningRequest) {
			csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Headers: map[string]string{"a": "b"}, Bytes: a.der(t)})
		}, want: "exactly one PEM block"},
		{name: "not a request", csr: func(_ *testing.T, _ *ask, csr *certv1.CertificateSigningRequest) {
			csr.Spec.Request = pemOf("CERTIFICATE REQUEST", []byte("hello"))
		}, want: "the request cannot be read"},
		{name: "size", csr: func(_ *testing.T, _ *ask, csr *certv1.CertificateSigningRequest) {
			csr.Spec.Request = slices.Concat(csr.Spec.Request, bytes.Repeat([]byte("\n"), maxRequest))
		}, want: "more than 65536"},
		{name: "size of the key", csr: func(t *testing.T, a *ask, csr *certv1.CertificateSigningRequest) {
			csr.Spec.Request = pemOf("CERTIFICATE REQUEST", withRSAKey(t, a.der(t), maxRSABits+8))
		}, want: "the RSA key has 8200 bits"},
		{name: "signature", csr: func(t *testing.T, a *ask, csr *certv1.CertificateSigningRequest) {
			der := a.der(t)
			der[len(der)-1] ^= 1
			csr.Spec.Request = pemOf("CERTIFICATE REQUEST", der)
		}, want: "the signature of the request is not valid"},
		{name: "common name", ask: func(a *ask) { a.template.Subject.CommonName = "system:node:n2" }, want: "the common name"},
		{name: "no organization", ask: func(a *ask) { a.template.Subject.Organization = nil }, want: "the organization"},
		{name: "another organization", ask: func(a *ask) { a.template.Subject.Organization = []string{"system:masters"} }, want: "the organization"},
		{name: "two organizations", ask: func(a *ask) { a.template.Subject.Organization = []string{"system:nodes", "system:masters"} }, want: "the organization"},
		{name: "e-mail address", ask: func(a *ask) { a.template.EmailAddresses = []string{"n1@example.com"} }, want: "e-mail"},
		{name: "URI", ask: func(a *ask) { a.template.URIs = []*url.URL{uri} }, want: "URIs"},
		{name: "nothing to serve", ask: func(a *ask) { a.template.DNSNames, a.template.IPAddresses = nil, nil }, want: "neither a DNS name nor an IP address"},
		{name: "no Node", node: func(*corev1.Node) *corev1.Node { return nil }, want: "there is no Node n1"},
		{name: "another Node", node: func(n *corev1.Node) *corev1.Node { n.Name = "n2"; return n }, want: "there is no Node n1"},
		{name: "Node without addresses", node: func(n *corev1.Node) *corev1.Node { n.Status.Addresses = nil; return n }, want: `no address with the DNS name "n1"`},
		{name: "foreign name", ask: func(a *ask) { a.template.DNSNames = append(a.template.DNSNames, "kubernetes.default.svc") }, want: `the DNS name "kubernetes.default.svc"`},
		{name: "wildcard", ask: func(a *ask) { a.template.DNSNames = append(a.template.DNSNames, "*.example.com") }, want: `the DNS name "*.example.com"`},
		{name: "end of a name", ask: func(a *ask) { a.template.DNSNames = append(a.template.DNSNames, "example.com") }, want: `the DNS name "example.com"`},
		{name: "name of another type", ask: func(a *ask) { a.template.DNSNames = append(a.template.DNSNames, "other") }, want: `the DNS name "other"`},
		{name: "IP address as a name", ask: func(a *ask) { a.template.DNSNames = append(a.template.DNSNames, "10.0.0.5") }, want: `the DNS name "10.0.0.5"`},
		{name: "foreign IP address", ask: func(a *ask) { a.template.IPAddresses = append(a.template.IPAddresses, net.ParseIP("10.0.0.6")) }, want: "no IP address 10.0.0.6"},
		{name: "IP address of another type", ask: func(a *ask) { a.template.IPAddresses = append(a.template.IPAddresses, net.ParseIP("10.0.0.9")) }, want: "no IP address 10.0.0.9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, n := newAsk(t), nodeOne()
			if c.ask != nil {
				c.ask(a)
			}
			csr := a.signed(t)
			if c.csr != nil {
				c.csr(t, a, csr)
			}
			if c.node != nil {
				n = c.node(n)
			}
			if ok, why := decide(csr, n); ok || !strings.Contains(why, c.want) {
				t.Errorf("approved: %t, %q, want %q", ok, why, c.want)
			}
		})
	}
}

// Whatever a request and its Node are, decide returns, and it approves nothing whose request is not one of n1.
func FuzzDecide(f *testing.F) {
	a := newAsk(f)
	whole := a.signed(f)
	f.Add(whole.Spec.Request, whole.Spec.Username, "n1", "10.0.0.5")
	f.Add(a.der(f), "system:node:", "", "")
	f.Fuzz(func(t *testing.T, request []byte, user, name, address string) {
		csr, n := whole.DeepCopy(), nodeOne()
		csr.Spec.Request, csr.Spec.Username = request, user
		n.Name, n.Status.Addresses[3].Address = name, address
		ok, why := decide(csr, n)
		if why == "" || !utf8.ValidString(why) || len(why) > 2000 {
			t.Errorf("reason %q", why)
		}
		if ok && user != userPrefix+name {
			t.Errorf("the request of %q is approved for the Node %q", user, name)
		}
	})
}
