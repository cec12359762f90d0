package identity_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	certificates "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/edge/identity"
)

// csrBook has the certificate requests of a cluster that signs them at once. It works in virtual time.
type csrBook struct {
	t       *testing.T
	ca      *authority
	life    time.Duration
	pending bool // requests are not signed
	silent  int  // how many creations of requests get no answer
	asked   []string
	mu      sync.Mutex // for the contents of all
	all     map[string]*certificates.CertificateSigningRequest
}

// as returns a function that returns the certificate requests as a user sees them.
func (b *csrBook) as(user string) func() (identity.CSRs, error) {
	return func() (identity.CSRs, error) { return csrUser{b, user}, nil }
}

type csrUser struct {
	*csrBook
	user string
}

func (u csrUser) Create(ctx context.Context, csr *certificates.CertificateSigningRequest, _ metav1.CreateOptions) (*certificates.CertificateSigningRequest, error) {
	u.asked = append(u.asked, u.user)
	if u.silent > 0 {
		u.silent--
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if u.all[csr.Name] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "certificatesigningrequests"}, csr.Name)
	}
	block, _ := pem.Decode(csr.Spec.Request)
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		u.t.Error(err)
		return nil, err
	}
	if !u.pending {
		csr.Status.Certificate = u.ca.sign(u.t, req.PublicKey, x509.Certificate{Subject: req.Subject, NotBefore: time.Now().Add(-5 * time.Minute), NotAfter: time.Now().Add(u.life)})
	}
	u.all[csr.Name] = csr
	return csr, nil
}

func (u csrUser) Get(ctx context.Context, name string, _ metav1.GetOptions) (*certificates.CertificateSigningRequest, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all[name].DeepCopy(), ctx.Err()
}

func (u csrUser) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("no watch")
}

func newBook(t *testing.T) (*csrBook, identity.MemoryConfig) {
	t.Helper()
	b := &csrBook{t: t, ca: newAuthority(t), life: time.Hour, all: map[string]*certificates.CertificateSigningRequest{}}
	return b, identity.MemoryConfig{
		Server: &rest.Config{Host: "https://127.0.0.1:1"}, NodeName: "n1", Labels: map[string]string{"fleet": "f"}, Log: slog.New(slog.DiscardHandler),
		Bootstrap: b.as("token"), Own: b.as("node"),
	}
}

// A node without a disk gets its certificate with the bootstrap token and renews it with the certificate, or, without a client of its own, with
// the token. The certificate is always valid.
func TestMemoryRenews(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b, cfg := newBook(t)
			by := "node"
			if !own {
				cfg.Own, by = nil, "token"
			}
			m := must(identity.NewMemory(cfg))(t)
			if m.Certificate() != nil {
				t.Error("there is a certificate before Join")
			}
			if err := m.Run(t.Context()); err == nil {
				t.Error("Run before Join is no error")
			}
			if err := m.Join(t.Context()); err != nil {
				t.Fatal(err)
			}
			subject := m.Certificate().Subject
			if diff := cmp.Diff([]string{"system:node:n1", "system:nodes"}, append([]string{subject.CommonName}, subject.Organization...)); diff != "" {
				t.Error(diff)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- m.Run(ctx) }()
			for range 200 { // minutes
				time.Sleep(time.Minute)
				synctest.Wait()
				if now := time.Now(); now.After(m.Certificate().NotAfter) {
					t.Fatalf("the certificate ended at %s, it is %s", m.Certificate().NotAfter, now)
				}
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			// 200 minutes are 3 to 4 times 70 to 90 % of the hour for which a certificate is valid.
			if len(b.asked) < 4 || len(b.asked) > 5 || b.asked[0] != "token" || slices.ContainsFunc(b.asked[1:], func(who string) bool { return who != by }) {
				t.Errorf("requests by %v, want one by token, and then 3 or 4 by %s", b.asked, by)
			}
			for _, csr := range b.all {
				if csr.Labels["fleet"] != "f" || csr.Spec.SignerName != certificates.KubeAPIServerClientKubeletSignerName {
					t.Errorf("labels %v, signer %s", csr.Labels, csr.Spec.SignerName)
				}
			}
		})
	}
}

// After the certificate has expired, both Join and Run use the bootstrap token.
func TestMemoryExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, cfg := newBook(t)
		m := must(identity.NewMemory(cfg))(t)
		for range 2 { // the second Join finds the valid certificate
			if err := m.Join(t.Context()); err != nil || len(b.asked) != 1 {
				t.Fatal(b.asked, err)
			}
		}
		time.Sleep(2 * time.Hour)
		if err := m.Join(t.Context()); err != nil || time.Now().After(m.Certificate().NotAfter) {
			t.Errorf("join again: %v, valid until %s", err, m.Certificate().NotAfter)
		}
		time.Sleep(2 * time.Hour)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := m.Run(ctx); err != nil || time.Now().After(m.Certificate().NotAfter) {
			t.Errorf("run: %v, valid until %s", err, m.Certificate().NotAfter)
		}
		if diff := cmp.Diff([]string{"token", "token", "token"}, b.asked); diff != "" {
			t.Error(diff)
		}
	})
}

// A Join that ends early goes on later with the same key, so that it finds its earlier request.
func TestMemoryKeepsItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, cfg := newBook(t)
		b.pending = true
		m := must(identity.NewMemory(cfg))(t)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := m.Join(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("join: %v, want the error of its context", err)
		}
		go func() {
			time.Sleep(time.Minute)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, csr := range b.all {
				block, _ := pem.Decode(csr.Spec.Request)
				req := must(x509.ParseCertificateRequest(block.Bytes))(t)
				csr.Status.Certificate = b.ca.sign(t, req.PublicKey, x509.Certificate{Subject: req.Subject})
			}
		}()
		if err := m.Join(t.Context()); err != nil || len(b.all) != 1 {
			t.Errorf("%d requests: %v", len(b.all), err)
		}
	})
}

// A server that takes the request and never answers does not hold the node for ever: it asks again.
func TestAServerThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, cfg := newBook(t)
		b.silent = 2
		m := must(identity.NewMemory(cfg))(t)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		if err := m.Join(ctx); err != nil || len(b.asked) != 3 {
			t.Errorf("asked %d times: %v", len(b.asked), err)
		}
	})
}
