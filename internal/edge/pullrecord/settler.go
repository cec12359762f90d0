package pullrecord

import (
	"context"
	"log/slog"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageList is a list of the runtime's images, and the time when the request for it was sent.
type imageList struct {
	began  time.Time
	images []*runtimeapi.Image
}

// Settler updates the records of image pulls: it passes each list of the runtime's images to Store.Settle. It does so in a goroutine of
// its own, because a disk that hangs must not delay the calls to the runtime.
type Settler struct {
	store *Store
	log   *slog.Logger
	lists chan imageList // capacity 1
}

// NewSettler returns a Settler of a store. It starts nothing.
func NewSettler(store *Store, log *slog.Logger) *Settler {
	return &Settler{store: store, log: log, lists: make(chan imageList, 1)}
}

// Listed passes a list of the runtime's images to Run. It drops the list if Run is still busy with the last one, because another list
// follows.
func (s *Settler) Listed(began time.Time, images []*runtimeapi.Image) {
	select {
	case s.lists <- imageList{began, images}:
	default:
	}
}

// Run calls Store.Settle with each list of images until ctx ends.
func (s *Settler) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-s.lists:
			if err := s.store.Settle(l.began, l.images); err != nil {
				s.log.Warn("records of image pulls not updated; trying again with the next list of images", "err", err)
			}
		}
	}
}
