package bubble_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/base/bubble"
)

// An hour takes no time, and an error comes back.
func TestHour(t *testing.T) {
	t.Parallel()
	real, want := time.Now(), errors.New("it")
	err := bubble.Run(func(bubble.Settle) error {
		began := time.Now()
		time.Sleep(time.Hour)
		if passed := time.Since(began); passed != time.Hour {
			t.Errorf("%s passed", passed)
		}
		return want
	})
	if took := time.Since(real); err != want || took > time.Minute {
		t.Errorf("%v after %s", err, took)
	}
}

// What cannot go on is an error, and a panic of f is one.
func TestStuck(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func() error{
		"cannot go on: deadlock: ": func() error { <-make(chan int); return nil },
		"goroutines remain": func() error {
			never := make(chan int)
			go func() { <-never }()
			return nil
		},
		"panic in virtual time: boom": func() error { panic("boom") },
	} {
		if err := bubble.Run(func(bubble.Settle) error { return f() }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Settle returns after all that happens at the same instant, also when several goroutines call it.
func TestSettle(t *testing.T) {
	t.Parallel()
	err := bubble.Run(func(settle bubble.Settle) error {
		var mu sync.Mutex
		var n int
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				n++
			})
		}
		for range 10 {
			group.Go(func() {
				time.Sleep(time.Second)
				settle()
				mu.Lock()
				defer mu.Unlock()
				if n != 100 {
					t.Errorf("only %d of 100 have happened", n)
				}
			})
		}
		group.Wait()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Run prints nothing.
func TestSilent(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, errs := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = w, w
	err = bubble.Run(func(bubble.Settle) error { time.Sleep(time.Second); return nil })
	os.Stdout, os.Stderr = out, errs
	_ = w.Close()
	said := make([]byte, 100)
	if n, _ := r.Read(said); n > 0 || err != nil {
		t.Errorf("said %q, %v", said[:n], err)
	}
}
