package identity

import (
	"context"
	"crypto/x509"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A certificate is due for renewal when 70 to 90 % of its life have passed: "kubelet will ... request a new certificate as the expiration
// approaches".
func TestRenewalTime(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cert := &x509.Certificate{NotBefore: from, NotAfter: from.Add(1000 * time.Hour)}
	seen := map[time.Time]bool{}
	for range 100 {
		at := renewalTime(cert, time.Time{})
		if life := at.Sub(from); life < 700*time.Hour || life > 900*time.Hour {
			t.Fatalf("renews after %s of 1000 h", life)
		}
		seen[at] = true
	}
	// The certificate was received late, when little of its validity was left. Its renewal must still lie in the future.
	if at := renewalTime(cert, from.Add(990*time.Hour)); at.Before(from.Add(997*time.Hour)) || at.After(from.Add(999*time.Hour)) {
		t.Errorf("renews after %s, want 70 to 90 %% of the 10 h that were left at 990 h", at.Sub(from))
	}
	if len(seen) < 50 {
		t.Errorf("%d different times of 100: nodes would come together", len(seen))
	}
}

func TestSleepUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if !sleepUntil(t.Context(), begin.Add(300*24*time.Hour), time.Now) || time.Since(begin) != 300*24*time.Hour {
			t.Errorf("woke after %s", time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if sleepUntil(ctx, time.Now().Add(time.Hour), time.Now) {
			t.Error("slept on when ctx had ended")
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBackoff(time.Second, 30*time.Second)
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			begin := time.Now()
			b.wait(t.Context())
			if got := time.Since(begin); got < want*time.Second || got > want*time.Second*6/5 {
				t.Errorf("paused %s, want %d s and up to a fifth more", got, want)
			}
		}
	})
}

// --cert-dir and --bootstrap-kubeconfig may be relative to the directory that the agent is started in.
func TestKubeconfigPathsAreAbsolute(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/kubelet.conf"
	boot := &rest.Config{Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAFile: "pki/ca.crt"}}
	if err := writeKubeconfig(file, boot, "pki/kubelet-client-current.pem"); err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{c.AuthInfos["default-auth"].ClientCertificate, c.AuthInfos["default-auth"].ClientKey, c.Clusters["default-cluster"].CertificateAuthority} {
		if !filepath.IsAbs(path) {
			t.Errorf("%s is relative", path)
		}
	}
}

// No serving certificate is requested for a node that has only a name, as before a cloud provider has set its addresses: it would be useless for
// clients, which connect to an IP address, and somebody may have to approve it.
func TestAServingCertificateNeedsAnIPAddress(t *testing.T) {
	t.Parallel()
	name, address := v1.NodeAddress{Type: v1.NodeHostName, Address: "n1"}, v1.NodeAddress{Type: v1.NodeInternalIP, Address: "10.0.0.1"}
	for _, c := range []struct {
		addresses []v1.NodeAddress
		want      bool
	}{{nil, false}, {[]v1.NodeAddress{name, {Type: v1.NodeExternalDNS, Address: "n1.example"}}, false}, {[]v1.NodeAddress{name, address}, true}} {
		s := &Serving{cfg: ServingConfig{NodeName: "n1", Addresses: func() []v1.NodeAddress { return c.addresses }}}
		if got := s.wish() != nil; got != c.want {
			t.Errorf("addresses %v: requests a certificate: %t", c.addresses, got)
		}
	}
}

// A sleep until a time of the clock ends early if the clock is set ahead meanwhile: within the longest sleep.
func TestSleepUntilAClockThatIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		clock := func() time.Time {
			if now := time.Now(); now.Sub(begin) < time.Hour {
				return now
			}
			return time.Now().Add(24 * time.Hour)
		}
		if !sleepUntil(t.Context(), begin.Add(20*time.Hour), clock) {
			t.Error("the sleep was interrupted")
		}
		if took := time.Since(begin); took < time.Hour || took > time.Hour+longestSleep {
			t.Errorf("woke after %s, the clock was set ahead after an hour", took)
		}
	})
}
