package objects

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// Services are all services of a cluster, with only the fields that the environment variables of pods contain. A Services value never
// changes, so that the agents of a process can share it. The zero value has no services.
type Services struct {
	in map[string][]*v1.Service // the services by namespace, sorted by name
}

// NewServices makes Services from a list of services. It ignores objects of other kinds.
func NewServices(items []runtime.Object) *Services {
	s := &Services{in: map[string][]*v1.Service{}}
	for _, item := range items {
		if svc, ok := item.(*v1.Service); ok {
			if slim := slimService(svc); slim != nil {
				s.in[slim.Namespace] = append(s.in[slim.Namespace], slim)
			}
		}
	}
	for namespace, all := range s.in {
		slices.SortFunc(all, func(a, b *v1.Service) int { return strings.Compare(a.Name, b.Name) })
		s.in[namespace] = slices.Clip(all)
	}
	return s
}

// After returns the services after a change of one of them. The result is s if the change makes no difference to any pod.
func (s *Services) After(event watch.EventType, svc *v1.Service) *Services {
	slim := slimService(svc)
	if event == watch.Deleted {
		slim = nil
	}
	was := s.in[svc.Namespace]
	at, found := slices.BinarySearchFunc(was, svc.Name, func(have *v1.Service, name string) int { return strings.Compare(have.Name, name) })
	if found == (slim != nil) && (!found || equality.Semantic.DeepEqual(was[at], slim)) {
		return s
	}
	now := slices.Clone(was)
	switch {
	case slim == nil:
		now = slices.Delete(now, at, at+1)
	case found:
		now[at] = slim
	default:
		now = slices.Insert(now, at, slim)
	}
	next := &Services{in: maps.Clone(s.in)}
	if next.in == nil {
		next.in = map[string][]*v1.Service{}
	}
	if next.in[svc.Namespace] = slices.Clip(now); len(now) == 0 {
		delete(next.in, svc.Namespace)
	}
	return next
}

// Objects lists all services.
func (s *Services) Objects() (out []runtime.Object) {
	for _, all := range s.in {
		for _, svc := range all {
			out = append(out, svc)
		}
	}
	return out
}

// serviceStore watches all Services of the cluster, because a pod's environment variables name the services of the pod's namespace and
// the service of the API server. If several agents share the watch (Config.Follow), they can share the services, too (Share).
type serviceStore struct {
	api     Watcher[*v1.ServiceList]
	log     *slog.Logger
	changed func()

	mu     sync.Mutex
	synced bool
	// recalled are the namespaces whose services are known from an earlier agent's record. It is nil once synced is true.
	recalled []string
	all      *Services
	errs     int
}

func newServiceStore(cfg Config) *serviceStore {
	return &serviceStore{api: cfg.API.Services, log: cfg.Log, changed: cfg.Changed, all: &Services{}}
}

// slimService returns a copy of a service with only the fields that a pod's environment variables contain. It returns nil for a
// service without a cluster IP, because such a service has no environment variables.
func slimService(s *v1.Service) *v1.Service {
	if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == v1.ClusterIPNone {
		return nil
	}
	slim := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		Spec:       v1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Type: s.Spec.Type, Ports: make([]v1.ServicePort, len(s.Spec.Ports))},
	}
	for i, p := range s.Spec.Ports {
		slim.Spec.Ports[i] = v1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port}
	}
	return slim
}

func (s *serviceStore) services(namespace string) ([]*v1.Service, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.in[namespace], s.synced || slices.Contains(s.recalled, namespace)
}

func (s *serviceStore) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.Limit = kubeclient.PageSize // the list covers the whole cluster
	return s.api.List(ctx, opts)
}

func (s *serviceStore) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return s.api.Watch(ctx, opts)
}

func (s *serviceStore) Replace(items []runtime.Object) (done bool) {
	return s.Share(NewServices(items))
}

// Share does the same as Replace, with services that other agents may use, too.
func (s *serviceStore) Share(all *Services) (done bool) {
	defer s.changed()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.synced, s.recalled, s.errs = all, true, nil, 0
	return false
}

func (s *serviceStore) Apply(event watch.EventType, obj runtime.Object) (done bool) {
	svc, ok := obj.(*v1.Service)
	if !ok {
		return false
	}
	defer s.changed()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.errs = s.all.After(event, svc), 0
	return false
}

func (s *serviceStore) Failed(err error) {
	s.mu.Lock()
	s.errs++
	n := s.errs
	s.mu.Unlock()
	if n == patience {
		s.log.Warn("cannot read the cluster's services, will try again; pods from the API start after that", "err", err)
	}
}
