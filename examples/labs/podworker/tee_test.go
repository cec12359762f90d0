package main

import (
	"io"
	"sync/atomic"
)

// tee passes each write on to w and remembers in any that there was one.
type tee struct {
	w   io.Writer
	any atomic.Bool
}

func (t *tee) Write(b []byte) (int, error) {
	t.any.Store(true)
	return t.w.Write(b)
}

func (t *tee) begun() bool { return t.any.Load() }
