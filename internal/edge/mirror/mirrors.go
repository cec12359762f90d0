package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Pods are what the sources want and the API shows. Both calls are cheap and may come at any time.
type Pods interface {
	// Static returns the static pod and the mirror of a full name; each may be nil.
	Static(fullName string) (static, mirror *v1.Pod)
	// StaticNames are the full names of all static pods and mirrors.
	StaticNames() []string
	// Unwanted reports whether a pod that no source has is known to be wanted by none.
	Unwanted(ref pod.Ref) bool
}

// API are the pods of one namespace in the API. Calls come one at a time for each name.
type API interface {
	Create(ctx context.Context, p *v1.Pod, opts metav1.CreateOptions) (*v1.Pod, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Pod, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Config is what Mirrors work with.
type Config struct {
	// API are the pods of a namespace as the API server has them.
	API  func(namespace string) API
	Pods Pods
	// Node is the Node as the API has it; nil: not known.
	Node func() *v1.Node
	// Local reports whether this node itself has what its static pods mean by a name (KindConfigMap, KindSecret).
	Local func(kind, namespace, name string) bool
	// Ends reports whether a pod of a full name, other than the one of that UID, still has something here.
	Ends func(fullName string, but types.UID) bool
	// Owes reports whether the API is still to be told of a mirror how its pod ended.
	Owes func(mirror types.UID) bool
	// Gone is told the UID of every mirror that was there and is no more.
	Gone func(mirror types.UID)
	Log  *slog.Logger
}

// The timings: of a request, of tries after one that failed, and of looks for what is waited for.
const (
	timeout      = 30 * time.Second
	retryInitial = 500 * time.Millisecond
	retryMax     = 30 * time.Second
	waitAgain    = time.Second
	unseen       = 10 * time.Second // of a mirror that the API has and the watch has not shown
)

// remakes is how often a mirror is made anew because the API server refuses its status.
const remakes = time.Minute

// absence is how long a name stays without a mirror after one has gone. A client that waits for the end of an object by
// its name (kubectl delete) learns of it from a watch. Where its watch breaks off at that time, it lists again after 0.8 s
// to 1.6 s, and takes a new object of the name for a change of the old: it would wait until the new one ends.
const absence = 2 * time.Second

// Mirrors keeps the mirror pods of a node. Create it with New, then Run it. Methods may be called concurrently and do not
// block.
type Mirrors struct {
	cfg Config

	mu      sync.Mutex
	ctx     context.Context // nil unless Run runs
	wg      sync.WaitGroup
	names   map[string]*name
	refused map[types.UID]bool // mirrors whose status the API server refuses
	working bool
}

// name is one full name that has something to do, waits, or has a mirror.
type name struct {
	due      bool
	timer    *time.Timer
	failures int
	said     string
	last     types.UID // of the mirror that was last seen
	gone     time.Time // when a mirror was first seen to be gone
	remade   time.Time // when a mirror was last removed to be made anew
}

// New returns Mirrors that do nothing until Run.
func New(cfg Config) *Mirrors {
	return &Mirrors{cfg: cfg, names: map[string]*name{}, refused: map[types.UID]bool{}}
}

// Run works until ctx ends. At rest it holds no goroutine but the caller's.
func (m *Mirrors) Run(ctx context.Context) error {
	m.mu.Lock()
	m.ctx = ctx
	m.mu.Unlock()
	m.Look("")
	<-ctx.Done()
	m.mu.Lock()
	for _, n := range m.names {
		n.stop()
	}
	m.mu.Unlock()
	m.wg.Wait()
	return nil
}

// Refused says that the API server refuses the status of a mirror: it shows the end of an earlier life of its pod (the manifest
// was removed and came back as it was), which nobody may leave. The pod gets another mirror.
func (m *Mirrors) Refused(mirror types.UID) {
	m.mu.Lock()
	m.refused[mirror] = true
	m.mu.Unlock()
	m.Look("")
}

// remake reports whether a mirror that is in step has to be made anew all the same, or when.
func (m *Mirrors) remake(fullName string, mirror *v1.Pod) (now bool, later time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[fullName]
	if n == nil || !m.refused[mirror.UID] {
		return false, 0
	}
	if later = time.Until(n.remade.Add(remakes)); later > 0 {
		return false, later
	}
	n.remade = time.Now()
	return true, 0
}

func (n *name) stop() {
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
}

// Look says that something of a full name may have changed; "" stands for all.
func (m *Mirrors) Look(fullName string) {
	all := []string{fullName}
	if fullName == "" {
		all = m.cfg.Pods.StaticNames()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range all {
		n := m.names[f]
		if n == nil {
			n = &name{}
			m.names[f] = n
		}
		n.due = true
	}
	m.spawn()
}

// spawn is called with the lock held.
func (m *Mirrors) spawn() {
	if m.working || m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	m.working = true
	m.wg.Add(1)
	go m.work()
}

// work does what is due, one name after another: static pods are few.
func (m *Mirrors) work() {
	defer m.wg.Done()
	for {
		m.mu.Lock()
		fullName, n := "", (*name)(nil)
		for f, o := range m.names {
			if o.due {
				fullName, n = f, o
				break
			}
		}
		if n == nil || m.ctx.Err() != nil {
			m.working = false
			m.mu.Unlock()
			return
		}
		n.due = false
		n.stop()
		m.mu.Unlock()

		static, mirror := m.cfg.Pods.Static(fullName)
		if last := n.last; last != "" && (mirror == nil || mirror.UID != last) {
			m.cfg.Gone(last)
			n.gone = time.Now()
			m.mu.Lock()
			delete(m.refused, last)
			m.mu.Unlock()
		}
		n.last = ""
		if mirror != nil {
			n.last = mirror.UID
		}
		var err error
		again := time.Until(n.gone.Add(absence))
		if mirror != nil || again <= 0 {
			again, err = m.reconcile(fullName, static, mirror)
		}

		m.mu.Lock()
		m.after(fullName, n, again, err)
		if static == nil && mirror == nil && !n.due {
			n.stop()
			delete(m.names, fullName)
		}
		m.mu.Unlock()
	}
}

// after arranges another look where something is waited for or failed. Called with the lock held.
func (m *Mirrors) after(fullName string, n *name, again time.Duration, err error) {
	switch {
	case m.ctx.Err() != nil:
		return
	case err != nil:
		again = min(retryInitial<<min(n.failures, 10), retryMax)
		n.failures++
		if n.said != err.Error() {
			n.said = err.Error()
			m.cfg.Log.Warn("mirror pod not in step, will retry", "pod", fullName, "err", err)
		}
	default:
		n.failures, n.said = 0, ""
	}
	if again > 0 {
		n.timer = time.AfterFunc(again, func() { m.Look(fullName) })
	}
}

// reconcile does the next step for one name. The watch tells when it is done, and the one after it is taken. A watch that
// was down tells nothing of a mirror that came and went meanwhile, so one that was made and is not seen is looked for again.
func (m *Mirrors) reconcile(fullName string, static, mirror *v1.Pod) (again time.Duration, err error) {
	var uid types.UID
	if static != nil {
		uid = static.UID
	}
	switch {
	case mirror == nil && static == nil:
		return 0, nil
	case mirror == nil:
		if m.cfg.Ends(fullName, uid) {
			return waitAgain, nil
		}
		return m.create(static)
	case mirror.DeletionTimestamp != nil:
		return 0, m.remove(mirror, "it was deleted")
	case static == nil && !m.cfg.Pods.Unwanted(pod.Ref{Namespace: mirror.Namespace, Name: mirror.Name, UID: types.UID(mirror.Annotations[pod.AnnotationMirror])}):
		return 0, nil // told when every source has answered
	case static != nil && current(mirror, static):
		now, later := m.remake(fullName, mirror)
		if !now {
			return later, nil
		}
		return 0, m.remove(mirror, "the API server refuses the status of its pod, which has begun anew")
	case m.cfg.Ends(fullName, uid), m.cfg.Owes(mirror.UID):
		return waitAgain, nil // until then it shows the pod that ends
	case static == nil:
		return 0, m.remove(mirror, "its static pod is gone")
	}
	return 0, m.remove(mirror, "it is not the mirror that this node makes of its static pod")
}

// current reports whether a mirror is of this manifest, and goes with the Node as one that an agent made does.
func current(mirror, static *v1.Pod) bool {
	owner := metav1.GetControllerOf(mirror)
	return pod.Mirrors(mirror, static) && owner != nil && owner.Kind == "Node" && owner.Name == static.Spec.NodeName
}

// create makes the mirror of a static pod.
func (m *Mirrors) create(static *v1.Pod) (again time.Duration, err error) {
	node := m.cfg.Node()
	if node == nil || node.DeletionTimestamp != nil {
		return waitAgain, nil
	}
	ctx, cancel := context.WithTimeout(m.ctx, timeout)
	defer cancel()
	made, err := m.cfg.API(static.Namespace).Create(ctx, Of(static, node, m.cfg.Local), metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return m.taken(ctx, static)
	case err != nil:
		return 0, fmt.Errorf("create mirror pod: %w", err)
	}
	m.cfg.Log.Info("mirror pod created", "pod", pod.RefOf(static), "mirror", made.UID)
	return unseen, nil
}

// taken finds out who has the name: a mirror that the watch has not shown yet, or a pod that is none.
func (m *Mirrors) taken(ctx context.Context, static *v1.Pod) (again time.Duration, err error) {
	have, err := m.cfg.API(static.Namespace).Get(ctx, static.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return waitAgain, nil
	case err != nil:
		return 0, fmt.Errorf("read the pod that has the mirror's name: %w", err)
	case pod.IsMirror(have) && have.Spec.NodeName == static.Spec.NodeName:
		return unseen, nil
	}
	return 0, errors.New("the API has another pod of this name: rename the static pod, or delete the other")
}

// remove deletes a mirror at once: there is nothing that a grace period would be for.
func (m *Mirrors) remove(mirror *v1.Pod, why string) error {
	ctx, cancel := context.WithTimeout(m.ctx, timeout)
	defer cancel()
	now := int64(0)
	err := m.cfg.API(mirror.Namespace).Delete(ctx, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(mirror.UID)),
	})
	switch {
	case apierrors.IsNotFound(err): // the watch will tell
	case err != nil:
		return fmt.Errorf("delete mirror pod: %w", err)
	default:
		m.cfg.Log.Info("mirror pod removed", "pod", pod.RefOf(mirror), "why", why)
	}
	return nil
}
