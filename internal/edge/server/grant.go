package server

import (
	"context"
	"errors"
	"sync"
	"time"
)

// recheckRights is how often the right to an answer without end is checked again. The Authorizer caches its answers, so that a check rarely asks the
// API server.
const recheckRights = time.Minute

// errRevoked is the reason for the end of an answer whose user has lost the right to it.
var errRevoked = errors.New("the user has lost the right to this log")

// grantKey is the key of a request's grant in its context.
type grantKey struct{}

// grant is a right that a request has passed the guard with. The right to any one of the subresources is enough.
type grant struct {
	attributes   Attributes
	subresources []string
}

// whileGranted returns a context that ends soon after the user of a request has lost the right to the request. While the Authorizer cannot decide, the
// right counts as granted. The credentials are not checked again: a token or certificate that expires meanwhile ends nothing, as with upstream's
// kubelet, because clients renew their tokens during a long answer. The caller calls stop in the end.
func (s *Server) whileGranted(ctx context.Context) (granted context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	g, ok := ctx.Value(grantKey{}).(grant)
	if !ok { // the request needs no right
		return ctx, func() { cancel(nil) }
	}
	var checking sync.WaitGroup
	checking.Go(func() {
		again := time.NewTicker(recheckRights)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			if s.revoked(ctx, g) {
				s.cfg.Log.Info("a followed log ends, because its user has lost the right to it", "user", g.attributes.User.Username, "subresources", g.subresources)
				cancel(errRevoked)
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		checking.Wait()
	}
}

// revoked reports whether the Authorizer denies all that a grant has allowed.
func (s *Server) revoked(ctx context.Context, g grant) bool {
	a := g.attributes
	for _, a.Subresource = range g.subresources {
		if allowed, err := s.cfg.Authorizer.Authorize(ctx, a); allowed || err != nil {
			return false
		}
	}
	return true
}
