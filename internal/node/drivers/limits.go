package drivers

import (
	"context"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/core/csispec"
)

// Objects reads the CSIDriver objects of the cluster. One goroutine makes the calls.
type Objects interface {
	List(ctx context.Context, opts metav1.ListOptions) (*storagev1.CSIDriverList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// minPeriod is the shortest time between two calls that ask a driver for its limit. "The minimum allowed value for this field is 10 seconds."
// (CSIDriver, spec.nodeAllocatableUpdatePeriodSeconds)
const minPeriod = 10 * time.Second

// watchAgain is the longest wait between two tries to watch the CSIDriver objects.
const watchAgain = 30 * time.Second

// limits says when each driver is asked again how many volumes the node can have. Only drivers whose CSIDriver object sets
// nodeAllocatableUpdatePeriodSeconds are asked again. limits is also the Followed of the CSIDriver objects.
type limits struct {
	objects Objects
	// These are those of Config.
	attach, republish func(driver string, required bool)
	changed           chan struct{} // receives a value when the result of take may have changed

	mu      sync.Mutex
	periods map[string]time.Duration // by driver
	asks    map[string]*asks         // by driver, while it is registered
}

// asks says when a registered driver is asked for its limit.
type asks struct {
	last    time.Time // when the last call ended; at first, when the driver registered
	running bool
	now     bool // the limit is probably wrong, so the driver is asked as soon as minPeriod has passed
}

var _ kubeclient.Followed = (*limits)(nil)

func newLimits(cfg *Config) *limits {
	l := &limits{
		objects: cfg.Objects, attach: cfg.Attach, republish: cfg.Republish, changed: make(chan struct{}, 1), periods: map[string]time.Duration{}, asks: map[string]*asks{},
	}
	for _, f := range []*func(string, bool){&l.attach, &l.republish} {
		if *f == nil {
			*f = func(string, bool) {}
		}
	}
	return l
}

// tell makes Run call take again.
func (l *limits) tell() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// registered notes that a driver has registered, which has just reported its limit.
func (l *limits) registered(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asks[name] = &asks{last: time.Now()}
	l.tell()
}

// gone notes that a driver is not registered any more.
func (l *limits) gone(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asks, name)
	l.tell()
}

// exceeded notes that a volume of a driver could not be attached, because the node has too many. followed reports whether the limit of the
// driver in the CSINode is kept up to date.
func (l *limits) exceeded(name string) (followed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.asks[name]
	if a == nil || l.periods[name] <= 0 {
		return false
	}
	if !a.now {
		a.now = true
		l.tell()
	}
	return true
}

// take returns the drivers to ask now. wait is the time until the next driver has to be asked; it is negative if there is none. follow
// reports whether any driver is registered, so that the CSIDriver objects matter.
func (l *limits) take(now time.Time) (ask []string, wait time.Duration, follow bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wait = -1
	for name, a := range l.asks {
		period := l.periods[name]
		if period <= 0 || a.running {
			continue
		}
		if a.now {
			period = minPeriod
		}
		left := a.last.Add(period).Sub(now)
		if left <= 0 {
			a.running, a.now = true, false
			ask = append(ask, name)
		} else if wait < 0 || left < wait {
			wait = left
		}
	}
	return ask, wait, len(l.asks) > 0
}

// asked notes that the call to a driver has ended.
func (l *limits) asked(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.asks[name]; a != nil {
		a.last, a.running = time.Now(), false
	}
	l.tell()
}

// List lists the CSIDriver objects.
func (l *limits) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.Limit = kubeclient.PageSize
	return l.objects.List(ctx, opts)
}

// Watch watches the CSIDriver objects.
func (l *limits) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return l.objects.Watch(ctx, opts)
}

// Replace stores the periods of all CSIDriver objects.
func (l *limits) Replace(items []runtime.Object) (done bool) {
	l.mu.Lock()
	clear(l.periods)
	l.mu.Unlock()
	for _, item := range items {
		l.Apply(watch.Added, item)
	}
	l.tell()
	return false
}

// Apply stores the period of a CSIDriver object, and tells whether its driver needs volumes to be attached, and to be published again and again.
func (l *limits) Apply(event watch.EventType, obj runtime.Object) (done bool) {
	o, ok := obj.(*storagev1.CSIDriver)
	if !ok {
		return false
	}
	l.attach(o.Name, event == watch.Deleted || csispec.NeedsAttach(o))
	l.republish(o.Name, event != watch.Deleted && o.Spec.RequiresRepublish != nil && *o.Spec.RequiresRepublish)
	l.mu.Lock()
	defer l.mu.Unlock()
	if seconds := o.Spec.NodeAllocatableUpdatePeriodSeconds; event != watch.Deleted && seconds != nil && *seconds > 0 {
		l.periods[o.Name] = max(minPeriod, time.Duration(min(*seconds, maxSeconds))*time.Second)
	} else {
		delete(l.periods, o.Name)
	}
	l.tell()
	return false
}

// maxSeconds is the longest period that is kept, so that a time.Duration can hold it. It is a year.
const maxSeconds = 365 * 24 * 60 * 60

// Failed does nothing: the periods stay as they are until the API server answers again.
func (l *limits) Failed(error) {}

// Exceeded tells that a volume of a driver could not be attached to this node, because the node has too many volumes of the driver. If the
// CSIDriver object sets nodeAllocatableUpdatePeriodSeconds, Run asks the driver for its limit before the period has passed. "When set, both
// periodic updates and updates triggered by capacity-related failures are enabled." giveUp reports whether this is so: then a pod that cannot
// have its volume fails, since its controller's next pod will be bound to a node that can have the volume. Exceeded does not block.
func (d *Drivers) Exceeded(driver string) (giveUp bool) { return d.limits.exceeded(driver) }

// Run keeps the limits in the CSINode up to date, until ctx ends: it asks drivers again how many volumes the node can have, as often as their
// CSIDriver objects say (spec.nodeAllocatableUpdatePeriodSeconds). It watches these objects while any driver is registered. Without a Cluster
// or without Objects it does nothing.
func (d *Drivers) Run(ctx context.Context) error {
	if d.cfg.Cluster == nil || d.cfg.Objects == nil {
		<-ctx.Done()
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	var unfollow context.CancelFunc // ends the watch; nil: there is none
	defer func() {
		if unfollow != nil {
			unfollow()
		}
	}()
	timer := time.NewTimer(minPeriod)
	defer timer.Stop()
	for {
		ask, wait, follow := d.limits.take(time.Now())
		switch {
		case follow && unfollow == nil:
			unfollow = d.follow(ctx, &wg)
		case !follow && unfollow != nil:
			unfollow()
			unfollow = nil
		}
		for _, name := range ask {
			wg.Go(func() {
				defer d.limits.asked(name)
				d.refresh(ctx, name)
			})
		}
		timer.Stop()
		var at <-chan time.Time
		if wait >= 0 {
			timer.Reset(wait)
			at = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.limits.changed:
		case <-at:
		}
	}
}

// follow begins to watch the CSIDriver objects in a goroutine of wg, until ctx ends or end is called.
func (d *Drivers) follow(ctx context.Context, wg *sync.WaitGroup) (end context.CancelFunc) {
	ctx, end = context.WithCancel(ctx)
	wg.Go(func() { kubeclient.Follow(ctx, d.limits, watchAgain) })
	return end
}

// refresh asks a driver for its limit and, if it has changed, writes it to the cluster. It logs the first of several failures in a row.
func (d *Drivers) refresh(ctx context.Context, name string) {
	d.mu.Lock()
	r := d.byName[name]
	d.mu.Unlock()
	if r == nil {
		return
	}
	err := d.updateLimit(ctx, r)
	d.mu.Lock()
	first := err != nil && !r.failing
	r.failing = err != nil
	d.mu.Unlock()
	if first && ctx.Err() == nil {
		d.cfg.Log.Warn("it is not known how many volumes of a CSI driver the node can have now; trying again", "driver", name, "err", err)
	}
}

func (d *Drivers) updateLimit(ctx context.Context, r *registered) error {
	said, err := r.driver.Info(ctx)
	if err != nil {
		return err
	}
	done, err := d.turn(ctx)
	if err != nil {
		return err
	}
	defer done() // no other goroutine reads or writes r.info until then
	if r.info.MaxVolumes == said.MaxVolumes || d.Driver(r.info.Name) != r.driver {
		return nil
	}
	info := r.info
	info.MaxVolumes = said.MaxVolumes
	if err := d.cfg.Cluster.Put(ctx, info); err != nil {
		return err
	}
	r.info = info
	d.cfg.Log.Info("the node can have another number of volumes of a CSI driver now", "driver", info.Name, "volumes", info.MaxVolumes)
	return nil
}
