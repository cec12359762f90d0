package integration

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestOwnPlane uses a control plane of its own with short times, so that one minute shows what happens to a node over days: a node that is
// silent for 20 s becomes Unknown, certificates are valid for two minutes, and nothing approves certificate requests automatically.
func TestOwnPlane(t *testing.T) {
	e := newPlane(t, use(t), "own", "--auto-approve=false", "--signing-duration", "120s", "--node-monitor-grace-period", "20s")
	approve(t, e)
	t.Run("byhand", func(t *testing.T) { t.Parallel(); joinByHand(t, e) })
	t.Run("rotation", func(t *testing.T) { t.Parallel(); rotation(t, e) })
	t.Run("agent", func(t *testing.T) { t.Parallel(); agentLife(t, e) })
}

// newPlane starts a control plane beside that of the run. When the test ends, the control plane and its nodes end.
func newPlane(t *testing.T, main *env, name string, flags ...string) *env {
	t.Helper()
	e := &env{dir: filepath.Join(main.dir, name+".logs"), bin: main.bin, wherry: main.wherry, kubectl: main.kubectl, flavor: main.flavor, id: main.id}
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, n := range e.nodes {
			n.process.stop()
		}
		if e.plane != nil {
			e.plane.stop()
		}
		_ = os.RemoveAll(filepath.Join(e.dir, "cp")) // the logs stay if the run keeps its logs
	})
	if err := e.planeUp(flags...); err != nil {
		t.Fatal(err)
	}
	e.node = &node{process: e.plane} // the method eventually fails the test at once if the process of e.node has ended; here that is the control plane
	return e
}

// approve approves the certificate requests of nodes and of the bootstrap token, as an administrator would, until the test ends.
func approve(t *testing.T, e *env) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	token, _, err := output(command(e.kubectl, "--kubeconfig", filepath.Join(e.dir, "cp", "bootstrap.kubeconfig"), "config", "view", "--raw", "-o", "jsonpath={.users[0].user.token}"))
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(token, ".")
	wg.Go(func() {
		_ = wait(time.Hour, func() error {
			if ctx.Err() != nil {
				return fatal{ctx.Err()}
			}
			list, err := e.client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				csr := &list.Items[i]
				if by := csr.Spec.Username; len(csr.Status.Conditions) > 0 || by != "system:bootstrap:"+id && !strings.HasPrefix(by, "system:node:") {
					continue
				}
				csr.Status.Conditions = []certificates.CertificateSigningRequestCondition{{Type: certificates.CertificateApproved, Status: "True", Reason: "Test"}}
				_, _ = e.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
			}
			return errorf("it goes on")
		})
	})
}

// runWherry runs a wherry command and waits until it ends.
func (e *env) runWherry(args ...string) (stdout, stderr string, err error) {
	return output(command(e.wherry, append(args, "--kubeconfig", e.kubeconfig())...))
}

// restart starts the agent again after it has ended, as a service manager does.
func (n *node) restart() error {
	n.starts++
	p, err := start(filepath.Join(n.env.dir, fmt.Sprintf("node-%s-%d.log", n.Name, n.starts)), n.env.wherry, n.process.cmd.Args[1:]...)
	if err == nil {
		n.process = p
	}
	return err
}

// kill ends the agent with SIGKILL.
func (n *node) kill() {
	_ = n.process.cmd.Process.Kill()
	<-n.process.ended
}

// log returns what the agent has logged since its last start.
func (n *node) log() string {
	data, _ := os.ReadFile(n.process.log)
	return string(data)
}

// relay is a proxy between a node and the API server. It can fail in the ways in which networks fail.
type relay struct {
	to string
	mu sync.Mutex
	// state is what the relay does with connections and data now.
	state    relayState
	changed  chan struct{} // closed when state changes
	listener net.Listener
	wg       sync.WaitGroup
}

type relayState int

const (
	passes  relayState = iota
	hangs              // the relay forwards nothing, and neither side gets an error
	refuses            // the relay closes connections and accepts none
)

// newRelay starts a relay to the API server. bootstrap is the path of a bootstrap kubeconfig with the relay's address.
func newRelay(t *testing.T, e *env, name string) (r *relay, bootstrap string) {
	t.Helper()
	server, err := url.Parse(e.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	r = &relay{to: server.Host, changed: make(chan struct{})}
	if r.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.become(refuses); _ = r.listener.Close(); r.wg.Wait() })
	r.wg.Go(func() {
		for {
			conn, err := r.listener.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.serve(conn) })
		}
	})
	data, err := os.ReadFile(filepath.Join(e.dir, "cp", "bootstrap.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	bootstrap = filepath.Join(e.dir, name+".bootstrap.kubeconfig")
	text := strings.ReplaceAll(string(data), e.config.Host, "https://"+r.listener.Addr().String())
	if err := os.WriteFile(bootstrap, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return r, bootstrap
}

func (r *relay) become(s relayState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *relay) now() (relayState, chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state, r.changed
}

func (r *relay) serve(conn net.Conn) {
	defer conn.Close()
	if s, _ := r.now(); s == refuses {
		return
	}
	up, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer up.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	done := make(chan struct{}, 2)
	for _, c := range [][2]net.Conn{{conn, up}, {up, conn}} {
		wg.Go(func() { r.copy(c[0], c[1]); done <- struct{}{} })
	}
	for {
		s, changed := r.now()
		if s == refuses {
			break
		}
		select {
		case <-changed:
			continue
		case <-done:
		}
		break
	}
	_, _ = conn.Close(), up.Close()
}

// copy forwards the data of one direction. Data that was read while the relay hangs is kept until the relay passes data again.
func (r *relay) copy(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		for {
			s, changed := r.now()
			if s == refuses {
				return
			}
			if s == passes {
				break
			}
			<-changed
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}
