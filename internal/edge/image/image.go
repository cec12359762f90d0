package image

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/base/work"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// The reasons of failures, as upstream's kubelet writes them into the waiting state of a container.
const (
	ReasonPull                = "ErrImagePull"
	ReasonNeverPull           = "ErrImageNeverPull"
	ReasonInvalidName         = "InvalidImageName"
	ReasonInspect             = "ImageInspectError"
	ReasonRegistryUnavailable = "RegistryUnavailable"
	ReasonSignature           = "SignatureValidationFailed"
)

// Config configures Images.
type Config struct {
	// Client is the runtime's image service. Required.
	Client runtimeapi.ImageServiceClient
	// Timeout bounds each call that asks the runtime for an image (runtimeRequestTimeout). A pull has no timeout. Default:
	// 2 minutes.
	Timeout time.Duration
	// Secrets returns a secret that the pod refers to. Required for pods with imagePullSecrets.
	Secrets func(ctx context.Context, p *v1.Pod, name string) (*v1.Secret, error)
	// NodeCredentials are docker configuration files of the node (config.json; the old format in a file named .dockercfg). They are
	// tried after the pod's secrets. Each file is read at every pull, and may be missing.
	NodeCredentials []string
	// Plugins are asked for credentials after NodeCredentials. Nil: the node has none.
	Plugins Plugins
	// MaxParallel bounds how many pulls run at once; 0: no bound, 1: serializeImagePulls. SetMaxParallel changes it.
	MaxParallel int
	// Access decides which present images every pod may use. For any other present image a pod needs credentials that have
	// pulled it before, or must pull it again. The zero value: every pod may use all images.
	// SetAccess changes it.
	Access pullaccess.Policy
	// Records remembers which credentials pulled which image. Nil: nothing is recorded, and every pod may use every image.
	Records Records
	// Listed returns the images of the last listing, without a call to the runtime. Nil: no image is known.
	Listed func() []*runtimeapi.Image
	// Downloads lists what the runtime downloads at the moment, for all images together. Calls may be concurrent; a call has to return
	// soon. Nil: the runtime does not report that.
	Downloads func(context.Context) ([]Download, error)
	// Meter counts calls of Ensure. Default: none.
	Meter Meter
	// Log gets warnings for the administrator. Default: nothing is logged.
	Log *slog.Logger
}

// Plugins are the credential provider plugins of the node. Calls may be concurrent.
type Plugins interface {
	// Credentials returns the plugins' credentials for a repository (host/path). The error names each plugin that failed; the
	// credentials of the others are returned with it. It blocks until the plugins have answered or ctx ends.
	Credentials(ctx context.Context, p *v1.Pod, repository string) ([]pullaccess.PluginCredential, error)
}

// Records stores records of pulls, so that they are known after a restart of the agent. Calls may be concurrent; each may read or write a
// small file.
type Records interface {
	// Begin is called before a pull. If it fails, Images may refuse to pull. One End or Leave follows: End if the result of the
	// pull is known (if the pull succeeded, Pulled is called first), Leave if the runtime may have the image although the pull
	// failed.
	Begin(image string) error
	End(image string)
	Leave(image string)
	// Pulled records the credentials with which an image was pulled. Matched records credentials that gave access to it without a
	// pull.
	Pulled(image, id string, by kubelet.ImagePullCredentials) error
	Matched(image, id string, by kubelet.ImagePullCredentials) error
	// Claimed reports whether a pull of this image has begun and its end is not recorded. After an error, the result is not known.
	Claimed(image string, img *runtimeapi.Image) (bool, error)
	// Record returns the record of an image, and whether the node pulled it.
	Record(id string) (*kubelet.ImagePulledRecord, bool)
}

// Meter counts requests for images. Its methods must not block.
type Meter interface {
	// ImageEnsured is called for each call of Ensure, with the pull policy, whether the image was present, and whether a pull
	// was needed: "true", "false" or "unknown".
	ImageEnsured(policy v1.PullPolicy, present, pulled string)
	// ImageVerified is called with each answer to whether a pod may use a present image.
	ImageVerified(result string)
}

type noMeter struct{}

func (noMeter) ImageEnsured(v1.PullPolicy, string, string) {}
func (noMeter) ImageVerified(string)                       {}

// Request names an image and the pod that needs it.
type Request struct {
	Pod *v1.Pod
	// Image is the name in the spec of a container or of an image volume.
	Image string
	// Policy is the pull policy; empty means crispec.DefaultPullPolicy(Image).
	Policy v1.PullPolicy
	// RuntimeHandler is the handler of the pod's runtime class.
	RuntimeHandler string
	// Pulling, if set, is called once before a pull begins or is joined. It is not called if the image is present.
	Pulling func()
	// Stalled, if set, is called at most once, while Ensure waits for a pull in which nothing happens. The text says since when. The pull
	// goes on.
	Stalled func(text string)
}

// Result describes an image that is present.
type Result struct {
	// Ref is the runtime's ID of the image, with which containers are created.
	Ref string
	// Image is the runtime's description: ID, repo digests, size, user.
	Image *runtimeapi.Image
	// Pulled is false when the image was already present.
	Pulled bool
	// Verified is set if the image was present and the node keeps records of pulls, so that it had to check whether the pod may use the
	// image.
	Verified bool
	// Took is the duration of the pull. Waited is Took plus the time for which MaxParallel delayed the pull.
	Took, Waited time.Duration
	// Warnings are problems that did not prevent the pull, such as missing secrets.
	Warnings []string
}

// Error says why an image is not present or may not be used.
type Error struct {
	Reason   string
	Message  string
	Canceled bool // the context of Ensure has ended
	Warnings []string
	Err      error
}

// Error returns the message with its reason.
func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Images makes sure that images are present. All methods may be called concurrently.
type Images struct {
	cfg    Config
	slots  work.Semaphore                    // bounds the pulls that run at once
	access atomic.Pointer[pullaccess.Policy] // the policy is never changed; a new one replaces it

	mu       sync.Mutex
	flights  map[string]*flight
	removing []*removal
}

// New returns Images; it starts nothing.
func New(cfg Config) *Images {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Minute
	}
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	m := &Images{cfg: cfg, flights: map[string]*flight{}}
	m.slots.Bound(cfg.MaxParallel)
	m.access.Store(&cfg.Access)
	return m
}

// SetAccess replaces the policy of access to present images, for containers that start from then on.
func (m *Images) SetAccess(p pullaccess.Policy) { m.access.Store(&p) }

// SetMaxParallel replaces MaxParallel. Running pulls continue, even if there are more of them than the new bound.
func (m *Images) SetMaxParallel(most int) { m.slots.Bound(most) }

// Ensure makes the image present, with a pull if necessary. It blocks until the pod may use the image, or returns why the pod cannot.
func (m *Images) Ensure(ctx context.Context, req Request) (Result, *Error) {
	name, err := WithTag(req.Image)
	if err != nil {
		return Result{}, &Error{Reason: ReasonInvalidName, Err: err,
			Message: fmt.Sprintf("Failed to apply default image tag %q: %v", req.Image, err)}
	}
	if req.Policy == "" {
		req.Policy = crispec.DefaultPullPolicy(req.Image)
	}
	spec := &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: req.Image, RuntimeHandler: req.RuntimeHandler}
	m.afterRemoval(ctx, name)
	present, pulled := "unknown", "unknown"
	defer func() { m.cfg.Meter.ImageEnsured(req.Policy, present, pulled) }()
	creds := &credentials{images: m, req: &req}
	if req.Policy != v1.PullAlways {
		img, err := m.status(ctx, spec)
		if err != nil {
			return Result{}, m.failure(ctx, ReasonInspect, fmt.Sprintf("Failed to inspect image %q: %v", req.Image, err), err)
		}
		present = strconv.FormatBool(img != nil)
		may, err := false, error(nil)
		if img != nil {
			may, err = m.mayUse(ctx, req.Image, img, creds)
		}
		switch {
		case err != nil:
			e := m.failure(ctx, ReasonPull, err.Error(), err)
			e.Warnings = creds.warnings
			return Result{}, e
		case may:
			pulled = "false"
			return Result{Ref: img.Id, Image: img, Verified: m.verifies()}, nil
		case req.Policy == v1.PullNever: // no details, because a pod that may not use an image must not learn that it is present
			if img != nil {
				pulled = "true"
			}
			return Result{}, &Error{Reason: ReasonNeverPull,
				Message: fmt.Sprintf("Container image %q is not present with pull policy of Never", req.Image)}
		}
	}
	pulled = "true"
	return m.pull(ctx, req, spec, creds)
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

// pullFailure returns the Error of a failed pull, with the reason that upstream's kubelet would give.
func (m *Images) pullFailure(ctx context.Context, image string, err error) *Error {
	msg := PullMessage(err)
	for reason, what := range map[string]string{
		ReasonRegistryUnavailable: "the registry is unavailable",
		ReasonSignature:           "the signature validation failed",
	} {
		said := msg
		if s, ok := err.(interface{ GRPCStatus() *status.Status }); ok { // an error with any gRPC code
			said = s.GRPCStatus().Message()
		}
		if rest, ok := strings.CutPrefix(said, reason); ok {
			return m.failure(ctx, reason, fmt.Sprintf("image pull failed for %s because %s%s", image, what, rest), err)
		}
	}
	return m.failure(ctx, ReasonPull, msg, err)
}

func (m *Images) failure(ctx context.Context, reason, message string, err error) *Error {
	return &Error{Reason: reason, Message: message, Err: err, Canceled: ctx.Err() != nil}
}

// PullMessage returns the message for a failed pull in the form of upstream's kubelet: with the gRPC code unless it is Unknown, and
// equal errors of several credentials only once.
func PullMessage(err error) string {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var parts []string
		for _, e := range many.Unwrap() {
			if part := PullMessage(e); !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
		if len(parts) == 1 {
			return parts[0]
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	if s, ok := status.FromError(err); ok && s.Code() == codes.Unknown {
		return s.Message()
	}
	return err.Error()
}
