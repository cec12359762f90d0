package main

import (
	"io"
	"sync/atomic"
)

// tee is a writer that passes all data to w. any is true after the first write.
type tee struct {
	w   io.Writer
	any atomic.Bool
}

func (t *tee) Write(b []byte) (int, error) {
	t.any.Store(true)
	return t.w.Write(b)
}

func (t *tee) begun() bool { return t.any.Load() }
