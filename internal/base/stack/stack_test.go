package stack_test

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"

	"github.com/wherry-node/wherry/internal/base/stack"
)

// deep uses about n KiB of stack.
//
//go:noinline
func deep(n int) byte {
	var frame [1 << 10]byte
	frame[n] = byte(n)
	if n > 0 {
		frame[0] = deep(n - 1)
	}
	return frame[n/2]
}

// The stacks of goroutines that called Grow have at least 16 KiB.
func TestGrow(t *testing.T) { //nolint:paralleltest // it measures the process
	const goroutines = 200
	grown := inUse(goroutines, stack.Grow)
	plain := inUse(goroutines, func() {})
	if each := (int64(grown) - int64(plain)) / goroutines; each < 8<<10 {
		t.Errorf("Grow adds %d bytes to each of %d stacks, want more than 8 KiB", each, goroutines)
	}
}

// inUse returns how much larger all stacks of the process are while goroutines wait that called f.
func inUse(goroutines int, f func()) uint64 {
	runtime.GC()
	before := stacks()
	var ready, ended sync.WaitGroup
	release := make(chan struct{})
	for range goroutines {
		ready.Add(1)
		ended.Go(func() {
			f()
			ready.Done()
			<-release
		})
	}
	ready.Wait()
	after := stacks()
	close(release)
	ended.Wait()
	return max(after, before) - before
}

func stacks() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// BenchmarkDeep compares goroutines that go 12 KiB deep.
func BenchmarkDeep(b *testing.B) {
	for name, f := range map[string]func(){"plain": func() {}, "grown": stack.Grow} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				done := make(chan struct{})
				go func() {
					f()
					deep(12)
					close(done)
				}()
				<-done
			}
		})
	}
}
