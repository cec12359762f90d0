package syncloop

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// If the manifest of a static pod is removed and put back, the pod has the same UID as before. The pod then begins a new life, and its
// restart counts continue from the last life. For that purpose the loop keeps the state of the last life for a minute. Upstream's kubelet
// keeps the containers of a pod that is gone for the same time.
const (
	lastLifeFor   = time.Minute
	lastLivesMost = 64
)

// lastLives keeps the state that one life of a static pod leaves for the next one: a life ends when nothing of the pod is left. The
// zero value is usable. Callers must hold a lock of their own.
type lastLives[T any] struct{ of map[types.UID]lastLife[T] }

type lastLife[T any] struct {
	left T
	at   time.Time
}

// keep stores the state of a life that has ended. The number of lives is bounded.
func (l *lastLives[T]) keep(uid types.UID, left T, now time.Time) {
	maps.DeleteFunc(l.of, func(_ types.UID, e lastLife[T]) bool { return now.Sub(e.at) > lastLifeFor })
	if l.of == nil {
		l.of = map[types.UID]lastLife[T]{}
	}
	if len(l.of) < lastLivesMost {
		l.of[uid] = lastLife[T]{left, now}
	}
}

// take returns and deletes the state of the last life.
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
