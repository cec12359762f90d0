package lastlife

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	keptFor   = time.Minute // how long the state of a life is kept after its end
	livesMost = 64          // how many lives are kept at the same time
)

// Lives keeps the state that lives of static pods leave for the next ones. The zero value is usable.
type Lives[T any] struct{ of map[types.UID]life[T] }

type life[T any] struct {
	left T
	at   time.Time
}

// Keep stores the state of a life that has ended. If there are too many lives, Keep does nothing.
func (l *Lives[T]) Keep(uid types.UID, left T, now time.Time) {
	maps.DeleteFunc(l.of, func(_ types.UID, e life[T]) bool { return now.Sub(e.at) > keptFor })
	if l.of == nil {
		l.of = map[types.UID]life[T]{}
	}
	if len(l.of) < livesMost {
		l.of[uid] = life[T]{left, now}
	}
}

// Take returns and deletes the state of the last life; false: there is none, or it is too old.
func (l *Lives[T]) Take(uid types.UID, now time.Time) (left T, ok bool) {
	e, ok := l.of[uid]
	if !ok {
		return left, false
	}
	if delete(l.of, uid); len(l.of) == 0 {
		l.of = nil
	}
	return e.left, now.Sub(e.at) <= keptFor
}
