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

// Followed is what Follow keeps up to date. Its methods are called from one goroutine.
type Followed interface {
	// List reads all there is; Watch continues from a resource version. Both add their own selectors to opts. A List that sets a
	// Limit is asked again for the next page, until there is none.
	List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	// Replace and Apply take in what was read; they return true when there is nothing more to follow.
	Replace(items []runtime.Object) (done bool)
	Apply(event watch.EventType, obj runtime.Object) (done bool)
	// Failed hears of a list or watch that failed, before it is tried again.
	Failed(err error)
}

const (
	// The first wait between tries is short: a node may read an object only when the API server's authorizer has seen the pod,
	// and that is often some milliseconds after the node has.
	retryMin = 10 * time.Millisecond
	// A watch that ends sooner is not healthy, and the next one waits.
	watchMin = time.Second
	// The server ends a watch after this long, and up to twice of it; then it is begun again, without a list.
	watchTimeout = 5 * time.Minute
	// PageSize is the Limit for lists that can be long; maxPages of them are more than any cluster has.
	PageSize = 500
	maxPages = 2000
	// A page that takes longer does not come.
	listTimeout = 2 * time.Minute
)

// Follow lists and watches until ctx ends or there is nothing more to follow. What fails is tried again, each time after twice
// the wait, up to longest (and by chance half as long again). It costs one goroutine and at most one open request.
func Follow(ctx context.Context, f Followed, longest time.Duration) {
	wait := time.Duration(0)
	version := ""
	for Pause(ctx, wait) {
		done, lived, next, err := followOnce(ctx, f, version)
		if done || ctx.Err() != nil {
			return
		}
		tooOld := version != "" && next == ""
		version = next
		if err != nil {
			f.Failed(err)
		}
		switch {
		case tooOld: // the server answers, so that the list need not wait
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

// followOnce lists, when version is empty, and watches until the watch ends. Lived is how long the watch did; next is the version
// to go on from; empty: list again.
func followOnce(ctx context.Context, f Followed, version string) (done bool, lived time.Duration, next string, err error) {
	if version == "" {
		var items []runtime.Object
		if items, version, err = listAll(ctx, f); err != nil {
			return false, 0, "", err
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
	done, next, err = drain(ctx, w, f, version)
	return done, time.Since(began), next, err
}

// listAll reads all pages of a list, and the version that they are of.
func listAll(ctx context.Context, f Followed) (items []runtime.Object, version string, err error) {
	var opts metav1.ListOptions
	for range maxPages {
		listCtx, cancel := context.WithTimeout(ctx, listTimeout)
		list, err := f.List(listCtx, opts)
		cancel()
		if err != nil {
			return nil, "", err
		}
		page, err := meta.ExtractList(list)
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

// afterError is where to go on after a watch could not be had: from the start when the version is too old, or newer than all that
// the server has, as it is after the cluster was restored from a backup.
func afterError(version string, err error) string {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return ""
	}
	return version
}

// drain takes in what a watch says until it ends.
func drain(ctx context.Context, w watch.Interface, f Followed, version string) (done bool, next string, err error) {
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
			return false, "", nil // an old version is not a failure
		}
		if m, err := meta.Accessor(event.Object); err == nil {
			version = m.GetResourceVersion()
		}
		if event.Type != watch.Bookmark && f.Apply(event.Type, event.Object) {
			return true, version, nil
		}
	}
}

// Pause waits before a request is tried again, for d and by chance up to half as long again, so that those who were refused
// together do not come back together; false when ctx ended first.
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
