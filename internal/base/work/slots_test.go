package work

import (
	"math/rand/v2"
	"testing"
	"time"
)

// started simulates pods that start with the slots of a Slots, as the Gate of package podworker lets them. It returns the number of slots
// after each pod, and the time for all pods together. took returns how long a start takes when n pods start at once.
func started(pods, least, most int, took func(n int) time.Duration) (slots []int, all time.Duration) {
	type pod struct {
		began, ends time.Time
		among       int
	}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := begin
	p := NewSlots(least, most, now)
	var inside []pod
	for waiting := pods; waiting > 0 || len(inside) > 0; {
		for waiting > 0 && len(inside) < p.Now() {
			n := len(inside) + 1
			inside = append(inside, pod{now, now.Add(took(n)), n})
			waiting--
		}
		first := 0
		for i := range inside {
			if inside[i].ends.Before(inside[first].ends) {
				first = i
			}
		}
		done := inside[first]
		now = done.ends
		p.Ended(done.began, now, float64(done.among+len(inside))/2, waiting > 0)
		inside = append(inside[:first], inside[first+1:]...)
		slots = append(slots, p.Now())
	}
	return slots, now.Sub(begin)
}

// computes is the duration of a start that only computes, when n starts share two processors.
func computes(n int) time.Duration { return 280 * time.Millisecond * time.Duration(max(2, n)) / 2 }

// waits is the duration of a start that waits for something outside the machine.
func waits(int) time.Duration { return 2 * time.Second }

func noisy(took func(int) time.Duration) func(int) time.Duration {
	r := rand.New(rand.NewPCG(3, 4))
	return func(n int) time.Duration { return time.Duration(float64(took(n)) * (0.7 + 0.6*r.Float64())) }
}

func over(slots []int, n int) (count int) {
	for _, p := range slots {
		if p > n {
			count++
		}
	}
	return count
}

// If starts wait for a network, more of them at once take no longer, so the number of slots grows.
func TestSlotsGrowWhereStartsWait(t *testing.T) {
	t.Parallel()
	for name, took := range map[string]func(int) time.Duration{"alike": waits, "noisy": noisy(waits)} {
		const pods = 100
		slots, all := started(pods, 6, 64, took)
		_, constant := started(pods, 6, 6, took)
		if all > constant/2 {
			t.Errorf("%s: %d starts took %v, with a constant number of slots %v: %v", name, pods, all, constant, slots)
		}
	}
}

// If starts compute, more of them at once only take time from each other, so the number of slots stays near the minimum.
func TestSlotsStayWhereStartsCompute(t *testing.T) {
	t.Parallel()
	for name, took := range map[string]func(int) time.Duration{"alike": computes, "noisy": noisy(computes)} {
		const pods = 1000
		slots, _ := started(pods, 6, 64, took)
		if n := over(slots, 6); n > pods/3 {
			t.Errorf("%s: at %d of %d starts there were more than 6 slots: %v", name, n, pods, slots)
		}
		if n := over(slots, 12); n > pods/50 {
			t.Errorf("%s: at %d of %d starts there were more than 12 slots: %v", name, n, pods, slots)
		}
	}
}

// The number of slots shrinks again when the starts no longer wait for something but use the CPU.
func TestSlotsShrink(t *testing.T) {
	t.Parallel()
	n := 0
	slots, _ := started(1500, 6, 64, func(among int) time.Duration {
		if n++; n <= 300 {
			return waits(among)
		}
		return computes(among)
	})
	if before := slots[200:300]; over(before, 40) == 0 {
		t.Errorf("few slots after 300 starts that wait: %v", before)
	}
	if last := slots[len(slots)-100:]; over(last, 12) > 0 {
		t.Errorf("slots stay: %v", last)
	}
}

// If minimum and maximum are equal, the number of slots stays, and in no case does it leave its bounds.
func TestSlotsKeepTheirBounds(t *testing.T) {
	t.Parallel()
	constant, _ := started(200, 5, 5, waits)
	bounded, _ := started(400, 6, 20, noisy(waits))
	if over(constant, 5) > 0 || over(bounded, 20) > 0 || over(bounded, 5) < len(bounded) {
		t.Errorf("%v\n%v", constant, bounded)
	}
}
