package main

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	certv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	userPrefix = "system:node:"
	nodesGroup = "system:nodes"
	authGroup  = "system:authenticated"

	// maxRequest bounds the bytes of a request. A node with fifty names and addresses needs 2 KiB.
	maxRequest = 64 << 10
	// maxRSABits bounds an RSA key: a key that fills a request would need seconds for the check of its signature.
	maxRSABits = 8192
)

// claim is what a well-formed request asks for: a serving certificate for a node, with names and addresses.
type claim struct {
	node  string
	names []string
	ips   []net.IP
}

// readClaim reads all of a request that does not depend on its Node. If why is not empty, the request can never be approved, because its
// spec does not change.
func readClaim(csr *certv1.CertificateSigningRequest) (c claim, why string) {
	if csr.Spec.SignerName != certv1.KubeletServingSignerName {
		return c, fmt.Sprintf("the signer is %.100q, not %s", csr.Spec.SignerName, certv1.KubeletServingSignerName)
	}
	if c.node, why = nodeOf(csr); why != "" {
		return c, why
	}
	if why := badUsages(csr.Spec.Usages); why != "" {
		return c, why
	}
	req, why := readRequest(csr.Spec.Request)
	if why != "" {
		return c, why
	}
	c.names, c.ips = req.DNSNames, req.IPAddresses
	switch subject := req.Subject; {
	case subject.CommonName != csr.Spec.Username:
		return c, fmt.Sprintf("the common name %.100q is not the user %q", subject.CommonName, csr.Spec.Username)
	case len(subject.Organization) != 1 || subject.Organization[0] != nodesGroup:
		return c, fmt.Sprintf("the organization is not %s alone", nodesGroup)
	case len(req.EmailAddresses) > 0:
		return c, "the request has e-mail addresses"
	case len(req.URIs) > 0:
		return c, "the request has URIs"
	case len(c.names) == 0 && len(c.ips) == 0:
		return c, "the request has neither a DNS name nor an IP address"
	}
	return c, ""
}

// nodeOf returns the name of the node that made a request. The API server has written user and groups, so a node cannot name another one.
func nodeOf(csr *certv1.CertificateSigningRequest) (name, why string) {
	name, ok := strings.CutPrefix(csr.Spec.Username, userPrefix)
	if !ok || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", fmt.Sprintf("the user %.100q is not a node", csr.Spec.Username)
	}
	for _, group := range []string{nodesGroup, authGroup} {
		if !slices.Contains(csr.Spec.Groups, group) {
			return "", fmt.Sprintf("the user %q is not in the group %s", csr.Spec.Username, group)
		}
	}
	return name, ""
}

// badUsages says what is wrong with the usages. The signer wants both that are required, and accepts one more.
func badUsages(usages []certv1.KeyUsage) (why string) {
	required := []certv1.KeyUsage{certv1.UsageDigitalSignature, certv1.UsageServerAuth}
	for _, u := range usages {
		if u != certv1.UsageKeyEncipherment && !slices.Contains(required, u) {
			return fmt.Sprintf("the usage %.100q is not one of a serving certificate", string(u))
		}
	}
	for _, u := range required {
		if !slices.Contains(usages, u) {
			return fmt.Sprintf("the usage %q is missing", string(u))
		}
	}
	return ""
}

// readRequest reads a request that is one PEM block and nothing else. More than one is refused, because programs do not agree which counts.
func readRequest(data []byte) (req *x509.CertificateRequest, why string) {
	if len(data) > maxRequest {
		return nil, fmt.Sprintf("the request has %d bytes, more than %d", len(data), maxRequest)
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 ||
		!bytes.HasPrefix(data, []byte("-----BEGIN ")) || bytes.Count(data, []byte("-----BEGIN ")) != 1 {
		return nil, "the request is not exactly one PEM block CERTIFICATE REQUEST"
	}
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Sprintf("the request cannot be read: %.200q", err.Error())
	}
	if key, ok := req.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxRSABits {
		return nil, fmt.Sprintf("the RSA key has %d bits, more than %d", key.N.BitLen(), maxRSABits)
	}
	if err := req.CheckSignature(); err != nil {
		return nil, fmt.Sprintf("the signature of the request is not valid: %.200q", err.Error())
	}
	return req, ""
}

// decide says whether a claim can be approved, and why or why not. node is the Node of the user who made the request; nil: there is none.
// decide has no effects, and what it reads may be hostile.
func (c *claim) decide(node *corev1.Node) (approve bool, why string) {
	if why := c.mismatch(node); why != "" {
		return false, why
	}
	return true, fmt.Sprintf("User, groups, subject, usages and signature are those of node %s, and the Node has all that the request names (DNS names: %d, IP addresses: %d)",
		c.node, len(c.names), len(c.ips))
}

// mismatch says why a claim does not fit the Node. That can change: a Node may get its addresses a moment after the request.
func (c *claim) mismatch(node *corev1.Node) (why string) {
	if node == nil || node.Name != c.node {
		return fmt.Sprintf("there is no Node %s", c.node)
	}
	names, ips := addressesOf(node)
	for _, name := range c.names {
		if !names[strings.ToLower(name)] {
			return fmt.Sprintf("the Node has no address with the DNS name %.100q", name)
		}
	}
	for _, ip := range c.ips {
		if a, ok := netip.AddrFromSlice(ip); !ok || !ips[a.Unmap()] {
			return fmt.Sprintf("the Node has no IP address %s", ip)
		}
	}
	return ""
}

// addressesOf returns a Node's names, in lower case, and its IP addresses. They are sets, because a request and a Node can both have very many.
func addressesOf(node *corev1.Node) (names map[string]bool, ips map[netip.Addr]bool) {
	names, ips = map[string]bool{}, map[netip.Addr]bool{}
	for _, a := range node.Status.Addresses {
		switch a.Type {
		case corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS:
			names[strings.ToLower(a.Address)] = true
		case corev1.NodeInternalIP, corev1.NodeExternalIP:
		default:
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil { // of any type: the host name of some nodes is an IP address
			ips[ip.Unmap()] = true
		}
	}
	return names, ips
}
