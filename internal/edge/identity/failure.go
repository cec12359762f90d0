package identity

import "sync"

// failure stores an error of this machine, such as a full or broken disk, while a Client or a Serving tries again. A nil failure
// stores nothing.
type failure struct {
	mu  sync.Mutex
	err error
}

// set stores err if local is true, which means that this machine caused the error. Otherwise it clears the stored error.
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
