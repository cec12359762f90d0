package plane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wherry-node/wherry/controlplane/internal/component"
)

// startBound is how long a control plane may take to become ready on a busy machine with cold caches.
const startBound = 5 * time.Minute

// plane is a running control plane: its components and their configuration.
type plane struct {
	cfg      *Config
	began    time.Time
	starter  *starter
	children map[string]*child
	ready    atomic.Bool
	failed   chan error
}

// Run starts a control plane and blocks. It returns nil when ctx ends, and an error if the control plane fails before it is ready.
func Run(ctx context.Context, cfg Config) (err error) {
	if err := cfg.fill(); err != nil {
		return err
	}
	p := &plane{cfg: &cfg, began: cfg.Now(), children: map[string]*child{}, failed: make(chan error, 1)}
	for _, dir := range []string{"logs", "run", "pki"} {
		if err := os.MkdirAll(cfg.path(dir), 0o755); err != nil {
			return fmt.Errorf("prepare data directory: %w", err)
		}
	}
	unlock, err := cfg.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	cr, err := p.prepare()
	if err != nil {
		return fmt.Errorf("prepare control plane in %s: %w", cfg.DataDir, err)
	}
	p.starter = newStarter()
	defer p.starter.close()
	defer func() { err = errors.Join(err, p.stop()) }()

	if err := p.bringUp(ctx, cr); err != nil {
		if ctx.Err() != nil {
			return nil // ctx ended before the control plane was ready, which is no failure
		}
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.failed:
		return err
	}
}

// prepare writes the files that the components need: certificates, keys and kubeconfigs.
func (p *plane) prepare() (*credentials, error) {
	if err := p.cfg.recall(); err != nil {
		return nil, err
	}
	cr, err := p.cfg.credentials()
	if err != nil {
		return nil, err
	}
	if err := p.cfg.writeKubeconfigs(cr); err != nil {
		return nil, err
	}
	if !p.cfg.Proxy {
		return cr, nil
	}
	if err := p.cfg.recordTables(); err != nil {
		return nil, err
	}
	return cr, p.cfg.writeProxyConfig(cr)
}

// bringUp starts the components and returns when the control plane is ready.
func (p *plane) bringUp(ctx context.Context, cr *credentials) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startBound, fmt.Errorf("control plane not ready in %s", startBound))
	defer cancel()
	lifetime := context.WithoutCancel(ctx) // the end of ctx does not end the components, because stop ends them in order
	p.launch(lifetime, component.Etcd, cr)
	p.launch(lifetime, component.APIServer, cr)

	work, workCtx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	work.Go(func() error { // the failure of a component also ends the wait in awaitReady
		select {
		case err := <-p.failed:
			return err
		case <-done:
			return nil
		}
	})
	work.Go(func() error {
		defer close(done)
		return p.awaitReady(workCtx, lifetime, cr)
	})
	if err := work.Wait(); err != nil {
		return err
	}
	p.ready.Store(true)
	took := p.cfg.Now().Sub(p.began)
	p.say("ready in %.1f s at %s", took.Seconds(), p.cfg.server())
	if p.cfg.Ready == nil {
		return nil
	}
	return p.cfg.Ready(Endpoint{
		Server: p.cfg.server(), AdminKubeconfig: p.cfg.AdminKubeconfig, BootstrapKubeconfig: p.cfg.BootstrapKubeconfig,
		CAFile: p.cfg.CAFile, Took: took,
	})
}

func (p *plane) awaitReady(ctx, lifetime context.Context, cr *credentials) error {
	restConfig, err := clientcmd.BuildConfigFromFlags("", p.cfg.AdminKubeconfig)
	if err != nil {
		return fmt.Errorf("read %s: %w", p.cfg.AdminKubeconfig, err)
	}
	restConfig.QPS, restConfig.Burst, restConfig.Timeout = 100, 200, 10*time.Second
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	get := func(path string) func(context.Context) error {
		return func(ctx context.Context) error {
			return client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Error()
		}
	}
	const every = 100 * time.Millisecond
	if err := poll(ctx, every, get("/livez/ping")); err != nil {
		return fmt.Errorf("wait for kube-apiserver: %w", err)
	}
	p.say("kube-apiserver answers")
	if err := poll(ctx, every, get("/readyz")); err != nil {
		return fmt.Errorf("wait for kube-apiserver to be ready: %w", err)
	}
	// The other components start after their roles are installed; earlier their requests would be forbidden, and they would back off.
	p.launch(lifetime, component.ControllerManager, cr)
	p.launch(lifetime, component.Scheduler, cr)
	if p.cfg.Proxy {
		p.launch(lifetime, component.Proxy, cr)
	}
	ca, err := os.ReadFile(p.cfg.CAFile)
	if err != nil {
		return err
	}
	if err := poll(ctx, every, func(ctx context.Context) error { return p.cfg.install(ctx, client, ca) }); err != nil {
		return fmt.Errorf("install the objects for joining nodes: %w", err)
	}
	p.say("roles, bindings, bootstrap token and cluster-info installed")
	// Without the default service account, which the controller manager creates, the API server refuses pods.
	if err := poll(ctx, every, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("wait for kube-controller-manager: %w", err)
	}
	return nil
}

func (p *plane) launch(ctx context.Context, name string, cr *credentials) {
	c := &child{
		name: name, args: p.cfg.args(name, cr), cfg: p.cfg, starter: p.starter,
		log: p.cfg.path("logs", name+".log"), pidfile: p.cfg.path("run", name+".pid"),
		failed: p.failed, fragile: func() bool { return !p.ready.Load() && name != component.Proxy },
	}
	p.children[name] = c
	c.launch(ctx)
	p.say("%s started", name)
}

// stop ends the components in order: first the clients of the API server, then the API server, then etcd.
func (p *plane) stop() error {
	began := p.cfg.Now()
	var clients errgroup.Group
	for _, name := range []string{component.Proxy, component.Scheduler, component.ControllerManager} {
		if c := p.children[name]; c != nil {
			clients.Go(func() error { c.stop(); return nil })
		}
	}
	_ = clients.Wait()
	for _, name := range []string{component.APIServer, component.Etcd} {
		if c := p.children[name]; c != nil {
			c.stop()
		}
	}
	p.say("ended in %.1f s", p.cfg.Now().Sub(began).Seconds())
	if p.children[component.Proxy] == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return p.cfg.removeProxyRules(ctx)
}

func (p *plane) say(format string, args ...any) {
	fmt.Fprintf(p.cfg.Progress, "%5.1f s  %s\n", p.cfg.Now().Sub(p.began).Seconds(), fmt.Sprintf(format, args...))
}
