package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

const (
	// retryAfter is the time between two attempts at a request.
	retryAfter = 10 * time.Second
	// maxAttempts bounds the attempts at a request whose Node does not fit, which is five minutes. Errors of the API server do not count.
	maxAttempts = 30
	// longestPause is the longest time between two attempts to list or watch.
	longestPause = 30 * time.Second
)

// key names a request. A request that is made again with the same name has another UID.
type key struct {
	name string
	uid  types.UID
}

// entry is what the loop remembers of an undecided request.
type entry struct {
	due      time.Time // of the next attempt
	attempts int
	done     bool   // no more attempts; the entry stays until the request is decided or gone, so that the log says why only once
	said     string // the last line about the request
}

// loop makes attempts at all requests until its context ends. One goroutine follows the requests and remembers which wait; another one
// makes the attempts.
type loop struct {
	*approver
	log *slog.Logger
	// wake has a value when there may be a new entry.
	wake chan struct{}

	mu      sync.Mutex
	entries map[key]*entry
}

var _ kubeclient.Followed = (*loop)(nil)

func newLoop(a *approver, log *slog.Logger) *loop {
	return &loop{approver: a, log: log, wake: make(chan struct{}, 1), entries: map[key]*entry{}}
}

// run returns when ctx has ended.
func (l *loop) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { kubeclient.Follow(ctx, l, longestPause) })
	for ctx.Err() == nil {
		k, wait, ok := l.next(time.Now())
		if ok {
			l.turn(ctx, k)
			continue
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-time.After(wait):
		}
	}
}

// next returns the request whose attempt is due for the longest time. If none is due, wait is the time until one may be.
func (l *loop) next(now time.Time) (k key, wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := now.Add(time.Hour)
	for at, e := range l.entries {
		if !e.done && e.due.Before(first) {
			k, first = at, e.due
		}
	}
	wait = first.Sub(now)
	return k, wait, wait <= 0
}

// turn reads a request, makes an attempt at it, and notes what came of it.
func (l *loop) turn(ctx context.Context, k key) {
	csr, err := l.read(ctx, k)
	got, why := settled, ""
	if err == nil && csr != nil {
		got, why, err = l.attempt(ctx, csr)
	}
	if ctx.Err() != nil {
		return
	}
	if message, args := l.note(k, got, why, err); message != "" {
		l.log.Info(message, append([]any{"csr", k.name}, args...)...)
	}
}

// read returns a request as it is now, or nil if it is gone.
func (l *loop) read(ctx context.Context, k key) (*certv1.CertificateSigningRequest, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	csr, err := l.csrs.Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return csr, err
}

// note notes the outcome of an attempt. It returns what to log, or "" if that has been logged.
func (l *loop) note(k key, got outcome, why string, err error) (message string, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[k]
	if e == nil { // decided or gone meanwhile
		e = &entry{}
	}
	switch {
	case err != nil:
		e.due = time.Now().Add(retryAfter)
		why, message, args = err.Error(), "Cannot decide, trying again", []any{"err", err}
	case got == settled:
		e.done = true
	case got == approved:
		e.done = true
		message, args = "Approved", []any{"why", why}
	case got == refused:
		e.done = true
		message, args = "Left undecided", []any{"why", why}
	case e.attempts+1 >= maxAttempts:
		e.done = true
		message, args = "Left undecided, no more attempts", []any{"why", why, "do", "kubectl certificate approve " + k.name}
	default:
		e.attempts++
		e.due = time.Now().Add(retryAfter)
		message, args = "Not approved yet", []any{"why", why, "again", retryAfter}
	}
	if message+why == e.said {
		return "", nil
	}
	e.said = message + why
	return message, args
}

// List, Watch, Replace, Apply and Failed are for kubeclient.Follow.
func (l *loop) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.FieldSelector, opts.Limit = toServing, kubeclient.PageSize
	return l.csrs.List(ctx, opts)
}

func (l *loop) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.FieldSelector = toServing
	return l.csrs.Watch(ctx, opts)
}

// Replace notes which requests there are. It forgets all others.
func (l *loop) Replace(items []runtime.Object) (done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.entries
	l.entries = map[key]*entry{}
	for _, item := range items {
		if csr, ok := item.(*certv1.CertificateSigningRequest); ok {
			l.add(csr, before[keyOf(csr)])
		}
	}
	return false
}

// Apply notes a change of one request.
func (l *loop) Apply(event watch.EventType, obj runtime.Object) (done bool) {
	csr, ok := obj.(*certv1.CertificateSigningRequest)
	if !ok {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.entries[keyOf(csr)]
	delete(l.entries, keyOf(csr))
	if event != watch.Deleted {
		l.add(csr, before)
	}
	return false
}

// add remembers a request if it is undecided, with its entry of before or with a new one. The caller holds the lock.
func (l *loop) add(csr *certv1.CertificateSigningRequest, e *entry) {
	if decided(csr) {
		return
	}
	if e == nil {
		e = &entry{due: time.Now()}
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	l.entries[keyOf(csr)] = e
}

// Failed logs that the requests cannot be listed or watched. Follow tries again.
func (l *loop) Failed(err error) {
	l.log.Error("Cannot follow the requests, trying again", "err", err)
}

func keyOf(csr *certv1.CertificateSigningRequest) key { return key{csr.Name, csr.UID} }
