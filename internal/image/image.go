package image

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/internal/crispec"
	"github.com/wherry-node/wherry/internal/pullaccess"
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
	// Access says which images that are present every pod may use; for the others the pod has to show credentials that
	// pulled the image before, or pull it again. The zero value: all images.
	Access pullaccess.Policy
	// Records remember who pulled what. Nil: nothing is recorded, and every pod may use every image.
	Records Records
	// Listed are the images of the runtime as they were last listed; it calls nothing. Nil: none are known.
	Listed func() []*runtimeapi.Image
	// Meter is told of each Ensure. Default: nobody.
	Meter Meter
	// Log gets what an administrator has to know. Default: nothing.
	Log *slog.Logger
}

// Records is what Images keeps of pulls, for itself and for the agent after it. Calls are concurrent; each may read or write
// a small file.
type Records interface {
	// Begin is called before a pull; where it fails, nothing is pulled. One End or Leave follows it: End where it is known how
	// the pull ended (and Pulled was called, if it brought the image), Leave where the runtime may have the image all the same.
	Begin(image string) error
	End(image string)
	Leave(image string)
	// Pulled notes the credentials that brought an image, Matched some that gave access without a pull.
	Pulled(image, id string, by kubelet.ImagePullCredentials) error
	Matched(image, id string, by kubelet.ImagePullCredentials) error
	// Claimed reports whether a pull of this image has begun and not ended. An error means that it is not known.
	Claimed(image string, img *runtimeapi.Image) (bool, error)
	// Record returns what is known of the pulls of an image, and whether it was pulled at all.
	Record(id string) (*kubelet.ImagePulledRecord, bool)
}

// Meter counts. Its methods do not block.
type Meter interface {
	// ImageEnsured is told of each image that was asked for: with which pull policy, whether it was present, and whether it had
	// to be pulled: true, false or unknown.
	ImageEnsured(policy v1.PullPolicy, present, pulled string)
	// ImageVerified is told what came of asking whether a pod may use an image that is present.
	ImageVerified(result string)
}

type noMeter struct{}

func (noMeter) ImageEnsured(v1.PullPolicy, string, string) {}
func (noMeter) ImageVerified(string)                       {}

// Request says which image, for whom.
type Request struct {
	Pod *v1.Pod
	// Image is the name as the spec has it, of a container or an image volume.
	Image string
	// Policy is the pull policy; empty means crispec.DefaultPullPolicy(Image).
	Policy v1.PullPolicy
	// RuntimeHandler is the handler of the pod's runtime class.
	RuntimeHandler string
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
	// Verified: an image that was already present was asked about by Access.
	Verified bool
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
	if cfg.MaxParallel > 0 {
		m.slot = make(chan struct{}, cfg.MaxParallel)
	}
	return m
}

// Ensure returns once the image is present, and the pod may use it, or cannot be made so.
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
		case req.Policy == v1.PullNever: // a pod that may not use an image does not learn that it is there
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

// pullFailure gives a failed pull the reason that users know.
func (m *Images) pullFailure(ctx context.Context, image string, err error) *Error {
	msg := PullWords(err)
	for reason, what := range map[string]string{
		ReasonRegistryUnavailable: "the registry is unavailable",
		ReasonSignature:           "the signature validation failed",
	} {
		said := msg
		if s, ok := err.(interface{ GRPCStatus() *status.Status }); ok { // with whatever code
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

// PullWords are the words for a pull that failed, as upstream's kubelet has them: with gRPC's code where that says anything, and
// each once where several credentials were tried.
func PullWords(err error) string {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var parts []string
		for _, e := range many.Unwrap() {
			if part := PullWords(e); !slices.Contains(parts, part) {
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
