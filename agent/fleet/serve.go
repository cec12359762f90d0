package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/edge/server"
)

// serving has the parts that the HTTPS APIs of all nodes share: the certificate, the authorities of client certificates, and the server of
// streams into containers (exec, attach, port-forward).
type serving struct {
	address netip.Addr
	tls     *tls.Config
	caFile  string
	streams net.Listener
	ports   *acceptor

	mu    sync.Mutex
	nodes map[string]http.Handler // the handler of streams of each node, by the node's name
}

// certificateLife is how long the certificate of the nodes is valid.
const certificateLife = 365 * 24 * time.Hour

// openServing prepares the nodes' HTTPS APIs, if Config.Address is valid. It reads the authority of the API server's client certificate
// from the ConfigMap extension-apiserver-authentication.
func (f *Fleet) openServing(ctx context.Context) error {
	if !f.cfg.Address.IsValid() {
		return nil
	}
	info, err := f.api.ConfigMaps(metav1.NamespaceSystem).Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("find the authority of the API server's client certificate, for logs and exec: %w; to do without them: --no-serve", err)
	}
	ca := info.Data["client-ca-file"]
	if ca == "" {
		return errors.New("find the authority of the API server's client certificate, for logs and exec: ConfigMap kube-system/extension-apiserver-authentication has no client-ca-file; to do without them: --no-serve")
	}
	s := &serving{address: f.cfg.Address, caFile: filepath.Join(f.cfg.Dir, "client-ca.crt"), nodes: map[string]http.Handler{}}
	if err := os.MkdirAll(f.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the nodes: %w", err)
	}
	if err := os.WriteFile(s.caFile, []byte(ca), 0o600); err != nil {
		return fmt.Errorf("write the authority of the API server's client certificate: %w", err)
	}
	cas, err := server.FixedClientCAs(s.caFile)
	if err != nil {
		return err
	}
	cert, err := selfSigned(f.cfg.Address)
	if err != nil {
		return fmt.Errorf("make the certificate of the nodes: %w", err)
	}
	s.tls = server.TLSConfig{ClientCAs: cas, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil }}.New()
	if s.streams, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return fmt.Errorf("listen for streams of the simulated runtimes: %w", err)
	}
	if s.ports, err = newAcceptor(f.cfg.Log); err != nil {
		_ = s.streams.Close()
		return err
	}
	f.serving = s
	return nil
}

// selfSigned returns a self-signed certificate for an address.
func selfSigned(address netip.Addr) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "wherry fleet"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{address.AsSlice()},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// run serves the streams, and accepts the connections to the nodes' HTTPS APIs, until ctx ends.
func (s *serving) run(ctx context.Context, f *Fleet) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { s.ports.run(ctx) })
	if err := server.Serve(ctx, s.streams, s, server.ServeOptions{Log: f.cfg.NodeLog}); err != nil {
		f.cfg.Log.Error("streams into containers (exec, attach, port-forward) are not served any more", "err", err)
	}
}

// ServeHTTP passes a request for a stream on to the runtime of its node. The first element of the path is the node's name.
func (s *serving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	node, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s.mu.Lock()
	h := s.nodes[node]
	s.mu.Unlock()
	if h == nil {
		http.NotFound(w, r)
		return
	}
	h.ServeHTTP(w, r)
}

// open opens a port for a node's HTTPS API, and registers the node's handler of streams (exec, attach, port-forward). It adds the
// settings for both to k, cfg and deps. The agent closes the port.
func (s *serving) open(node string, sim *simulated.Node, k *kubelet.KubeletConfiguration, cfg *agent.Config, deps *agent.Deps) error {
	h, err := sim.StreamHandler("http://" + s.streams.Addr().String() + "/" + node + "/")
	if err != nil {
		return err
	}
	l, err := s.ports.listen(netip.AddrPortFrom(s.address, 0).String())
	if err != nil {
		return fmt.Errorf("listen for the API of node %s: %w", node, err)
	}
	s.mu.Lock()
	s.nodes[node] = h
	s.mu.Unlock()
	on := true
	k.EnableServer, k.Authentication.X509.ClientCAFile = &on, s.caFile
	cfg.Port = int32(l.Addr().(*net.TCPAddr).Port)
	deps.API, deps.TLS = l, s.tls
	return nil
}

// forget removes a node's handler of streams.
func (s *serving) forget(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, node)
}
