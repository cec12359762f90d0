package plane

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wherry-node/wherry/controlplane/internal/component"
)

// TestMain lets the test binary also run as a component, because the control plane under test starts os.Executable.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "component" {
		if Orphaned() {
			os.Exit(1)
		}
		os.Exit(component.Run(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

// running is a control plane under test.
type running struct {
	Endpoint
	end    context.CancelFunc
	ended  chan error
	output *lockedBuffer
}

func start(t *testing.T, dir string, change func(*Config)) *running {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan Endpoint, 1)
	r := &running{end: cancel, ended: make(chan error, 1), output: &lockedBuffer{}}
	c := Config{
		DataDir: dir, BindAddress: "127.0.0.1", AutoApprove: true, AllocateNodeCIDRs: true, Executable: executable,
		Progress: r.output, Ready: func(e Endpoint) error { ready <- e; return nil },
	}
	if change != nil {
		change(&c)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- Run(ctx, c)
	}()
	t.Cleanup(func() {
		cancel()
		<-done // the control plane writes into a directory that the test removes next
	})
	select {
	case r.Endpoint = <-ready:
	case err := <-r.ended:
		cancel()
		t.Fatalf("the plane ended before it was ready: %v\n%s", err, r.output)
	}
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	r.end()
	if err := <-r.ended; err != nil {
		t.Errorf("the plane ended with %v\n%s", err, r.output)
	}
}

func client(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return clientOf(t, config)
}

func clientOf(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually calls f repeatedly until it returns nil, and fails the test after three minutes.
func eventually(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := poll(ctx, 100*time.Millisecond, f); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestPlaneServesNodesThatJoinAndRestartsOnItsData(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	dir := t.TempDir()
	first := start(t, dir, nil)
	pids := componentPIDs(t, dir)
	admin := client(t, first.AdminKubeconfig)

	t.Run("a bootstrap token may ask for a certificate and nothing else", func(t *testing.T) {
		joining := client(t, first.BootstrapKubeconfig)
		if _, err := joining.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("list pods with a bootstrap token: %v, want Forbidden", err)
		}
		cert := join(t, joining, "node-a")
		if cert.Subject.CommonName != "system:node:node-a" {
			t.Errorf("certificate is for %s", cert.Subject.CommonName)
		}
	})
	t.Run("a wrong token is refused", func(t *testing.T) {
		config, err := clientcmd.BuildConfigFromFlags("", first.BootstrapKubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		config.BearerToken = "aaaaaa.bbbbbbbbbbbbbbbb"
		_, err = clientOf(t, config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("list nodes with a wrong token: %v, want Unauthorized", err)
		}
	})
	t.Run("cluster-info is public and signed with the token", func(t *testing.T) {
		config, err := clientcmd.BuildConfigFromFlags("", first.AdminKubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		anonymous := clientOf(t, rest.AnonymousClientConfig(config))
		eventually(t, "signature of cluster-info", func(ctx context.Context) error {
			info, err := anonymous.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, clusterInfoName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for key := range info.Data {
				if strings.HasPrefix(key, "jws-kubeconfig-") {
					return nil
				}
			}
			return errors.New("no signature")
		})
	})
	if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	first.stop(t)
	gone(t, pids)

	second := start(t, dir, func(c *Config) { c.AutoApprove = false })
	defer second.stop(t)
	if second.Server != first.Server {
		t.Errorf("second run serves %s, first served %s", second.Server, first.Server)
	}
	// The client of the first run still works, because the CA and the administrator's certificate are the same.
	eventually(t, "object of the first run", func(ctx context.Context) error {
		_, err := admin.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
		return err
	})
	for _, name := range []string{"kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation"} {
		if _, err := admin.RbacV1().ClusterRoleBindings().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("get %s without automatic approval: %v, want NotFound", name, err)
		}
	}
}

func TestKilledComponentComesBack(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	dir := t.TempDir()
	plane := start(t, dir, nil)
	defer plane.stop(t)
	before := componentPIDs(t, dir)[component.APIServer]
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "kube-apiserver after a kill", func(context.Context) error {
		if after, err := pidOf(dir, component.APIServer); err != nil || after == before {
			return fmt.Errorf("pid %d, error %v", after, err)
		}
		return nil
	})
	admin := client(t, plane.AdminKubeconfig)
	eventually(t, "answers after a kill", func(ctx context.Context) error {
		_, err := admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	})
}

func TestComponentThatCannotStartIsNamedWithItsLog(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	err = Run(t.Context(), Config{
		DataDir: dir, BindAddress: "127.0.0.1", Executable: executable,
		ExtraArgs: map[string][]string{component.APIServer: {"no-such-flag=1"}},
	})
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver") || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("error does not say which component and why: %v", err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "run", "*.pid")); len(files) > 0 {
		t.Errorf("still there afterwards: %v", files)
	}
}

func TestOnePlanePerDataDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := Config{DataDir: dir}
	unlock, err := first.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unlock() }()
	err = Run(t.Context(), Config{DataDir: dir, Executable: "/bin/true"})
	if err == nil || !strings.Contains(err.Error(), "another control plane") {
		t.Errorf("second plane on the same directory: %v", err)
	}
}

// join does what a node does to join: it makes a key and a CSR, waits for the approval, and returns the certificate.
func join(t *testing.T, c *kubernetes.Clientset, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := c.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var cert *x509.Certificate
	eventually(t, "certificate of "+name, func(ctx context.Context) error {
		now, err := c.CertificatesV1().CertificateSigningRequests().Get(ctx, csr.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		block, _ := pem.Decode(now.Status.Certificate)
		if block == nil {
			return fmt.Errorf("none yet; conditions %v", now.Status.Conditions)
		}
		cert, err = x509.ParseCertificate(block.Bytes)
		return err
	})
	return cert
}

func pidOf(dir, name string) (int, error) {
	data, err := os.ReadFile(filepath.Join(dir, "run", name+".pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// componentPIDs returns the process IDs of all components except kube-proxy, by name.
func componentPIDs(t *testing.T, dir string) map[string]int {
	t.Helper()
	pids := map[string]int{}
	for _, name := range []string{component.Etcd, component.APIServer, component.ControllerManager, component.Scheduler} {
		pid, err := pidOf(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		pids[name] = pid
	}
	return pids
}

func gone(t *testing.T, pids map[string]int) {
	t.Helper()
	for name, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s (process %d) is still there: %v", name, pid, err)
		}
	}
}

// lockedBuffer is a buffer to which several goroutines may write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
