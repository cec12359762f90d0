package identity

import "sync"

// failure is what keeps a part from its work on this machine, while the part tries again. A nil one keeps nothing.
type failure struct {
	mu  sync.Mutex
	err error
}

// set notes err where it is one of this machine; else there is none any more.
func (f *failure) set(local bool, err error) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = nil
	if local {
		f.err = err
	}
}

func (f *failure) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
