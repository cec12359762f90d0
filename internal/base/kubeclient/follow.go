package kubeclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Followed is the set of objects that Follow keeps up to date. One goroutine calls its methods.
type Followed interface {
	// List reads all objects, and Watch continues from a resource version. Both add their own selectors to opts. If
	// List sets a Limit, Follow calls it again for the next page until there is none.
	List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	// Replace and Apply store what was read. They return true if there is nothing more to follow.
	Replace(items []runtime.Object) (done bool)
	Apply(event watch.EventType, obj runtime.Object) (done bool)
	// Failed is called when a list or watch has failed, before the next try.
	Failed(err error)
}

const (
	// The first wait between tries is short, because a node may read an object only after the API server's authorizer has seen
	// the pod, which is often a few milliseconds after the node has seen it.
	retryMin = 10 * time.Millisecond
	// If a watch lasts less than watchMin, the next watch is delayed.
	watchMin = time.Second
	// The client asks the server to end a watch after a random time between watchTimeout and twice that. The next watch continues without a
	// list.
	watchTimeout = 5 * time.Minute
	// PageSize is the Limit for lists that can be long; maxPages pages have more objects than any cluster has.
	PageSize = 500
	maxPages = 2000
	// listTimeout bounds the time for one page.
	listTimeout = 2 * time.Minute
)

// Follow lists and watches until ctx ends or there is nothing more to follow. After a failure it waits and tries again. The wait
// doubles with each failure, up to longest; a random time of up to half of the wait is added. It costs one goroutine and at most one
// open request.
func Follow(ctx context.Context, f Followed, longest time.Duration) {
	wait := time.Duration(0)
	version := ""
	shared := newKnown()
	for Pause(ctx, wait) {
		done, lived, next, err := followOnce(ctx, f, version, shared)
		if done || ctx.Err() != nil {
			return
		}
		tooOld := version != "" && next == ""
		version = next
		if err != nil {
			f.Failed(err)
		}
		switch {
		case tooOld: // the server answers, so the next list is not delayed
			wait = 0
		case lived < watchMin:
			wait = min(max(2*wait, retryMin), longest)
		case err != nil:
			wait = retryMin
		default:
			wait = 0
		}
	}
}

// followOnce lists, if version is empty, and watches until the watch ends. lived is how long the watch lasted. next is
// the version to continue from; empty: list again.
func followOnce(ctx context.Context, f Followed, version string, shared *known) (done bool, lived time.Duration, next string, err error) {
	if version == "" {
		var items []runtime.Object
		if items, version, err = listAll(ctx, f); err != nil {
			return false, 0, "", err
		}
		for _, item := range items {
			shared.compact(item)
		}
		if f.Replace(items) {
			return true, 0, version, nil
		}
	}
	timeout := int64((watchTimeout + rand.N(watchTimeout)).Seconds())
	w, err := f.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &timeout})
	if err != nil {
		return false, 0, afterError(version, err), err
	}
	defer w.Stop()
	began := time.Now()
	done, next, err = drain(ctx, w, f, version, shared)
	return done, time.Since(began), next, err
}

// listAll reads all pages of a list, and returns the version of the list.
func listAll(ctx context.Context, f Followed) (items []runtime.Object, version string, err error) {
	var opts metav1.ListOptions
	for range maxPages {
		listCtx, cancel := context.WithTimeout(ctx, listTimeout)
		list, err := f.List(listCtx, opts)
		cancel()
		if err != nil {
			return nil, "", err
		}
		page, err := meta.ExtractListWithAlloc(list) // each object by itself: one that is kept does not keep its page
		if err != nil {
			return nil, "", fmt.Errorf("read list: %w", err)
		}
		l, err := meta.ListAccessor(list)
		if err != nil {
			return nil, "", fmt.Errorf("read list: %w", err)
		}
		items = append(items, page...)
		if opts.Continue = l.GetContinue(); opts.Continue == "" {
			return items, l.GetResourceVersion(), nil
		}
	}
	return nil, "", fmt.Errorf("read list: more than %d pages", maxPages)
}

// afterError returns the version to continue from after a watch failed. It is empty (list again) if the version is too
// old, or newer than the server's newest, as after the cluster was restored from a backup.
func afterError(version string, err error) string {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return ""
	}
	return version
}

// drain handles the events of a watch until it ends.
func drain(ctx context.Context, w watch.Interface, f Followed, version string, shared *known) (done bool, next string, err error) {
	for {
		var event watch.Event
		var open bool
		select {
		case <-ctx.Done():
			return true, version, nil
		case event, open = <-w.ResultChan():
		}
		if !open {
			return false, version, nil
		}
		if event.Type == watch.Error {
			err := apierrors.FromObject(event.Object)
			if next := afterError(version, err); next != "" {
				return false, next, err
			}
			return false, "", nil // a resource version that is too old is not a failure
		}
		if m, err := meta.Accessor(event.Object); err == nil {
			version = m.GetResourceVersion()
		}
		if event.Type == watch.Bookmark {
			continue
		}
		shared.compact(event.Object)
		if f.Apply(event.Type, event.Object) {
			return true, version, nil
		}
	}
}

// Pause waits before a request is tried again, for d and a random time of up to half of d, so that clients that were
// refused together do not come back together. It returns false if ctx ended.
func Pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
