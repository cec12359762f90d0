package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pullaccess"
)

// order is a pull to perform: the image, and the credentials in the order to try them.
type order struct {
	image string // name of the image in the spec
	spec  *runtimeapi.ImageSpec
	creds []credential
}

// key identifies a pull. It includes the credentials, since one pod may pull an image that another may not.
func (o *order) key() string {
	h := sha256.New()
	for _, c := range o.creds {
		fmt.Fprintf(h, "%q %q\n", c.auth.GetUsername(), c.auth.GetPassword())
	}
	return fmt.Sprintf("%s\n%s\n%x", o.spec.Image, o.spec.RuntimeHandler, h.Sum(nil))
}

// flight is one pull that any number of Ensure calls wait for.
type flight struct {
	waiters   int
	cancel    context.CancelFunc
	done      chan struct{} // closed when the fields below are set and the pull has ended
	img       *runtimeapi.Image
	used      int   // index in order.creds of the credential that succeeded
	from      owner // owner of the credential that succeeded: a secret or service account of the pod that began the flight, or the node
	took      time.Duration
	err       error // error of the pull
	lookupErr error // error of ImageStatus after the pull
	sight     sight // what is known about the pull while it runs
}

// pull joins the pull of this image that is in flight, or begins one.
func (m *Images) pull(ctx context.Context, req Request, spec *runtimeapi.ImageSpec, creds *credentials) (Result, *Error) {
	all, err := creds.find(ctx)
	fail := func(e *Error) (Result, *Error) {
		e.Warnings = creds.warnings
		return Result{}, e
	}
	if err != nil {
		return fail(m.failure(ctx, ReasonPull, err.Error(), err))
	}
	if req.Pulling != nil {
		req.Pulling()
	}
	o := order{image: req.Image, spec: spec, creds: distinct(all)}
	began := time.Now()
	f := m.board(ctx, o)
	if err := m.await(ctx, o.key(), f, req.Stalled); err != nil {
		e := m.pullFailure(ctx, req.Image, err)
		if creds.plugins != nil {
			e.Message += "; " + creds.plugins.Error()
		}
		return fail(e)
	}
	if f.lookupErr != nil {
		return fail(m.failure(ctx, ReasonInspect, fmt.Sprintf("Failed to inspect image %q after it was pulled: %v", req.Image, f.lookupErr), f.lookupErr))
	}
	m.noteOwn(o, f)
	return Result{Ref: f.img.Id, Image: f.img, Pulled: true, Took: f.took, Waited: time.Since(began), Warnings: creds.warnings}, nil
}

// noteOwn records the secret or service account of a pod that shared the pull of another pod, because both have the same credential.
func (m *Images) noteOwn(o order, f *flight) {
	if m.cfg.Records == nil || len(o.creds) == 0 {
		return
	}
	own := o.creds[f.used].from
	if own.same(f.from) {
		return
	}
	if err := m.cfg.Records.Pulled(o.image, f.img.Id, granted(own)); err != nil {
		m.cfg.Log.Warn("credentials of an image pull not recorded; the pod pulls the image again at its next start", "image", o.image, "err", err)
	}
}

// board returns the flight (a pull in progress) for this order, and counts the caller as one of its waiters. If there is no such flight, it
// begins one.
func (m *Images) board(by context.Context, o order) *flight {
	key := o.key()
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.flights[key]; f != nil {
		f.waiters++
		return f
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(by)) // the pull does not end with the caller's context, but keeps its trace
	now := time.Now()
	f := &flight{waiters: 1, cancel: cancel, done: make(chan struct{}), sight: sight{image: o.image, began: now, moved: now, say: make(chan struct{})}}
	m.flights[key] = f
	go func() {
		defer close(f.done)
		defer cancel()
		m.fly(ctx, f, o)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.flights[key] == f {
			delete(m.flights, key)
		}
	}()
	return f
}

// await waits until the flight (a pull in progress) has ended and returns its error, or the error of ctx if ctx ends first. When the last
// waiter leaves in this way, await cancels the pull and waits for its end. If the pull stalls meanwhile, await calls stalled, if it is
// set, and waits on.
func (m *Images) await(ctx context.Context, key string, f *flight, stalled func(string)) error {
	said := f.sight.say
	for waits := true; waits; {
		select {
		case <-f.done:
			return f.err
		case <-said:
			said = nil
			if stalled != nil {
				stalled(f.sight.stalled) // written before the channel was closed, and never again
			}
		case <-ctx.Done():
			waits = false
		}
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

// fly pulls the image of a flight and stores the result there. It calls Records.Begin before the pull, and Records.End only after it has
// recorded which credential pulled the image. So if the agent ends in between, the image does not look as if it had been present before.
func (m *Images) fly(ctx context.Context, f *flight, o order) {
	var ref string
	noted := false
	f.err = m.inTurn(ctx, func() error {
		if err := m.note(o.image); err != nil {
			return err
		}
		noted = m.cfg.Records != nil
		began := time.Now()
		stop := m.begin(ctx, f, began)
		defer stop()
		var err error
		ref, f.used, err = m.fetch(ctx, o)
		f.took = time.Since(began)
		return err
	})
	if f.err == nil {
		f.img, f.lookupErr = m.arrived(ctx, o.spec, ref)
		if len(o.creds) > 0 {
			f.from = o.creds[f.used].from
		}
	}
	switch {
	case !noted:
	case f.err == nil:
		m.record(f, o, ref)
	case m.mayHaveCome(ctx, f.err, o.image):
		m.cfg.Records.Leave(o.image)
	default:
		m.cfg.Records.End(o.image)
	}
}

// note stores on disk that a pull of the image has begun (Records.Begin). If the access policy does not need this note, a failure is only
// logged.
func (m *Images) note(image string) error {
	if m.cfg.Records == nil {
		return nil
	}
	err := m.cfg.Records.Begin(image)
	if err == nil {
		return nil
	}
	if m.access.Load().NeedsIntents() {
		return err
	}
	m.cfg.Log.Warn("note of an image pull not written; pulling without it", "image", image, "err", err)
	return nil
}

// record writes to Records which credential pulled the image. ref is the runtime's reference to the image.
func (m *Images) record(f *flight, o order, ref string) {
	id := ref
	if f.img != nil {
		id = f.img.Id
	}
	if err := m.cfg.Records.Pulled(o.image, id, granted(f.from)); err != nil {
		m.cfg.Log.Warn("credentials of an image pull not recorded; pods pull the image again at their next start", "image", o.image, "err", err)
		m.cfg.Records.Leave(o.image)
		return
	}
	m.cfg.Records.End(o.image)
}

// mayHaveCome reports whether a failed pull may have added the image nevertheless. It may have, if the image was not present before
// and the agent stopped waiting for the answer or the runtime went away.
func (m *Images) mayHaveCome(ctx context.Context, err error, image string) bool {
	if ctx.Err() == nil && !unanswered(err) {
		return false
	}
	if m.cfg.Listed == nil {
		return true
	}
	for _, img := range m.cfg.Listed() {
		same := func(name string) bool { return pullaccess.SameImage(image, name) }
		if slices.ContainsFunc(img.GetRepoTags(), same) || slices.ContainsFunc(img.GetRepoDigests(), same) {
			return false
		}
	}
	return true
}

// unanswered reports whether the runtime gave no final answer to one of the attempts.
func unanswered(err error) bool {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(many.Unwrap(), unanswered)
	}
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return true
	}
	return false
}

// inTurn runs f when fewer than MaxParallel pulls run.
func (m *Images) inTurn(ctx context.Context, f func() error) error {
	if err := m.slots.Take(ctx); err != nil {
		return err
	}
	defer m.slots.Leave()
	return f()
}

// maxTries bounds the credentials that one pull tries. Each costs requests to the registry, and a secret can hold thousands.
const maxTries = 64

// fetch tries one credential after the other, at most maxTries. It returns the runtime's reference, and the index of the credential that
// worked.
func (m *Images) fetch(ctx context.Context, o order) (string, int, error) {
	creds := o.creds
	if len(creds) == 0 {
		creds = []credential{{}}
	}
	var errs []error
	for i, c := range creds {
		if i == maxTries {
			errs = append(errs, fmt.Errorf("only %d of %d credentials were tried: remove those that the registry does not take from the imagePullSecrets", i, len(creds)))
			break
		}
		resp, err := m.cfg.Client.PullImage(ctx, &runtimeapi.PullImageRequest{Image: o.spec, Auth: c.auth})
		if err == nil && resp.ImageRef == "" {
			err = errors.New("the runtime returned no reference to the image")
		}
		if err == nil {
			return resp.ImageRef, i, nil
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

// arrived asks the runtime for the image that a pull has added. ref is the reference that the pull returned.
func (m *Images) arrived(ctx context.Context, spec *runtimeapi.ImageSpec, ref string) (*runtimeapi.Image, error) {
	img, err := m.status(ctx, &runtimeapi.ImageSpec{Image: ref, RuntimeHandler: spec.RuntimeHandler})
	if err == nil && img == nil { // some runtimes cannot find an image by the reference that they return
		img, err = m.status(ctx, spec)
	}
	if err == nil && img == nil {
		err = errors.New("the runtime no longer has it")
	}
	return img, err
}
