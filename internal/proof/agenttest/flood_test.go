package agenttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// servingTLS returns a TLS configuration for the agent's server, with a certificate that clients do not verify.
func servingTLS(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
}

// A thousand requests a second with unknown tokens, for ten seconds, delay no status. The node sends only a few token reviews, at a limited
// rate, and still serves known clients.
func TestUnknownTokensDelayNoStatus(t *testing.T) {
	t.Parallel()
	const perSecond, seconds = 1000, 10
	var listener *bufconn.Listener
	Run(t, Config{
		Kube:  simkube.Config{Latency: 5 * time.Millisecond},
		Agent: func(c *agent.Config) { c.Kubelet.EnableServer = new(true) },
		Deps: func(d *agent.Deps) {
			d.Client.QPS, d.Client.Burst = 50, 100 // the defaults of kubeAPIQPS and kubeAPIBurst
			listener = bufconn.Listen(1 << 16)     // works in the bubble, unlike a TCP listener
			d.API, d.TLS = listener, servingTLS(t)
		},
	}, func(w *World) {
		transport := &http.Transport{
			DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, //nolint:gosec // test
		}
		defer transport.CloseIdleConnections()
		ask := func(token string) int {
			req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://node/pods", nil)
			if err != nil {
				t.Error(err)
				return 0
			}
			req.Header.Set("Authorization", "Bearer "+token)
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return 0
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		w.Await("a known client is served", 10*time.Second, func() bool { return ask("admin") == http.StatusOK })

		var flood sync.WaitGroup
		var answers [600]atomic.Int32
		flood.Go(func() {
			for i := range seconds * perSecond {
				flood.Go(func() { answers[ask(fmt.Sprintf("%s%d", simkube.UnknownToken, i))].Add(1) })
				time.Sleep(time.Second / perSecond)
			}
		})
		began := time.Now()
		for i := range seconds - 1 {
			time.Sleep(time.Until(began.Add(time.Duration(i+1) * time.Second)))
			name, created := fmt.Sprintf("web-%d", i), time.Now()
			w.Create(Pod(name))
			w.WaitReady(name)
			if took := time.Since(created); took > 2*time.Second {
				t.Errorf("the status of %s took %s under the flood, want less than 2s", name, took)
			}
			if code := ask("admin"); code != http.StatusOK {
				t.Errorf("a known client: %d", code)
			}
		}
		flood.Wait()
		denied, refused := answers[http.StatusUnauthorized].Load(), answers[http.StatusTooManyRequests].Load()
		if denied+refused != perSecond*seconds || refused < perSecond*seconds/2 {
			t.Errorf("%d requests got 401 and %d got 429, of %d", denied, refused, perSecond*seconds)
		}
		// The node sends 40 reviews at once, and then 20 a second. The last ones may wait for some seconds.
		if n := w.Kube.Count("create tokenreviews"); n < 100 || n > 40+20*(seconds+5) {
			t.Errorf("%d reviews reached the API server", n)
		}
	})
}
