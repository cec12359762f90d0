package nodefacts

import (
	"context"
	"log/slog"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// The agent reads the runtime's conditions every askReady, or every askNotReady while the runtime is not ready or does not answer. So
// the agent notices a new CNI configuration within a second.
const (
	askReady    = 5 * time.Second
	askNotReady = 500 * time.Millisecond
	askTimeout  = 10 * time.Second
)

// A list of images stays valid for imagesFor. After a failure, the agent asks for the list again after imagesAgain.
const (
	imagesFor   = 55 * time.Second
	imagesAgain = 15 * time.Second
)

// RuntimeClient has the calls to the container runtime.
type RuntimeClient interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context) (*runtimeapi.StatusResponse, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	// ImageDir returns the directory where the runtime keeps images.
	ImageDir(ctx context.Context) (string, error)
}

// Runtime keeps the last known status of the container runtime and its images. Only Run and Ask call the runtime, so a runtime
// that hangs delays no reader.
type Runtime struct {
	client   RuntimeClient
	onChange func()
	log      *slog.Logger

	mu    sync.Mutex
	facts nodestatus.Runtime
	store Store

	storeDue time.Time // used by Run and Ask only
	onImages func(began time.Time, images []*runtimeapi.Image)
}

// Store describes the image store of the runtime.
type Store struct {
	Images []*runtimeapi.Image
	Known  bool   // the images have been listed once
	Dir    string // "": not known yet
}

// NewRuntime returns a Runtime. onChange is called when the readiness of the runtime or of its network changes, or the reason why the
// network is not ready.
func NewRuntime(client RuntimeClient, onChange func(), log *slog.Logger) *Runtime {
	return &Runtime{client: client, onChange: onChange, log: log}
}

// OnImages makes Run and Ask call f with each list of images and the time when the request began. f must not block. Call
// OnImages before Run and Ask.
func (r *Runtime) OnImages(f func(began time.Time, images []*runtimeapi.Image)) { r.onImages = f }

// Facts returns the last known status. It does no IO.
func (r *Runtime) Facts() nodestatus.Runtime {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.facts
}

// Store returns the last known image store. It does no IO.
func (r *Runtime) Store() Store {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.store
}

// Ask calls the runtime once. It is called before Run, so that the first status after a restart already has the runtime's
// facts.
func (r *Runtime) Ask(ctx context.Context) {
	r.ask(ctx)
	r.askStore(ctx)
}

// Begin reads the runtime's status periodically in the background until ctx ends. It returns at once; join waits until the last call
// has ended.
func (r *Runtime) Begin(ctx context.Context) (join func()) {
	return rounds.New(func(ctx context.Context) time.Duration {
		ready := r.ask(ctx)
		r.askStore(ctx)
		if !ready {
			return askNotReady
		}
		return askReady
	}).Begin(ctx)
}

// Run calls Begin, and returns when ctx and the last call to the runtime have ended. Unlike Begin, it blocks.
func (r *Runtime) Run(ctx context.Context) error { return rounds.Until(ctx, r.Begin) }

// ask reads the runtime's status once and reports whether everything is ready.
func (r *Runtime) ask(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	old := r.Facts()
	next := old
	st, err := r.client.Status(ctx)
	if err == nil && (next.Version == "" || old.Err != "") { // a runtime that was restarted may have another version
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
	return r.changed(old, next)
}

// askStore lists the images of the runtime when the last list is too old, provided that the runtime answers.
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
			r.log.Warn("images not listed; the node keeps the last list", "err", err)
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

// changed logs a change and calls onChange. It reports whether everything is ready.
func (r *Runtime) changed(old, next nodestatus.Runtime) bool {
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
