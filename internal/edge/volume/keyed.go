package volume

import (
	"context"
	"sync"
)

// keyed has a lock for each key, so that work on one key does not wait for work on another key. The zero value is ready.
type keyed struct {
	mu    sync.Mutex
	locks map[string]*keyedLock
}

type keyedLock struct {
	held  chan struct{} // has one element while the lock is held
	users int           // the goroutines that hold the lock or wait for it; guarded by keyed.mu
}

// lock waits for the lock of a key, until ctx ends. The caller must call unlock, once.
func (k *keyed) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	l := k.locks[key]
	if l == nil {
		l = &keyedLock{held: make(chan struct{}, 1)}
		if k.locks == nil {
			k.locks = map[string]*keyedLock{}
		}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; k.drop(key, l) }, nil
	case <-ctx.Done():
		k.drop(key, l)
		return nil, ctx.Err()
	}
}

// drop ends the use of a lock by one goroutine.
func (k *keyed) drop(key string, l *keyedLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}
