package fleet

import (
	"testing"
	"time"
)

// The number of nodes that may join at the same time grows while joins are fast, and falls when a join is slow. Other slow joins that began
// before the fall do not lower it again.
func TestPace(t *testing.T) {
	t.Parallel()
	p := newPace()
	for range 100 {
		p.ended(100 * time.Millisecond)
	}
	if p.window != 108 {
		t.Fatalf("%v at once after 100 fast joins, want 108", p.window)
	}
	for range 55 {
		p.ended(2 * time.Second)
	}
	if p.window != 54 {
		t.Errorf("%v at once after a slow generation, want 54", p.window)
	}
	p.ended(2 * time.Second)
	if p.window != 27 {
		t.Errorf("%v at once after the next slow join, want 27", p.window)
	}
	for range 1000 {
		p.ended(2 * time.Second)
	}
	if p.window != paceLeast {
		t.Errorf("%v at once if all are slow, want %d", p.window, paceLeast)
	}
	for range 100_000 {
		p.ended(100 * time.Millisecond)
	}
	if p.window != paceMost {
		t.Errorf("%v at once, want the bound of %d", p.window, paceMost)
	}
}

// While the leases of the other nodes are renewed a little late, one node joins at a time. While they are renewed very late, none does.
func TestPaceMindsTheLeases(t *testing.T) {
	t.Parallel()
	p := newPace()
	for _, c := range []struct {
		joining int
		late    time.Duration
		want    bool
	}{
		{0, 0, true}, {7, time.Second, true}, {8, 0, false}, {0, 3 * time.Second, true}, {1, 3 * time.Second, false}, {0, 10 * time.Second, false},
	} {
		if got := p.allows(c.joining, c.late); got != c.want {
			t.Errorf("%d join, leases %s late: allows %v, want %v", c.joining, c.late, got, c.want)
		}
	}
}
