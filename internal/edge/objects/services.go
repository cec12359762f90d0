package objects

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// serviceStore watches all Services of the cluster, because a pod's environment variables name the services of the pod's namespace and
// the service of the API server.
type serviceStore struct {
	api     Watcher[*v1.ServiceList]
	log     *slog.Logger
	changed func()

	mu     sync.Mutex
	synced bool
	// recalled are the namespaces whose services are known from an earlier agent's record. It is nil once synced is true.
	recalled []string
	byName   map[string]map[string]*v1.Service // services by namespace and name
	errs     int
}

func newServiceStore(cfg Config) *serviceStore {
	return &serviceStore{api: cfg.API.Services, log: cfg.Log, changed: cfg.Changed, byName: map[string]map[string]*v1.Service{}}
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
	in := s.byName[namespace]
	all := make([]*v1.Service, 0, len(in))
	for _, svc := range in {
		all = append(all, svc)
	}
	return all, s.synced || slices.Contains(s.recalled, namespace)
}

func (s *serviceStore) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.Limit = kubeclient.PageSize // the list covers the whole cluster
	return s.api.List(ctx, opts)
}

func (s *serviceStore) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return s.api.Watch(ctx, opts)
}

func (s *serviceStore) Replace(items []runtime.Object) (done bool) {
	defer s.changed()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.byName)
	for _, item := range items {
		if svc, ok := item.(*v1.Service); ok {
			s.put(svc)
		}
	}
	s.synced, s.recalled, s.errs = true, nil, 0
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
	s.errs = 0
	if event == watch.Deleted {
		s.remove(svc)
		return false
	}
	s.put(svc)
	return false
}

func (s *serviceStore) put(svc *v1.Service) {
	slim := slimService(svc)
	if slim == nil {
		s.remove(svc)
		return
	}
	in := s.byName[svc.Namespace]
	if in == nil {
		in = map[string]*v1.Service{}
		s.byName[svc.Namespace] = in
	}
	in[svc.Name] = slim
}

func (s *serviceStore) remove(svc *v1.Service) {
	delete(s.byName[svc.Namespace], svc.Name)
	if len(s.byName[svc.Namespace]) == 0 {
		delete(s.byName, svc.Namespace)
	}
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
