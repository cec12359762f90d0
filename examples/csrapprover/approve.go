package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

const (
	approvalReason = "ServingAddressesMatchNode"
	// toServing selects the requests to the signer of serving certificates.
	toServing = "spec.signerName=" + certv1.KubeletServingSignerName
	// requestTimeout bounds each request to the API server.
	requestTimeout = 30 * time.Second
)

// outcome is what an attempt at a request came to.
type outcome int

const (
	settled  outcome = iota // somebody has decided about the request, or it is gone
	approved                // this program has approved it
	refused                 // this program will never approve it
	early                   // its Node does not fit, or the request has changed meanwhile: both may be different in a moment
)

// approver decides about requests and approves them. Its methods may be called concurrently.
type approver struct {
	csrs  certclient.CertificateSigningRequestInterface
	nodes coreclient.NodeInterface
}

// attempt decides about one request and approves it if it fits. The error is one of the API server.
func (a *approver) attempt(ctx context.Context, csr *certv1.CertificateSigningRequest) (got outcome, why string, err error) {
	if decided(csr) {
		return settled, "", nil
	}
	c, why := readClaim(csr)
	if why != "" {
		return refused, why, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	node, err := a.node(ctx, c.node)
	if err != nil {
		return early, "", err
	}
	ok, why := c.decide(node)
	if !ok {
		return early, why, nil
	}
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certv1.CertificateSigningRequestCondition{
		Type: certv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: approvalReason, Message: why, LastUpdateTime: metav1.Now(),
	})
	// The request has its UID and resource version, so this cannot approve another one of the same name.
	_, err = a.csrs.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err):
		return early, "the request has changed meanwhile", nil
	case apierrors.IsNotFound(err):
		return settled, "", nil
	case err != nil:
		return early, "", fmt.Errorf("approve request %s: %w", csr.Name, err)
	}
	return approved, why, nil
}

// node returns a Node, or nil if there is none of this name.
func (a *approver) node(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := a.nodes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", name, err)
	}
	return node, nil
}

// decided reports whether a request needs no decision any more: it is approved, denied, failed or signed.
func decided(csr *certv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) > 0 || slices.ContainsFunc(csr.Status.Conditions, func(c certv1.CertificateSigningRequestCondition) bool {
		return c.Type == certv1.CertificateApproved || c.Type == certv1.CertificateDenied || c.Type == certv1.CertificateFailed
	})
}

// once makes one attempt at each request that waits now, and writes a line about each.
func (a *approver) once(ctx context.Context, out io.Writer) error {
	var errs []error
	opts := metav1.ListOptions{FieldSelector: toServing, Limit: kubeclient.PageSize}
	for {
		list, err := a.csrs.List(ctx, opts)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("list requests: %w", err))...)
		}
		for i := range list.Items {
			name := list.Items[i].Name
			switch got, why, err := a.attempt(ctx, &list.Items[i]); {
			case err != nil:
				errs = append(errs, err)
				fmt.Fprintf(out, "%s failed: %v\n", name, err)
			case got == approved:
				fmt.Fprintf(out, "%s approved: %s\n", name, why)
			case got != settled:
				fmt.Fprintf(out, "%s left undecided: %s\n", name, why)
			}
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			return errors.Join(errs...)
		}
	}
}
