package identity_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/identity"
)

// reasons collects what the API server said when it did not accept the node; "" for a call with nil.
type reasons struct {
	mu  sync.Mutex
	all []string
}

func (r *reasons) add(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.all); n == 0 || r.all[n-1] != text {
		r.all = append(r.all, text)
	}
}

func (r *reasons) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if text != "" && strings.Contains(one, text) || text == one {
			return true
		}
	}
	return false
}

// joins opens the Joining of a node and runs it. end ends it and checks how it ended.
func (n *node) joins(t *testing.T, refused func(error)) (j *identity.Joining, end func()) {
	t.Helper()
	j = must(identity.OpenJoining(identity.ClientConfig{
		Kubeconfig: n.cfg.Kubeconfig, BootstrapKubeconfig: n.cfg.BootstrapKubeconfig, CertDir: n.cfg.CertDir, NodeName: "n1", Rotate: true,
		Log: n.cfg.Log, Patience: n.cfg.Patience, Refused: refused,
	}))(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	return j, func() {
		t.Helper()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// ask reads the node's own certificate request with the node's identity, through a client that was made when j was opened.
func ask(t *testing.T, j *identity.Joining) (request func(ctx context.Context, name string) error) {
	t.Helper()
	cs := must(kubeclient.New(j.Config()))(t)
	return func(ctx context.Context, name string) error {
		_, err := cs.CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		return err
	}
}

// While nobody has approved the node's certificate request, the agent has a client whose requests wait. They are sent, with the new certificate, as
// soon as somebody approves. A second start has the identity at once.
func TestRequestsWaitForTheIdentity(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	n := newNode(t, a)
	var said reasons
	j, end := n.joins(t, said.add)
	request := ask(t, j)
	n.log.wait(t, 1, "kubectl certificate approve node-csr-")
	if !j.Awaited() || j.Certificate() != nil || j.Failing() != nil {
		t.Errorf("before the approval: awaited %t, certificate %v, failing %v", j.Awaited(), j.Certificate(), j.Failing())
	}
	j.CloseAll() // the heartbeat calls this after failures
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := request(short, "none"); !errors.Is(err, identity.ErrAwaited) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request that ends before: %v", err)
	}
	var name string
	a.set(func() { name = a.created[0] })
	answered := make(chan error, 1)
	go func() { answered <- request(soon(t), name) }()
	a.change(a.sign)
	if err := <-answered; err != nil {
		t.Errorf("the request that waited: %v", err)
	}
	if j.Awaited() || j.Certificate() == nil || j.Certificate().Subject.CommonName != "system:node:n1" || len(a.seen()) != 1 {
		t.Errorf("after the approval: awaited %t, certificate %v; the server saw %v", j.Awaited(), j.Certificate(), a.seen())
	}
	if !said.has("is not granted: waits for approval") || !said.has("") {
		t.Errorf("the API server's refusals: %q", said.all)
	}
	end()
	j, end = n.joins(t, nil)
	if j.Awaited() || len(a.created) != 1 {
		t.Errorf("second start: awaited %t, requests %v", j.Awaited(), a.created)
	}
	if err := ask(t, j)(soon(t), name); err != nil {
		t.Error(err)
	}
	end()
}

// Somebody deletes the node's certificate request, or the cluster does because it is old. The API server still answers and has not accepted the node,
// so what is known about that stays, while the node asks again.
func TestADeletedRequestIsNoSilentServer(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	n := newNode(t, a)
	var said reasons
	j, end := n.joins(t, said.add)
	defer end()
	n.log.wait(t, 1, "kubectl certificate approve node-csr-")
	a.change(a.remove)
	n.log.wait(t, 2, "kubectl certificate approve node-csr-")
	if said.has("") {
		t.Errorf("the API server's refusals: %q", said.all)
	}
	a.change(a.sign)
	if err := ask(t, j)(soon(t), "none"); !apierrors.IsNotFound(err) || !said.has("") {
		t.Errorf("after the approval: %v, refusals %q", err, said.all)
	}
}

// Somebody sets the clock, or gives the node a kubeconfig, while nobody approves the node's certificate request. The node needs the certificate no more.
func TestAKubeconfigEndsTheWaitForTheApproval(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	n := newNode(t, a)
	var said reasons
	j, end := n.joins(t, said.add)
	defer end()
	n.log.wait(t, 1, "kubectl certificate approve node-csr-")
	a.kubeconfig(t, n.cfg.Kubeconfig, a.token, a.ca)
	short, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := ask(t, j)(short, "none"); !apierrors.IsNotFound(err) || !said.has("") {
		t.Errorf("with a kubeconfig: %v, refusals %q", err, said.all)
	}
}

// Somebody gives the node a kubeconfig while the API server refuses its bootstrap token. The refusal does not count any more then.
func TestARefusalEndsWithTheKubeconfig(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	n := newNode(t, a)
	a.kubeconfig(t, n.cfg.BootstrapKubeconfig, "abcdef.wrong", a.ca)
	var said reasons
	j, end := n.joins(t, said.add)
	defer end()
	n.log.wait(t, 1, "does not accept the credentials in")
	if !said.has("does not accept the credentials in") || said.has("") {
		t.Errorf("before: %q", said.all)
	}
	a.kubeconfig(t, n.cfg.Kubeconfig, a.token, a.ca)
	if err := ask(t, j)(soon(t), "none"); !apierrors.IsNotFound(err) || !said.has("") {
		t.Errorf("with a kubeconfig: %v, refusals %q", err, said.all)
	}
}

// Somebody corrects the address of the API server in the bootstrap kubeconfig while the agent runs: requests that wait go to the right one.
func TestRequestsGoToTheCorrectedServer(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.approve = true
	n := newNode(t, a)
	right := a.server.URL
	a.server.URL = "https://127.0.0.1:1/clusters/old"
	a.kubeconfig(t, n.cfg.BootstrapKubeconfig, a.token, a.ca)
	var said reasons
	j, end := n.joins(t, said.add)
	defer end()
	answered := make(chan error, 1)
	go func() { answered <- ask(t, j)(soon(t), "none") }()
	n.log.wait(t, 1, "cannot be reached")
	if said.has("cannot be reached") {
		t.Error("a server that cannot be reached counts as one that refuses the node")
	}
	a.server.URL = right
	a.kubeconfig(t, n.cfg.BootstrapKubeconfig, "abcdef.wrong", a.ca)
	n.log.wait(t, 1, "does not accept the credentials in")
	a.kubeconfig(t, n.cfg.BootstrapKubeconfig, a.token, a.ca)
	if err := <-answered; !apierrors.IsNotFound(err) {
		t.Errorf("the request that waited: %v", err)
	}
	if err := ask(t, j)(soon(t), a.created[0]); err != nil {
		t.Errorf("a later request: %v", err)
	}
	if !said.has("does not accept the credentials in") {
		t.Errorf("the API server's refusals: %q", said.all)
	}
}

// The disk for the certificate and the kubeconfig is full or read-only at the node's first start. The agent says so and goes on. When the disk works
// again, the node joins, with one certificate request.
func TestTheIdentityWaitsForABrokenDisk(t *testing.T) {
	t.Parallel()
	brokenDisks(t, func(t *testing.T, dir string, breakIt, mend func()) {
		a := newAPI(t)
		a.approve = true
		n := newNode(t, a)
		n.cfg.CertDir, n.cfg.Kubeconfig = dir, dir+"/kubelet.conf"
		breakIt()
		j, end := n.joins(t, nil)
		defer end()
		if err := failing(t, j.Failing); !strings.Contains(err.Error(), "get client certificate") {
			t.Errorf("it says %v", err)
		}
		mend()
		if err := ask(t, j)(soon(t), "none"); !apierrors.IsNotFound(err) {
			t.Errorf("the request that waited: %v", err)
		}
		if err := j.Failing(); err != nil || len(a.created) != 1 {
			t.Errorf("mended: %v, requests %v", err, a.created)
		}
	})
}

// A node that can be used in neither way does not start.
func TestNoIdentityToWaitFor(t *testing.T) {
	t.Parallel()
	n := newNode(t, newAPI(t))
	for _, bootstrap := range []string{"", n.dir + "/none"} {
		if j, err := identity.OpenJoining(identity.ClientConfig{
			Kubeconfig: n.cfg.Kubeconfig, BootstrapKubeconfig: bootstrap, CertDir: n.cfg.CertDir, NodeName: "n1", Log: n.cfg.Log,
		}); err == nil || !strings.Contains(err.Error(), "wherry token create") {
			t.Errorf("bootstrap kubeconfig %q: %v, %v", bootstrap, j, err)
		}
	}
}

// A node that reaches its API server only through the proxy of its bootstrap kubeconfig (proxy-url) goes on through it.
func TestTheProxyOfTheBootstrapStays(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer to.Close()
		from, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer from.Close()
		_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(to, from) }()
		_, _ = io.Copy(from, to)
	}))
	defer proxy.Close()
	a := newAPI(t)
	a.approve = true
	n := newNode(t, a)
	url := strings.Replace(proxy.URL, "http://", "http://user:secret@", 1)
	c := must(clientcmd.LoadFromFile(n.cfg.BootstrapKubeconfig))(t)
	c.Clusters["c"].ProxyURL = url
	must(0, clientcmd.WriteToFile(*c, n.cfg.BootstrapKubeconfig))(t)
	must(0, identity.Bootstrap(soon(t), n.cfg))(t)
	written := must(clientcmd.LoadFromFile(n.cfg.Kubeconfig))(t)
	if got := written.Clusters["default-cluster"].ProxyURL; got != url {
		t.Errorf("proxy-url is %q, want %q; the file:\n%s", got, url, must(os.ReadFile(n.cfg.Kubeconfig))(t))
	}
	n.works(t)
}
