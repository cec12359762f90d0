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
	// List reads all there is; Watch continues from a resource version. Both add their own selectors to opts.
	List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	// Replace and Apply take in what was read; they return true when there is nothing more to follow.
	Replace(items []runtime.Object) (done bool)
	Apply(event watch.EventType, obj runtime.Object) (done bool)
	// Failed hears of a list or watch that failed, before it is tried again.
	Failed(err error)
}

// The waits between tries. The first are short: a node may read an object only when the API server's authorizer has
// seen the pod, and that is often some milliseconds after the node has.
const (
	retryMin = 10 * time.Millisecond
	retryMax = 30 * time.Second
	// A watch that the server ends sooner is not healthy, and the next one waits.
	watchMin = time.Second
	// The server ends a watch after this long, and up to twice of it; then it is begun again, without a list.
	watchTimeout = 5 * time.Minute
)

// Follow lists and watches until ctx ends or there is nothing more to follow. It costs one goroutine and at most one
// open request.
func Follow(ctx context.Context, f Followed) {
	wait := time.Duration(0)
	version := ""
	for ctx.Err() == nil {
		if !Pause(ctx, wait) {
			return
		}
		began := time.Now()
		done, next, err := followOnce(ctx, f, version)
		if done || ctx.Err() != nil {
			return
		}
		version = next
		if err != nil {
			f.Failed(err)
		}
		switch {
		case time.Since(began) >= watchMin:
			wait = 0
			if err != nil {
				wait = retryMin
			}
		default:
			wait = min(max(2*wait, retryMin), retryMax)
		}
	}
}

// followOnce lists, when version is empty, and watches until the watch ends. Next is the version to go on from;
// empty: list again.
func followOnce(ctx context.Context, f Followed, version string) (done bool, next string, err error) {
	if version == "" {
		list, err := f.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return false, "", fmt.Errorf("read list: %w", err)
		}
		l, err := meta.ListAccessor(list)
		if err != nil {
			return false, "", fmt.Errorf("read list: %w", err)
		}
		version = l.GetResourceVersion()
		if f.Replace(items) {
			return true, version, nil
		}
	}
	timeout := int64((watchTimeout + rand.N(watchTimeout)).Seconds())
	w, err := f.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &timeout})
	if err != nil {
		return false, afterError(version, err), err
	}
	defer w.Stop()
	return drain(ctx, w, f, version)
}

// afterError is where to go on after a watch could not be had: from the start when the version is too old.
func afterError(version string, err error) string {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
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
