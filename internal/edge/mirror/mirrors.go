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

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Pods returns the static pods of the sources and the mirrors in the API. Its methods are cheap and may be called at any time.
type Pods interface {
	// Static returns the static pods of a full name, in an order that stays the same, and the mirror; nil: there is none.
	Static(fullName string) (statics []*v1.Pod, mirror *v1.Pod)
	// StaticNames returns the full names of all static pods and mirrors.
	StaticNames() []string
	// Unwanted reports whether no source has a pod any more. It returns false while a source that may have the pod has not answered.
	Unwanted(ref pod.Ref) bool
}

// API reads and writes the pods of one namespace in the API. There is one call at a time for each name.
type API interface {
	Create(ctx context.Context, p *v1.Pod, opts metav1.CreateOptions) (*v1.Pod, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*v1.Pod, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// Config configures Mirrors.
type Config struct {
	// API returns the client for the pods of a namespace.
	API  func(namespace string) API
	Pods Pods
	// Node returns the Node in the API; nil: not known.
	Node func() *v1.Node
	// Local reports whether this node has the object that its static pods refer to (KindConfigMap, KindSecret) in its
	// own manifests.
	Local func(kind, namespace, name string) bool
	// Ends reports whether something is left on the node of another pod with this full name, that is, one whose UID is not but.
	Ends func(fullName string, but types.UID) bool
	// Owes reports whether the node still has to write the final status of a mirror to the API.
	Owes func(mirror types.UID) bool
	// Gone is called with the UID of every mirror that existed and is gone.
	Gone func(mirror types.UID)
	Log  *slog.Logger
}

// These constants are the timeout of a request, the waits before a failed request is tried again, and the waits before a name is checked
// again.
const (
	timeout      = 30 * time.Second
	retryInitial = 500 * time.Millisecond
	retryMax     = 30 * time.Second
	waitAgain    = time.Second
	unseen       = 10 * time.Second // how long to wait for the watch to show a mirror that is in the API
)

// remakes is the minimum time between two replacements of a mirror whose status the API server refuses.
const remakes = time.Minute

// absence is how long a name stays without a mirror after one has gone. A client that waits for the end of an object by its name (kubectl
// delete) learns of the end from a watch. If its watch breaks at that time, the client lists again after 0.8 s to 1.6 s. If a new object
// of the same name exists by then, the client takes it for the old one and continues to wait.
const absence = 2 * time.Second

// Mirrors creates and removes the mirror pods of a node. Create it with New, then Run it. Methods may be called concurrently and do
// not block.
type Mirrors struct {
	cfg Config

	mu      sync.Mutex
	ctx     context.Context // context of Run; nil: Run does not run
	wg      sync.WaitGroup
	names   map[string]*name
	refused map[types.UID]bool // mirrors whose status the API server refuses
	working bool
}

// name is the state of one full name that has work to do, waits, or has a mirror.
type name struct {
	due      bool
	timer    *time.Timer
	failures int
	said     string
	last     types.UID // the mirror that was last seen
	gone     time.Time // when a mirror was first seen to be missing
	remade   time.Time // when a mirror was last removed in order to create it anew
}

// New returns Mirrors that do nothing until Run.
func New(cfg Config) *Mirrors {
	return &Mirrors{cfg: cfg, names: map[string]*name{}, refused: map[types.UID]bool{}}
}

// Begin starts to create and remove mirrors until ctx ends. It returns at once; join waits until all work has ended. While there is
// nothing to do, no goroutine runs.
func (m *Mirrors) Begin(ctx context.Context) (join func()) {
	m.mu.Lock()
	m.ctx = ctx
	m.mu.Unlock()
	m.Look("")
	return func() {
		m.mu.Lock()
		for _, n := range m.names {
			n.stop()
		}
		m.mu.Unlock()
		m.wg.Wait()
	}
}

// Run does the same as Begin, but blocks until ctx has ended and all work has stopped. It returns nil.
func (m *Mirrors) Run(ctx context.Context) error { return rounds.Until(ctx, m.Begin) }

// Refused records that the API server refuses the status of a mirror. That happens if the mirror shows the end of an earlier life
// of its pod (the manifest was removed and came back unchanged), because the API never lets a pod leave a terminal phase. The pod
// then gets another mirror.
func (m *Mirrors) Refused(mirror types.UID) {
	m.mu.Lock()
	m.refused[mirror] = true
	m.mu.Unlock()
	m.Look("")
}

// remake reports whether a mirror that is otherwise correct must be replaced now. If it must be replaced later, remake returns after
// which time.
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

// Look makes the package check a full name, because something about it may have changed; "" means all names.
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

// spawn starts work unless it runs already. The lock is held.
func (m *Mirrors) spawn() {
	if m.working || m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	m.working = true
	m.wg.Add(1)
	go m.work()
}

// work handles the names that are due one after another, which suffices because static pods are few.
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

		statics, mirror := m.cfg.Pods.Static(fullName)
		static := m.counts(fullName, statics, mirror)
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
		if len(statics) > 1 && again <= 0 {
			again = waitAgain // nothing reports that the one has ended and the other one runs
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

// counts returns the static pod that the mirror of a name has to show; nil: there is none. If several sources have a pod of this name, only one of them
// runs, and the others wait for its end. If none runs, that is the pod that the present mirror shows, or else the first.
func (m *Mirrors) counts(fullName string, statics []*v1.Pod, mirror *v1.Pod) *v1.Pod {
	var shown *v1.Pod
	for _, s := range statics {
		if len(statics) > 1 && !m.cfg.Ends(fullName, s.UID) && m.cfg.Ends(fullName, "") {
			return s
		}
		if mirror != nil && pod.Mirrors(mirror, s) {
			shown = s
		}
	}
	if shown == nil && len(statics) > 0 {
		return statics[0]
	}
	return shown
}

// after schedules the next check of a name if the name waits for something or if reconcile has failed. The lock is held.
func (m *Mirrors) after(fullName string, n *name, again time.Duration, err error) {
	switch {
	case m.ctx.Err() != nil:
		return
	case err != nil:
		again = min(retryInitial<<min(n.failures, 10), retryMax)
		n.failures++
		if n.said != err.Error() {
			n.said = err.Error()
			m.cfg.Log.Warn("cannot update mirror pod, will retry", "pod", fullName, "err", err)
		}
	default:
		n.failures, n.said = 0, ""
	}
	if again > 0 {
		n.timer = time.AfterFunc(again, func() { m.Look(fullName) })
	}
}

// reconcile creates or removes the mirror of one name, if necessary. When the watch reports the change, a call of Look causes the
// next check of the name. A watch that was interrupted does not report a mirror that was created and deleted during the
// interruption. So if the watch has not shown a new mirror after a while, reconcile is called again.
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
		return 0, nil // nothing to do until every source has answered
	case static != nil && current(mirror, static):
		now, later := m.remake(fullName, mirror)
		if !now {
			return later, nil
		}
		return 0, m.remove(mirror, "the API server refuses the status of its pod, which was started again")
	case m.cfg.Ends(fullName, uid), m.cfg.Owes(mirror.UID):
		return waitAgain, nil // the mirror still belongs to the pod that is ending
	case static == nil:
		return 0, m.remove(mirror, "its static pod is gone")
	}
	return 0, m.remove(mirror, "it is not the mirror that this node makes of its static pod")
}

// current reports whether a mirror belongs to the manifest of the static pod, and has the owner that a new mirror would have.
func current(mirror, static *v1.Pod) bool {
	owner := metav1.GetControllerOf(mirror)
	return pod.Mirrors(mirror, static) && owner != nil && owner.Kind == "Node" && owner.Name == static.Spec.NodeName
}

// create creates the mirror of a static pod.
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

// taken finds out which pod has the name: a mirror that the watch has not shown yet, or a pod that is not a mirror.
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

// remove deletes a mirror without a grace period, because a mirror has no containers of its own.
func (m *Mirrors) remove(mirror *v1.Pod, why string) error {
	ctx, cancel := context.WithTimeout(m.ctx, timeout)
	defer cancel()
	now := int64(0)
	err := m.cfg.API(mirror.Namespace).Delete(ctx, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(mirror.UID)),
	})
	switch {
	case apierrors.IsNotFound(err): // the watch will report it
	case err != nil:
		return fmt.Errorf("delete mirror pod: %w", err)
	default:
		m.cfg.Log.Info("mirror pod removed", "pod", pod.RefOf(mirror), "why", why)
	}
	return nil
}
