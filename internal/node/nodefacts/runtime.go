package nodefacts

import (
	"context"
	"log/slog"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// How often the runtime is asked for its conditions: usually, and while it is not ready or does not answer. A CNI
// configuration that arrives is seen within the second.
const (
	askReady    = 5 * time.Second
	askNotReady = 500 * time.Millisecond
	askTimeout  = 10 * time.Second
)

// How long a list of images is good enough, and when it is asked for again after an answer that did not come.
const (
	imagesFor   = 55 * time.Second
	imagesAgain = 15 * time.Second
)

// RuntimeClient is what is asked of the container runtime.
type RuntimeClient interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context) (*runtimeapi.StatusResponse, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	// ImageDir is where it keeps images.
	ImageDir(ctx context.Context) (string, error)
}

// Runtime keeps what the container runtime last said of itself and of its images. All questions are asked in Run, so that
// a runtime that hangs holds up nobody who only wants to know what is known.
type Runtime struct {
	client   RuntimeClient
	onChange func()
	log      *slog.Logger

	mu    sync.Mutex
	facts nodestatus.Runtime
	store Store

	storeDue time.Time // only Run and Ask touch it
	onImages func(began time.Time, images []*runtimeapi.Image)
}

// Store is what the runtime keeps images in.
type Store struct {
	Images []*runtimeapi.Image
	Known  bool   // the images have been listed once
	Dir    string // "": the runtime has not said
}

// NewRuntime returns a Runtime; onChange is called when readiness, of the runtime or its network, has changed.
func NewRuntime(client RuntimeClient, onChange func(), log *slog.Logger) *Runtime {
	return &Runtime{client: client, onChange: onChange, log: log}
}

// OnImages has f called, in Run and Ask, with each list of images and the time at which it was asked for. f must not block. It
// is called before Run and Ask.
func (r *Runtime) OnImages(f func(began time.Time, images []*runtimeapi.Image)) { r.onImages = f }

// Facts is what is known now.
func (r *Runtime) Facts() nodestatus.Runtime {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.facts
}

// Store is what is known now.
func (r *Runtime) Store() Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store
}

// Ask asks once, before Run, so that the first status of a node that restarts already knows the runtime.
func (r *Runtime) Ask(ctx context.Context) {
	r.ask(ctx)
	r.askStore(ctx)
}

// Run asks until ctx ends.
func (r *Runtime) Run(ctx context.Context) error {
	for {
		ready := r.ask(ctx)
		r.askStore(ctx)
		wait := askReady
		if !ready {
			wait = askNotReady
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// ask asks once and reports whether everything is ready.
func (r *Runtime) ask(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	old := r.Facts()
	next := old
	st, err := r.client.Status(ctx)
	if err == nil && (next.Version == "" || old.Err != "") { // a runtime that came back may be another version
		var v *runtimeapi.VersionResponse
		if v, err = r.client.Version(ctx); err == nil {
			next.Name, next.Version = v.GetRuntimeName(), v.GetRuntimeVersion()
		}
	}
	next.Err = ""
	if err != nil {
		next.Err = err.Error()
	} else {
		next.Status = st
		if nodestatus.RuntimeReady(st) {
			next.LastReady = time.Now()
		}
	}
	r.mu.Lock()
	r.facts = next
	r.mu.Unlock()
	ready := r.tell(old, next)
	return ready
}

// askStore asks what the runtime holds, now and then, while it answers.
func (r *Runtime) askStore(ctx context.Context) {
	now := time.Now()
	if f := r.Facts(); f.Err != "" || f.Status == nil || now.Before(r.storeDue) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r.storeDue = now.Add(imagesFor)
	images, err := r.client.ListImages(ctx)
	if err != nil {
		r.storeDue = now.Add(imagesAgain)
		if ctx.Err() != context.Canceled {
			r.log.Warn("images not listed; the node keeps the list it had", "err", err)
		}
		return
	}
	if r.onImages != nil {
		r.onImages(now, images)
	}
	dir, err := r.client.ImageDir(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store.Images, r.store.Known = images, true
	if err == nil {
		r.store.Dir = dir
	}
}

// tell logs and passes on a change, and reports whether everything is ready.
func (r *Runtime) tell(old, next nodestatus.Runtime) bool {
	type view struct {
		answers, ready, network bool
		message                 string
	}
	of := func(f nodestatus.Runtime) (v view) {
		v.answers = f.Err == "" && f.Status != nil
		v.ready = nodestatus.RuntimeReady(f.Status)
		v.network, v.message = nodestatus.NetworkReady(f.Status)
		return v
	}
	was, is := of(old), of(next)
	if was != is {
		switch {
		case !is.answers:
			r.log.Warn("the container runtime does not answer", "err", next.Err)
		case !is.ready || !is.network:
			r.log.Warn("the container runtime is not ready", "runtime", is.ready, "network", is.network, "message", is.message)
		default:
			r.log.Info("the container runtime is ready", "name", next.Name, "version", next.Version)
		}
		r.onChange()
	}
	return is.answers && is.ready && is.network
}
