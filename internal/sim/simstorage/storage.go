package simstorage

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// Config configures a Storage.
type Config struct {
	API *kubeclient.Client
	// Drivers are the names of the drivers.
	Drivers []string
	Log     *slog.Logger
}

const (
	watchAgain = 10 * time.Second // the longest wait before a watch is tried again
	tryAgain   = time.Second      // the wait before the work on an object that failed is tried again
	askWithin  = 30 * time.Second // the bound of the work on one object
	atOnce     = 16               // how many objects are worked on at the same time
)

// Storage does the work of the controllers of drivers. New makes it, and Run may be called once.
type Storage struct {
	cfg   Config
	queue queue
	sites sites

	mu          sync.Mutex
	claims      map[string]*v1.PersistentVolumeClaim // by namespace/name
	volumes     map[string]*v1.PersistentVolume      // those of the drivers
	attachments map[string]*storagev1.VolumeAttachment
}

// New returns a Storage. It does no IO.
func New(cfg Config) *Storage {
	s := &Storage{
		cfg: cfg, claims: map[string]*v1.PersistentVolumeClaim{}, volumes: map[string]*v1.PersistentVolume{}, attachments: map[string]*storagev1.VolumeAttachment{},
	}
	s.queue.work = s.work
	return s
}

// key names an object.
type key struct{ kind, name string }

// These are the kinds of a key.
const (
	kindClaim      = "claim"
	kindVolume     = "volume"
	kindAttachment = "attachment"
)

// Run works until ctx ends.
func (s *Storage) Run(ctx context.Context) {
	s.queue.open(ctx)
	var group sync.WaitGroup
	for _, f := range []followed{
		{kind: kindClaim, list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return s.cfg.API.PersistentVolumeClaims("").List(ctx, o)
		}, watch: s.cfg.API.PersistentVolumeClaims("").Watch},
		{kind: kindVolume, list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return s.cfg.API.PersistentVolumes().List(ctx, o)
		}, watch: s.cfg.API.PersistentVolumes().Watch},
		{kind: kindAttachment, list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return s.cfg.API.VolumeAttachments().List(ctx, o)
		}, watch: s.cfg.API.VolumeAttachments().Watch},
	} {
		f.s = s
		group.Go(func() { kubeclient.Follow(ctx, f, watchAgain) })
	}
	group.Wait()
	s.queue.wait()
}

// has reports whether a driver is one of the configured ones.
func (s *Storage) has(driver string) bool { return slices.Contains(s.cfg.Drivers, driver) }

// work does what an object needs now. A failure is tried again.
func (s *Storage) work(ctx context.Context, k key) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	s.mu.Lock()
	claim, volume, attachment := s.claims[k.name], s.volumes[k.name], s.attachments[k.name]
	s.mu.Unlock()
	var err error
	switch {
	case k.kind == kindClaim && claim != nil:
		if err = s.provision(ctx, claim); err == nil {
			err = s.grow(ctx, claim)
		}
	case k.kind == kindVolume && volume != nil:
		err = s.remove(ctx, volume)
	case k.kind == kindAttachment && attachment != nil:
		err = s.attach(ctx, attachment)
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("the storage of a simulated driver: trying again", "kind", k.kind, "name", k.name, "err", err)
	}
	if err != nil {
		s.queue.addLater(k, tryAgain)
	}
}

// followed follows the objects of one kind.
type followed struct {
	s     *Storage
	kind  string
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

var _ kubeclient.Followed = followed{}

// List reads one page of the objects.
func (f followed) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.Limit = kubeclient.PageSize
	return f.list(ctx, opts)
}

// Watch watches the objects.
func (f followed) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return f.watch(ctx, opts)
}

// Replace stores all objects.
func (f followed) Replace(items []runtime.Object) bool {
	f.s.mu.Lock()
	switch f.kind {
	case kindClaim:
		clear(f.s.claims)
	case kindVolume:
		clear(f.s.volumes)
	case kindAttachment:
		clear(f.s.attachments)
	}
	f.s.mu.Unlock()
	for _, item := range items {
		f.Apply(watch.Added, item)
	}
	return false
}

// Apply stores one change.
func (f followed) Apply(event watch.EventType, obj runtime.Object) bool {
	gone := event == watch.Deleted
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch o := obj.(type) {
	case *v1.PersistentVolumeClaim:
		o.ManagedFields = nil
		store(s, s.claims, kindClaim, o.Namespace+"/"+o.Name, o, gone)
	case *v1.PersistentVolume:
		if src := o.Spec.CSI; src == nil || !s.has(src.Driver) {
			return false
		}
		o.ManagedFields = nil
		store(s, s.volumes, kindVolume, o.Name, o, gone)
		if ref := o.Spec.ClaimRef; ref != nil && !gone { // its claim may be waiting to grow
			s.queue.add(key{kindClaim, ref.Namespace + "/" + ref.Name})
		}
	case *storagev1.VolumeAttachment:
		if !s.has(o.Spec.Attacher) {
			return false
		}
		o.ManagedFields = nil
		store(s, s.attachments, kindAttachment, o.Name, o, gone)
		if name := o.Spec.Source.PersistentVolumeName; name != nil && gone { // its volume may be waiting to be deleted
			s.queue.add(key{kindVolume, *name})
		}
	}
	return false
}

// store stores an object, or that it is gone. The caller holds the lock.
func store[T any](s *Storage, all map[string]T, kind, name string, o T, gone bool) {
	if gone {
		delete(all, name)
		return
	}
	all[name] = o
	s.queue.add(key{kind, name})
}

// Failed logs that the objects cannot be watched.
func (f followed) Failed(err error) {
	f.s.cfg.Log.Warn(fmt.Sprintf("the %ss of simulated drivers cannot be watched; trying again", f.kind), "err", err)
}
