package pullrecord

import (
	"context"
	"log/slog"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageList is what images the runtime had, at the earliest when it was asked.
type imageList struct {
	began  time.Time
	images []*runtimeapi.Image
}

// Settler compares what is recorded of pulls with each list of the runtime's images, in a goroutine of its own: a disk
// that hangs must not hold up what the runtime is asked.
type Settler struct {
	store *Store
	log   *slog.Logger
	lists chan imageList // of one
}

// NewSettler returns a Settler of a store. It starts nothing.
func NewSettler(store *Store, log *slog.Logger) *Settler {
	return &Settler{store: store, log: log, lists: make(chan imageList, 1)}
}

// Listed takes a list; while the one before is not looked at, it is dropped: another follows.
func (s *Settler) Listed(began time.Time, images []*runtimeapi.Image) {
	select {
	case s.lists <- imageList{began, images}:
	default:
	}
}

// Run settles until ctx ends.
func (s *Settler) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-s.lists:
			if err := s.store.Settle(l.began, l.images); err != nil {
				s.log.Warn("records of image pulls are not brought up to date; it is tried again with the next list of images", "err", err)
			}
		}
	}
}
