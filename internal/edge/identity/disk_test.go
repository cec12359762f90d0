package identity_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/identity"
)

// brokenDisks runs f for each way in which a directory cannot be written to. f gets the directory, a function that makes it
// unwritable, and a function that makes it writable again.
func brokenDisks(t *testing.T, f func(t *testing.T, dir string, breakIt func(), mend func())) {
	t.Helper()
	for _, name := range []string{"full", "read-only"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if os.Geteuid() != 0 {
				if os.Getenv("CI") == "true" {
					t.Fatal("needs root: mounts a small file system")
				}
				t.Skip("needs root: mounts a small file system")
			}
			dir := filepath.Join(t.TempDir(), "pki")
			check := func(errs ...error) {
				t.Helper()
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
			}
			check(os.Mkdir(dir, 0o755), unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"))
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			filler := filepath.Join(dir, "filler")
			switch name {
			case "full":
				f(t, dir, func() {
					if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
						t.Fatal("the disk is not full:", err)
					}
				}, func() { check(os.Remove(filler)) })
			default:
				remount := func(flags uintptr) { check(unix.Mount("", dir, "", unix.MS_REMOUNT|flags, "size=256k")) }
				f(t, dir, func() { remount(unix.MS_RDONLY) }, func() { remount(0) })
			}
		})
	}
}

// failing waits until part, the method Failing of a Client or a Serving, returns an error, and returns that error.
func failing(t *testing.T, part func() error) error {
	t.Helper()
	for range 6000 {
		if err := part(); err != nil {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatal("it does not say that it fails")
	return nil
}

// The disk is full or read-only when the client certificate is due for renewal. The client keeps its certificate, reports what is
// wrong, and renews when the disk works again.
func TestRenewalOutlivesABrokenDisk(t *testing.T) {
	t.Parallel()
	brokenDisks(t, func(t *testing.T, dir string, breakIt, mend func()) {
		a := newAPI(t)
		a.approve, a.age, a.life = true, time.Hour, time.Minute
		n := newNode(t, a)
		n.cfg.CertDir = dir
		if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(n.cfg.CertDir+"/kubelet-client-current.pem", time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		var failures atomic.Int32
		c := must(identity.OpenClient(identity.ClientConfig{Kubeconfig: n.cfg.Kubeconfig, CertDir: n.cfg.CertDir, NodeName: "n1", Rotate: true,
			Log: n.cfg.Log, Patience: n.cfg.Patience, Failed: func() { failures.Add(1) }}))(t)
		a.set(func() { a.age, a.life = 0, time.Hour })
		first := c.Certificate()
		breakIt()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		n.log.wait(t, 1, "Cannot get the node's certificate yet")
		if err := failing(t, c.Failing); !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "renew client certificate") {
			t.Errorf("it says %v", err)
		}
		select {
		case err := <-done:
			t.Fatalf("the client ended: %v", err)
		default:
		}
		if got := c.Certificate(); got.SerialNumber.Cmp(first.SerialNumber) != 0 {
			t.Error("another certificate is in use")
		}
		if failures.Load() == 0 {
			t.Error("no failure is counted")
		}
		mend()
		n.log.wait(t, 1, "client certificate is renewed")
		if err := c.Failing(); err != nil {
			t.Errorf("mended, and it still says %v", err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A serving certificate that the cluster signs also outlives a full or read-only disk.
func TestServingRequestOutlivesABrokenDisk(t *testing.T) {
	t.Parallel()
	brokenDisks(t, func(t *testing.T, dir string, breakIt, mend func()) {
		a := newAPI(t)
		a.approve = true
		n := newNode(t, a)
		if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
			t.Fatal(err)
		}
		c := must(identity.OpenClient(identity.ClientConfig{Kubeconfig: n.cfg.Kubeconfig, CertDir: n.cfg.CertDir, NodeName: "n1", Log: n.cfg.Log}))(t)
		defer endClient(t, c)
		s := must(identity.OpenServing(identity.ServingConfig{Request: true, CertDir: dir, NodeName: "n1", Log: n.cfg.Log, Patience: 20 * time.Millisecond,
			Client: func() (identity.CSRs, error) {
				cs, err := kubeclient.New(c.Config())
				if err != nil {
					return nil, err
				}
				return cs.CertificateSigningRequests(), nil
			}, Addresses: func() []v1.NodeAddress { return addresses("10.0.0.1") }}))(t)
		breakIt()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		if err := failing(t, s.Failing); !strings.Contains(err.Error(), "renew serving certificate") {
			t.Errorf("it says %v", err)
		}
		mend()
		n.log.wait(t, 1, "new serving certificate")
		if err := s.Failing(); err != nil {
			t.Errorf("mended, and it still says %v", err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A self-signed certificate that cannot be written is used nevertheless, at the start and when the node's addresses change. It is
// written when the disk works again.
func TestSelfSignedOutlivesABrokenDisk(t *testing.T) {
	t.Parallel()
	brokenDisks(t, func(t *testing.T, dir string, breakIt, mend func()) {
		log := newLines()
		var at atomic.Pointer[[]v1.NodeAddress]
		put := func(a []v1.NodeAddress) { at.Store(&a) }
		put(addresses("10.0.0.1"))
		breakIt()
		s := must(identity.OpenServing(identity.ServingConfig{CertDir: dir, NodeName: "n1", Addresses: func() []v1.NodeAddress { return *at.Load() },
			Log: slog.New(slog.NewTextHandler(log, nil)), Patience: 20 * time.Millisecond}))(t)
		see := serve(t, s)
		if err := must(see())(t).VerifyHostname("10.0.0.1"); err != nil {
			t.Error(err)
		}
		if err := s.Failing(); err == nil {
			t.Error("it does not say that it fails")
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		put(addresses("10.0.0.2"))
		log.wait(t, 2, "Made a self-signed serving certificate")
		if err := must(see())(t).VerifyHostname("10.0.0.2"); err != nil {
			t.Error(err)
		}
		mend()
		for range 6000 {
			if s.Failing() == nil {
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		kept := must(tls.LoadX509KeyPair(filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")))(t)
		if got := must(see())(t); must(x509.ParseCertificate(kept.Certificate[0]))(t).SerialNumber.Cmp(got.SerialNumber) != 0 {
			t.Error("another certificate was written than the one in use")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
