package work

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// wantLoad waits until all goroutines of the synctest bubble are blocked, and compares the load of the semaphore.
func wantLoad(t *testing.T, s *Semaphore, taken, waiting int) {
	t.Helper()
	synctest.Wait()
	if a, b := s.Load(); a != taken || b != waiting {
		t.Errorf("%d slots are taken and %d jobs wait, want %d and %d", a, b, taken, waiting)
	}
}

func TestJobsGetSlotsInTheOrderOfTheirArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Semaphore
		s.Bound(1)
		if err := s.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
		var order []int
		for i := range 5 {
			go func() {
				if err := s.Take(t.Context()); err != nil {
					t.Error(err)
				}
				order = append(order, i)
				s.Leave()
			}()
			wantLoad(t, &s, 1, i+1)
		}
		s.Leave()
		wantLoad(t, &s, 0, 0)
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Errorf("order %v", order)
		}
	})
}

func TestBoundChangesWhileJobsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Semaphore
		take := func(n int) {
			for range n {
				go func() {
					if err := s.Take(t.Context()); err != nil {
						t.Error(err)
					}
				}()
			}
		}
		take(10)
		wantLoad(t, &s, 10, 0)
		s.Bound(4)
		take(3)
		wantLoad(t, &s, 10, 3)
		for range 6 {
			s.Leave()
		}
		wantLoad(t, &s, 4, 3)
		s.Bound(6)
		wantLoad(t, &s, 6, 1)
		s.Bound(0)
		wantLoad(t, &s, 7, 0)
	})
}

// A job whose context ends while it waits, or just when it gets a slot, keeps no slot.
func TestACanceledJobKeepsNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 100 { // the scheduler of Go decides which of the two events the job sees first
			var s Semaphore
			s.Bound(1)
			if err := s.Take(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if s.Take(ctx) == nil {
					s.Leave()
				}
			}()
			wantLoad(t, &s, 1, 1)
			go cancel()
			go s.Leave()
			wantLoad(t, &s, 0, 0)
			cancel()
		}
	})
}
