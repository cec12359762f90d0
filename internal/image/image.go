package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The field's words for what went wrong, as they stand in a container's waiting state.
const (
	ReasonPull                = "ErrImagePull"
	ReasonNeverPull           = "ErrImageNeverPull"
	ReasonInvalidName         = "InvalidImageName"
	ReasonInspect             = "ImageInspectError"
	ReasonRegistryUnavailable = "RegistryUnavailable"
	ReasonSignature           = "SignatureValidationFailed"
)

// Config is what Images needs.
type Config struct {
	// Client is the runtime's image service. Required.
	Client runtimeapi.ImageServiceClient
	// Timeout bounds each question whether an image is present (runtimeRequestTimeout); a pull takes as long as it takes.
	// Default: 2 minutes.
	Timeout time.Duration
	// Secrets returns a secret that the pod refers to. Required for pods with imagePullSecrets.
	Secrets func(ctx context.Context, p *v1.Pod, name string) (*v1.Secret, error)
	// NodeCredentials are docker config.json files of the node, tried after the pod's secrets; each is read at
	// every pull, and may be absent.
	NodeCredentials []string
	// MaxParallel bounds the pulls at once: 0 does not, 1 is what serializeImagePulls means.
	MaxParallel int
	// Log gets what an administrator has to know. Default: nothing.
	Log *slog.Logger
}

// Request says which image, for whom.
type Request struct {
	Pod *v1.Pod
	// Image is the name as the spec has it, of a container or an image volume.
	Image string
	// Policy is the pull policy; empty means DefaultPolicy(Image).
	Policy v1.PullPolicy
	// RuntimeHandler is the handler of the pod's runtime class.
	RuntimeHandler string
	// Sandbox is the configuration of the pod's sandbox; runtimes may use it to choose where to pull.
	Sandbox *runtimeapi.PodSandboxConfig
	// Pulling, when set, is called once before a pull begins (or is joined), not when the image is present.
	Pulling func()
}

// Result is what is known of an image that is present.
type Result struct {
	// Ref is what a container is created with: the runtime's ID of the image.
	Ref string
	// Image is the runtime's description: ID, repo digests, size, user.
	Image *runtimeapi.Image
	// Pulled is false when the image was already present.
	Pulled bool
	// Took is the time of the pull, Waited the time with the wait for its turn.
	Took, Waited time.Duration
	// Warnings are things that did not prevent the pull: secrets that are missing.
	Warnings []string
}

// Error is why an image is not present.
type Error struct {
	Reason   string
	Message  string
	Canceled bool // the context of Ensure has ended
	Warnings []string
	Err      error
}

// Error is the message with its reason.
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Images ensures images. All methods may be called concurrently.
type Images struct {
	cfg  Config
	slot chan struct{} // nil: no bound

	mu      sync.Mutex
	flights map[string]*flight
}

// flight is one pull that any number of Ensure calls wait for.
type flight struct {
	waiters int
	cancel  context.CancelFunc
	done    chan struct{} // closed when the fields below are set and the pull has ended
	ref     string
	took    time.Duration
	err     error
}

// New returns Images; it starts nothing.
func New(cfg Config) *Images {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Minute
	}
	m := &Images{cfg: cfg, flights: map[string]*flight{}}
	if cfg.MaxParallel > 0 {
		m.slot = make(chan struct{}, cfg.MaxParallel)
	}
	return m
}

// Ensure returns once the image is present or cannot be made so.
func (m *Images) Ensure(ctx context.Context, req Request) (Result, *Error) {
	name, err := WithTag(req.Image)
	if err != nil {
		return Result{}, &Error{Reason: ReasonInvalidName, Err: err,
			Message: fmt.Sprintf("Failed to apply default image tag %q: %v", req.Image, err)}
	}
	policy := req.Policy
	if policy == "" {
		policy = DefaultPolicy(req.Image)
	}
	spec := &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: req.Image, RuntimeHandler: req.RuntimeHandler}
	if req.Sandbox != nil {
		spec.Annotations = req.Sandbox.Annotations
	}
	if policy != v1.PullAlways {
		img, err := m.status(ctx, spec)
		if err != nil {
			return Result{}, m.failure(ctx, ReasonInspect, fmt.Sprintf("Failed to inspect image %q: %s", req.Image, short(err)), err)
		}
		if img != nil {
			return Result{Ref: img.Id, Image: img}, nil
		}
		if policy == v1.PullNever {
			return Result{}, &Error{Reason: ReasonNeverPull,
				Message: fmt.Sprintf("Container image %q is not present with pull policy of Never", req.Image)}
		}
	}
	return m.pull(ctx, req, spec)
}

// status asks the runtime for an image; nil means that it is not present.
func (m *Images) status(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	resp, err := m.cfg.Client.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
	if err != nil {
		return nil, err
	}
	if resp.Image != nil && resp.Image.Id == "" {
		return nil, fmt.Errorf("the runtime describes image %q without an ID", spec.Image)
	}
	return resp.Image, nil
}

// pull joins the pull of this image that is under way, or begins one.
func (m *Images) pull(ctx context.Context, req Request, spec *runtimeapi.ImageSpec) (Result, *Error) {
	auths, warnings, err := m.credentials(ctx, req)
	if err != nil {
		e := m.failure(ctx, ReasonPull, err.Error(), err)
		e.Warnings = warnings
		return Result{}, e
	}
	if req.Pulling != nil {
		req.Pulling()
	}
	began := time.Now()
	f := m.board(spec, auths, req.Sandbox)
	if err := m.await(ctx, flightKey(spec, auths), f); err != nil {
		e := m.pullFailure(ctx, req.Image, err)
		e.Warnings = warnings
		return Result{}, e
	}
	res := Result{Ref: f.ref, Pulled: true, Took: f.took, Waited: time.Since(began), Warnings: warnings}
	img, err := m.status(ctx, &runtimeapi.ImageSpec{Image: f.ref, RuntimeHandler: spec.RuntimeHandler})
	if err == nil && img == nil { // some runtimes do not know their own reference as a name
		img, err = m.status(ctx, spec)
	}
	if err == nil && img == nil {
		err = errors.New("it is gone again")
	}
	if err != nil {
		return Result{}, m.failure(ctx, ReasonInspect, fmt.Sprintf("Failed to inspect image %q after it was pulled: %s", req.Image, short(err)), err)
	}
	res.Image, res.Ref = img, img.Id
	return res, nil
}

// flightKey tells pulls apart: what one may fetch, another may not.
func flightKey(spec *runtimeapi.ImageSpec, auths []*runtimeapi.AuthConfig) string {
	h := sha256.New()
	for _, a := range auths {
		fmt.Fprintf(h, "%q %q\n", a.Username, a.Password)
	}
	return fmt.Sprintf("%s\n%s\n%x", spec.Image, spec.RuntimeHandler, h.Sum(nil))
}

// board returns the flight for this pull with one more waiter.
func (m *Images) board(spec *runtimeapi.ImageSpec, auths []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) *flight {
	key := flightKey(spec, auths)
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.flights[key]; f != nil {
		f.waiters++
		return f
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &flight{waiters: 1, cancel: cancel, done: make(chan struct{})}
	m.flights[key] = f
	go func() {
		defer close(f.done)
		defer cancel()
		f.ref, f.took, f.err = m.fetch(ctx, spec, auths, sandbox)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.flights[key] == f {
			delete(m.flights, key)
		}
	}()
	return f
}

// await returns the flight's error when it has ended, or the context's. The last to leave ends the flight.
func (m *Images) await(ctx context.Context, key string, f *flight) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
	}
	m.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	if last && m.flights[key] == f {
		delete(m.flights, key)
	}
	m.mu.Unlock()
	if last {
		f.cancel()
		<-f.done
	}
	return ctx.Err()
}

// fetch waits for its turn and pulls, trying one credential after the other.
func (m *Images) fetch(ctx context.Context, spec *runtimeapi.ImageSpec, auths []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, time.Duration, error) {
	if m.slot != nil {
		select {
		case m.slot <- struct{}{}:
			defer func() { <-m.slot }()
		case <-ctx.Done():
			return "", 0, ctx.Err()
		}
	}
	began := time.Now()
	if len(auths) == 0 {
		auths = []*runtimeapi.AuthConfig{nil}
	}
	var errs []error
	for _, auth := range auths {
		resp, err := m.cfg.Client.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec, Auth: auth, SandboxConfig: sandbox})
		if err == nil && resp.ImageRef == "" {
			err = errors.New("the runtime returned no reference to the image")
		}
		if err == nil {
			return resp.ImageRef, time.Since(began), nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 1 {
		return "", 0, errs[0]
	}
	return "", 0, errors.Join(errs...)
}

// credentials returns what the pod's secrets and the node have for the image, in the order to try.
func (m *Images) credentials(ctx context.Context, req Request) (auths []*runtimeapi.AuthConfig, warnings []string, err error) {
	repo, err := repository(req.Image)
	if err != nil {
		return nil, nil, err
	}
	var pod, node keyring
	if req.Pod != nil && m.cfg.Secrets != nil {
		for _, ref := range req.Pod.Spec.ImagePullSecrets {
			if ref.Name == "" {
				continue
			}
			s, err := m.cfg.Secrets(ctx, req.Pod, ref.Name)
			switch {
			case err != nil && ctx.Err() != nil:
				return nil, nil, ctx.Err()
			case apierrors.IsNotFound(err):
				warnings = append(warnings, ref.Name)
				continue
			case err != nil:
				m.cfg.Log.Warn("cannot read image pull secret", "secret", req.Pod.Namespace+"/"+ref.Name, "err", err)
				warnings = append(warnings, ref.Name)
				continue
			}
			if err := pod.addSecret(s); err != nil {
				return nil, warnings, err
			}
		}
	}
	for _, file := range m.cfg.NodeCredentials {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // most nodes have none
		}
		if err := node.addConfig(raw); err != nil {
			m.cfg.Log.Warn("registry credentials of the node are not used", "file", file, "err", err)
		}
	}
	return append(pod.lookup(repo), node.lookup(repo)...), warnings, nil
}

// pullFailure gives a failed pull the reason that users know.
func (m *Images) pullFailure(ctx context.Context, image string, err error) *Error {
	msg := short(err)
	for reason, what := range map[string]string{
		ReasonRegistryUnavailable: "the registry is unavailable",
		ReasonSignature:           "the signature validation failed",
	} {
		if rest, ok := strings.CutPrefix(msg, reason); ok {
			return m.failure(ctx, reason, fmt.Sprintf("image pull failed for %s because %s%s", image, what, rest), err)
		}
	}
	return m.failure(ctx, ReasonPull, fmt.Sprintf("failed to pull image %q: %s", image, msg), err)
}

func (m *Images) failure(ctx context.Context, reason, message string, err error) *Error {
	return &Error{Reason: reason, Message: message, Err: err, Canceled: ctx.Err() != nil}
}

// short is a runtime's error without what gRPC puts around it.
func short(err error) string {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var parts []string
		for _, e := range many.Unwrap() {
			parts = append(parts, short(e))
		}
		return strings.Join(parts, "; ")
	}
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
