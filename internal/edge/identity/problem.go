package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ProblemKind is the kind of problem between a node and its API server.
type ProblemKind string

// The kinds of problems.
const (
	ProblemUnreachable  ProblemKind = "unreachable"  // no server answers at the address
	ProblemWrongCA      ProblemKind = "wrong CA"     // our CA did not sign the server's certificate
	ProblemWrongName    ProblemKind = "wrong name"   // the server's certificate is for another name
	ProblemClock        ProblemKind = "clock"        // a certificate is not valid yet by our clock
	ProblemExpired      ProblemKind = "expired"      // a certificate has expired
	ProblemUnauthorized ProblemKind = "unauthorized" // the server does not accept our credentials
	ProblemForbidden    ProblemKind = "forbidden"    // the server knows us and refuses the request
	ProblemOther        ProblemKind = "other"
)

// Problem is an error of a request to the API server, with texts for the person who has to solve it.
type Problem struct {
	Kind ProblemKind
	// What describes the problem, and Do the remedy.
	What, Do string
	Err      error
}

func (p *Problem) Error() string { return fmt.Sprintf("%s: %s (%v)", p.What, p.Do, p.Err) }

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// Explain turns an error of a request into a Problem. The message names the URL in server and the kubeconfig in file. If err is nil,
// context.Canceled or already a Problem, Explain returns it unchanged.
func Explain(err error, server, file string) error {
	var already *Problem
	if err == nil || errors.Is(err, context.Canceled) || errors.As(err, &already) {
		return err
	}
	if p := explainTLS(err, server, file); p != nil {
		return p
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return &Problem{ProblemUnauthorized, "the API server " + server + " does not accept the credentials in " + file,
			"a bootstrap token is wrong, has expired or was deleted: make one (wherry token create) and write it to the file, it is read again; " +
				"a client certificate is of another cluster: remove the kubeconfig to ask for a new one", err}
	case apierrors.IsForbidden(err):
		return &Problem{ProblemForbidden, "the API server " + server + " knows the credentials in " + file + " and refuses the request",
			"a bootstrap token must be of group system:bootstrappers, bound to the ClusterRole system:node-bootstrapper; " +
				"a node may only change the Node of its own name: another name may be taken by another identity, compare --hostname-override with the certificate", err}
	case isUnreachable(err):
		return &Problem{ProblemUnreachable, "the API server " + server + " cannot be reached",
			"check that it runs, the address in " + file + ", and the network between", err}
	}
	return &Problem{ProblemOther, "request to the API server " + server + " failed", "see the cause", err}
}

func explainTLS(err error, server, file string) *Problem {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		return &Problem{ProblemWrongCA, "the certificate of " + server + " is not signed by the authority in " + file,
			"put the cluster's CA into certificate-authority-data, or correct the server's address: somebody else may be answering there", err}
	case errors.As(err, &host):
		return &Problem{ProblemWrongName, "the certificate of " + server + " is for another name",
			"use an address that the certificate has, or set tls-server-name in " + file, err}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return explainTime(invalid.Cert, "the certificate of "+server, err)
	}
	return nil
}

// explainTime returns the Problem of a certificate that has expired or is not valid yet, or of a clock that is wrong.
func explainTime(cert *x509.Certificate, whose string, err error) *Problem {
	now := time.Now()
	if cert != nil && now.Before(cert.NotBefore) {
		return &Problem{ProblemClock, fmt.Sprintf("%s is valid from %s, and it is %s on this machine", whose, stamp(cert.NotBefore), stamp(now)),
			"set this machine's clock (timedatectl, chrony): it is late, or the other side's is early", err}
	}
	end := "some time ago"
	if cert != nil {
		end = stamp(cert.NotAfter)
	}
	return &Problem{ProblemExpired, fmt.Sprintf("%s ended at %s, and it is %s on this machine", whose, end, stamp(now)),
		"renew it, or set this machine's clock if it is early", err}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func isUnreachable(err error) bool {
	var netErr net.Error
	var dns *net.DNSError
	var op *net.OpError
	return errors.As(err, &dns) || errors.As(err, &op) || errors.As(err, &netErr) && netErr.Timeout() ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, context.DeadlineExceeded)
}
