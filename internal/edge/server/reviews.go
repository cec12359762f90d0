package server

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
)

// DefaultWaitingReviews is the default for how many requests may wait for a review.
const DefaultWaitingReviews = 64

// errBusy is the error for a request that would have to wait for a review while too many wait already.
var errBusy = errors.New("too many requests wait for the API server to say who they are or what they may do")

// Reviews bounds how many requests wait for a TokenReview or a SubjectAccessReview. Without a bound, anybody could cause any number of
// requests to the API server by sending tokens. A request beyond the bound is refused at once. One address gets at most half of the free
// slots, so an address that floods leaves slots for others. Methods may be called concurrently.
type Reviews struct {
	max int

	mu      sync.Mutex
	total   int
	waiting map[string]int // number of waiting requests by peer; peers without a waiting request have no entry
}

// NewReviews returns Reviews that let at most limit requests wait; 0: DefaultWaitingReviews.
func NewReviews(limit int) *Reviews {
	if limit <= 0 {
		limit = DefaultWaitingReviews
	}
	return &Reviews{max: limit, waiting: map[string]int{}}
}

// enter takes a slot for the client of a request, or returns errBusy. leave gives the slot back.
func (v *Reviews) enter(ctx context.Context) (leave func(), err error) {
	peer := peerOf(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	if free := v.max - v.total; free == 0 || v.waiting[peer] >= max(1, (free+v.waiting[peer])/2) {
		return nil, errBusy
	}
	v.total++
	v.waiting[peer]++
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.total--
		if v.waiting[peer]--; v.waiting[peer] == 0 {
			delete(v.waiting, peer)
		}
	}, nil
}

// peerKey is the key of a request's peer in its context.
type peerKey struct{}

func withPeer(ctx context.Context, remote string) context.Context {
	return context.WithValue(ctx, peerKey{}, peerName(remote))
}

func peerOf(ctx context.Context) string {
	peer, _ := ctx.Value(peerKey{}).(string)
	return peer
}

// peerName returns what counts as one client: an IPv4 address, or the /64 network of an IPv6 address, because one machine usually has
// a whole /64 network.
func peerName(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	addr = addr.Unmap()
	if addr.Is6() {
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return addr.String()
}
