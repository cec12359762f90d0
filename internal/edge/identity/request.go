package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// CSRs reads and creates the certificate requests of a cluster.
type CSRs interface {
	Create(ctx context.Context, csr *certificates.CertificateSigningRequest, opts metav1.CreateOptions) (*certificates.CertificateSigningRequest, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*certificates.CertificateSigningRequest, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// keeper keeps the key of a certificate request that is not answered yet, and the certificates that the node got. One goroutine at a time
// uses it.
type keeper interface {
	// pending returns the key of the request that is not answered yet. If there is none, it makes and keeps one.
	pending() (keyPair, error)
	// drop forgets that key, so that the next request has a new one.
	drop() error
	// save keeps a certificate and its key as the current pair, and forgets the pending key.
	save(certPEM, keyPEM []byte) (*tls.Certificate, error)
}

// request gets one certificate for a node.
//
//	key kept ─► created ─► pending ─► approved ─► issued ─► saved
//	   ▲                      │  ▲         │
//	   │ (deleted: made anew) │  └─────────┘ (waits for the signer)
//	   └──────────────────────┴─► denied, failed: logged, and watched until it is deleted
type request struct {
	signer   string
	usages   []certificates.KeyUsage
	template x509.CertificateRequest
	keep     keeper
	labels   map[string]string // labels of the CertificateSigningRequest; may be nil
	log      *slog.Logger
	patience time.Duration // time between two messages about the same state
	once     bool          // log only once what the request waits for, because the node can run without the certificate
	// final makes run return after an error of this machine. Without final, run records such an error in failing and tries again, as
	// after any other error, because the certificate in use is still valid and somebody may free or repair the disk.
	final   bool
	failing *failure
	failed  func()      // called after each failed try; may be nil
	refused func(error) // BootstrapConfig.Refused; may be nil
	// needless reports, after a failed try and from time to time while the request waits, that the node needs no certificate any more; nil: it always
	// needs one.
	needless func() bool
	// now returns what the node's clock shows; nil: time.Now.
	now func() time.Time
	// client makes a client for one attempt, because credentials may have changed since the last attempt. done releases
	// it.
	client func() (c CSRs, done func(), server, file string, err error)
}

// errNeedless means that the node needs the certificate no more.
var errNeedless = errors.New("the certificate is not needed any more")

// errAnew means that the certificate request does not exist any more, so that it must be created again.
var errAnew = errors.New("the certificate request is gone")

// clock returns what the node's clock shows.
func (r *request) clock() time.Time {
	if r.now == nil {
		return time.Now()
	}
	return r.now()
}

// run tries until there is a certificate, and saves it. It returns early only if ctx ends, if the certificate is not needed any more
// (errNeedless), or, with final, after an error of this machine.
func (r *request) run(ctx context.Context) (*tls.Certificate, error) {
	pause := newBackoff(time.Second, 30*time.Second)
	said := newRepeats(r.patience)
	for {
		pair, err := r.attempt(ctx)
		if ctx.Err() != nil && err != nil {
			return nil, ctx.Err()
		}
		var local *localError
		isLocal := errors.As(err, &local)
		r.failing.set(isLocal, err)
		if err != nil && r.failed != nil {
			r.failed()
		}
		r.notice(err)
		switch {
		case err == nil:
			return pair, nil
		case errors.Is(err, errNeedless):
			return nil, errNeedless
		case isLocal && r.final:
			return nil, local.err
		case errors.Is(err, errAnew):
			r.log.Info("The node's certificate request was deleted; asking again", "signer", r.signer)
		case said.again(err.Error()):
			r.log.Error("Cannot get the node's certificate yet, trying again", "signer", r.signer, "err", err)
		}
		if !pause.wait(ctx) {
			return nil, ctx.Err()
		}
		if r.needless != nil && r.needless() {
			r.notice(nil)
			return nil, errNeedless
		}
	}
}

// notice calls refused with the error of a try: a reason only if the API server has answered that it does not accept the node. A request that
// is gone says nothing new: the API server answers, and has not accepted the node.
func (r *request) notice(err error) {
	if r.refused == nil || errors.Is(err, errAnew) {
		return
	}
	if !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
		err = nil
	}
	r.refused(err)
}

// localError is an error of this machine, not of the API server: a full or broken disk.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *localError) Unwrap() error { return e.err }

// attempt makes or finds the request, waits for its certificate and saves it.
func (r *request) attempt(ctx context.Context) (*tls.Certificate, error) {
	key, err := r.keep.pending()
	if err != nil {
		return nil, &localError{err}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &r.template, key.key)
	if err != nil {
		return nil, &localError{fmt.Errorf("make certificate request: %w", err)}
	}
	c, done, server, file, err := r.client()
	if err != nil {
		return nil, err
	}
	defer done()
	name, err := r.name(key)
	if err != nil {
		return nil, &localError{err}
	}
	certPEM, err := r.ask(ctx, c, name, der)
	if err != nil {
		return nil, Explain(err, server, file)
	}
	pair, err := parsePair(certPEM, key.pem)
	if err != nil || r.clock().After(pair.Leaf.NotAfter) {
		// The certificate belongs to an old key. The next attempt makes a new key, and so a request with another name.
		if err := r.keep.drop(); err != nil {
			return nil, &localError{err}
		}
		return nil, fmt.Errorf("the certificate of request %s does not fit its key or has ended: asking with a new key: %w", name, errors.Join(err, errAnew))
	}
	if _, err := r.keep.save(certPEM, key.pem); err != nil {
		return nil, &localError{err}
	}
	return pair, nil
}

// name returns the name of the request. It is the same for the same key and the same contents, so that after a restart
// the agent finds its earlier request.
func (r *request) name(key keyPair) (string, error) {
	pub, err := x509.MarshalPKIXPublicKey(key.key.Public())
	if err != nil {
		return "", fmt.Errorf("encode public key: %w", err)
	}
	h := sha256.New()
	h.Write(pub)
	fmt.Fprintln(h, r.signer, r.usages, r.template.Subject.String(), r.template.DNSNames, r.template.IPAddresses)
	return "node-csr-" + hex.EncodeToString(h.Sum(nil))[:40], nil
}

// answerWithin is how long the API server may take to answer one request. Without a bound, a server or proxy that takes requests and never answers
// would hold the node for ever: while it has no identity, nothing else notices that.
const answerWithin = 30 * time.Second

// answer makes one request, and gives it answerWithin.
func answer(ctx context.Context, ask func(context.Context) (*certificates.CertificateSigningRequest, error)) (*certificates.CertificateSigningRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return ask(ctx)
}

// ask creates the CertificateSigningRequest if it does not exist, and returns the certificate when the request is approved and signed.
func (r *request) ask(ctx context.Context, c CSRs, name string, der []byte) ([]byte, error) {
	wanted := &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: r.labels},
		Spec: certificates.CertificateSigningRequestSpec{
			Request: pemBlock("CERTIFICATE REQUEST", der), SignerName: r.signer, Usages: r.usages,
		},
	}
	_, err := answer(ctx, func(ctx context.Context) (*certificates.CertificateSigningRequest, error) {
		return c.Create(ctx, wanted, metav1.CreateOptions{})
	})
	switch {
	case apierrors.IsAlreadyExists(err):
		r.log.Info("Found the certificate request that this node made before", "csr", name, "signer", r.signer)
	case err != nil:
		return nil, fmt.Errorf("create certificate request: %w", err)
	default:
		r.log.Info("Asked for a certificate", "csr", name, "signer", r.signer)
	}
	for said := ""; ; {
		csr, err := answer(ctx, func(ctx context.Context) (*certificates.CertificateSigningRequest, error) {
			return c.Get(ctx, name, metav1.GetOptions{})
		})
		if apierrors.IsNotFound(err) {
			return nil, errAnew
		}
		if err != nil {
			return nil, fmt.Errorf("look at certificate request %s: %w", name, err)
		}
		if len(csr.Status.Certificate) > 0 {
			return csr.Status.Certificate, nil
		}
		if !r.once {
			said = ""
		}
		said = r.sayWaiting(csr, said)
		if r.refused != nil {
			r.refused(fmt.Errorf("the node's certificate request %s is not granted: %s", csr.Name, said))
		}
		if err := r.untilChange(ctx, c, csr); err != nil {
			return nil, err
		}
		if r.needless != nil && r.needless() {
			return nil, errNeedless
		}
	}
}

// sayWaiting logs what a request waits for, unless it has just logged the same. It returns the message.
func (r *request) sayWaiting(csr *certificates.CertificateSigningRequest, last string) (said string) {
	bad, why := refused(csr)
	approved := slices.ContainsFunc(csr.Status.Conditions, func(c certificates.CertificateSigningRequestCondition) bool {
		return c.Type == certificates.CertificateApproved
	})
	said = "waits for approval"
	switch {
	case bad:
		said = why
	case approved:
		said = "approved"
	}
	switch {
	case said == last:
	case bad:
		r.log.Error("The node's certificate request was refused; delete it to let the node ask again",
			"csr", csr.Name, "why", why, "do", "kubectl delete csr "+csr.Name)
	case approved:
		r.log.Info("The node's certificate request is approved; waiting for the signer", "csr", csr.Name, "signer", r.signer)
	default:
		r.log.Info("Waiting for somebody to approve the node's certificate request", "csr", csr.Name, "signer", r.signer,
			"do", "kubectl certificate approve "+csr.Name)
	}
	return said
}

// refused reports whether a request was denied or its signing failed, and why.
func refused(csr *certificates.CertificateSigningRequest) (bool, string) {
	for _, c := range csr.Status.Conditions {
		if (c.Type == certificates.CertificateDenied || c.Type == certificates.CertificateFailed) && c.Status != v1.ConditionFalse {
			return true, fmt.Sprintf("%s: %s %s", c.Type, c.Reason, c.Message)
		}
	}
	return false, ""
}

// untilChange waits until the certificate request has changed, the watch has ended, or the time in patience has passed.
func (r *request) untilChange(ctx context.Context, c CSRs, csr *certificates.CertificateSigningRequest) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	seconds := int64(r.patience/time.Second) + 1
	w, err := c.Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", csr.Name).String(),
		ResourceVersion: csr.ResourceVersion, TimeoutSeconds: &seconds,
	})
	if err != nil {
		// The agent may not watch the request, so it reads the request again when the time in patience has passed.
		<-ctx.Done()
		return nil
	}
	defer w.Stop()
	select {
	case _, open := <-w.ResultChan():
		if !open {
			// The server ended the watch: wait a little before the next one.
			select {
			case <-time.After(min(r.patience, time.Second)):
			case <-ctx.Done():
			}
		}
	case <-ctx.Done():
	}
	return nil
}

// ParseCSR reads a PEM certificate request, and checks that it is signed by its own key.
func ParseCSR(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST" {
		return nil, errors.New("is not a PEM certificate request (-----BEGIN CERTIFICATE REQUEST-----)")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate request: %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("check certificate request: %w", err)
	}
	return csr, nil
}
