package syncloop

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A static pod whose manifest is removed and put back has the same UID: it begins anew, and its restarts are counted on. What the
// last life knows is kept for a minute, as long as upstream's kubelet keeps the containers of a pod that has gone.
const (
	lastLifeFor   = time.Minute
	lastLivesMost = 64
)

// lastLives keeps what the last lives of pods leave to the next ones. Its zero value is usable; its user has the lock.
type lastLives[T any] struct{ of map[types.UID]lastLife[T] }

type lastLife[T any] struct {
	left T
	at   time.Time
}

// keep remembers what a life left. Where many lives end within a minute, only so many are remembered.
func (l *lastLives[T]) keep(uid types.UID, left T, now time.Time) {
	maps.DeleteFunc(l.of, func(_ types.UID, e lastLife[T]) bool { return now.Sub(e.at) > lastLifeFor })
	if l.of == nil {
		l.of = map[types.UID]lastLife[T]{}
	}
	if len(l.of) < lastLivesMost {
		l.of[uid] = lastLife[T]{left, now}
	}
}

// take returns what the last life left, once.
func (l *lastLives[T]) take(uid types.UID, now time.Time) (left T, ok bool) {
	e, ok := l.of[uid]
	if !ok {
		return left, false
	}
	if delete(l.of, uid); len(l.of) == 0 {
		l.of = nil
	}
	return e.left, now.Sub(e.at) <= lastLifeFor
}
