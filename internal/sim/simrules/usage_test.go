package simrules

import (
	"math"
	"testing"
	"time"
)

// usage returns the memory of a Do in YAML.
func usage(t *testing.T, text string) *Usage {
	t.Helper()
	do, err := ParseDo("test", []byte("memory: "+text))
	if err != nil {
		t.Fatal(err)
	}
	return do.Memory
}

func TestUsageOverTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		at   time.Duration
		want float64
	}{
		{"{value: 5}", time.Hour, 5},
		{"{value: 5, perSecond: 2}", 10 * time.Second, 25},
		{"{value: 10, to: 20, over: 10s}", 0, 10},
		{"{value: 10, to: 20, over: 10s}", 5 * time.Second, 15},
		{"{value: 10, to: 20, over: 10s}", time.Hour, 20},
		{"{value: 20, to: 10, over: 10s}", 5 * time.Second, 15},
		{"{series: [{at: 10s, value: 1}, {at: 20s, value: 3}]}", 0, 1},
		{"{series: [{at: 10s, value: 1}, {at: 20s, value: 3}]}", 15 * time.Second, 2},
		{"{series: [{at: 10s, value: 1}, {at: 20s, value: 3}]}", time.Minute, 3},
		{"{series: [{at: 0s, value: 1}, {at: 10s, value: 3}], repeat: true}", 25 * time.Second, 2},
		{"{value: 10, wave: {amplitude: 4, period: 40s}}", 10 * time.Second, 14},
		{"{value: 10, wave: {amplitude: 4, period: 40s}}", 30 * time.Second, 6},
	} {
		if got := usage(t, c.text).At(c.at, 1); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s after %s: %v, want %v", c.text, c.at, got, c.want)
		}
	}
}

// Sum is the integral of At: it is compared with a sum over small steps. Neither is ever negative, and the sum never falls.
func TestSumIsTheIntegral(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{value: 5}", "{value: 5, perSecond: 2}", "{value: 10, to: 20, over: 10s}", "{value: 20, to: 0, over: 15s}",
		"{series: [{at: 10s, value: 1}, {at: 20s, value: 3}, {at: 21s, value: 0}]}",
		"{series: [{at: 0s, value: 1}, {at: 7s, value: 3}], repeat: true}",
		"{value: 10, wave: {amplitude: 10, period: 8s}}", "{value: 10, noise: 10}", "{value: 10, to: 30, over: 20s, noise: 3, wave: {amplitude: 7, period: 5s}}",
	} {
		u := usage(t, text)
		const step = 10 * time.Millisecond
		sum, last := 0.0, 0.0
		for at := time.Duration(0); at < 50*time.Second; at += step {
			v := u.At(at+step/2, 42)
			if v < 0 {
				t.Fatalf("%s: %v after %s", text, v, at)
			}
			sum += v * step.Seconds()
			got := u.Sum(at+step, 42)
			if math.Abs(got-sum) > 0.05*max(1, sum)/2 || got < last {
				t.Fatalf("%s: the sum after %s is %v, want %v; before it was %v", text, at+step, got, sum, last)
			}
			last = got
		}
	}
}

// Throttled is the integral of the smaller of usage and limit, in whatever parts the time is asked for.
func TestThrottledIsTheIntegralBelowTheLimit(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{value: 5}", "{value: 5, perSecond: 2}", "{value: 10, to: 20, over: 10s}", "{value: 20, to: 0, over: 15s}",
		"{series: [{at: 10s, value: 1}, {at: 20s, value: 30}, {at: 21s, value: 0}]}",
		"{series: [{at: 0s, value: 1}, {at: 7s, value: 30}], repeat: true}",
		"{value: 10, wave: {amplitude: 10, period: 8s}}", "{value: 10, noise: 10}",
	} {
		u := usage(t, text)
		for _, limit := range []float64{0, 3, 12, 100, math.Inf(1)} {
			const step = 10 * time.Millisecond
			want, parts := 0.0, 0.0
			for at := time.Duration(0); at < 50*time.Second; at += step {
				want += min(u.At(at+step/2, 42), limit) * step.Seconds()
			}
			for at := time.Duration(0); at < 50*time.Second; at += 2500 * time.Millisecond {
				part := u.Throttled(at, at+2500*time.Millisecond, limit, 42)
				if part < 0 {
					t.Errorf("%s with limit %v: %v from %s on", text, limit, part, at)
				}
				parts += part
			}
			whole := u.Throttled(0, 50*time.Second, limit, 42)
			if tolerance := 0.01*want + 0.05; math.Abs(whole-want) > tolerance || math.Abs(parts-want) > tolerance {
				t.Errorf("%s with limit %v: %v, in parts %v, want %v", text, limit, whole, parts, want)
			}
		}
		if got := u.Throttled(time.Second, time.Second, 1, 42); got != 0 {
			t.Errorf("%s: %v in no time", text, got)
		}
	}
}

// Exceeds finds the first time at which the usage is larger than the limit.
func TestExceeds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want time.Duration // negative: never
	}{
		{"{value: 100}", -1},
		{"{value: 101}", 0},
		{"{value: 50, perSecond: 10}", 5*time.Second + time.Millisecond},
		{"{value: 50, to: 150, over: 10s}", 5*time.Second + time.Millisecond},
		{"{value: 50, to: 100, over: 10s}", -1},
		{"{series: [{at: 0s, value: 0}, {at: 10s, value: 200}]}", 5*time.Second + time.Millisecond},
		{"{series: [{at: 0s, value: 0}, {at: 10s, value: 20}]}", -1},
		{"{value: 90, wave: {amplitude: 20, period: 60s}}", 6 * time.Second},
		{"{value: 90, wave: {amplitude: 5, period: 60s}}", -1},
	} {
		u := usage(t, c.text)
		at, ok := u.Exceeds(100, 1)
		if ok != (c.want >= 0) || ok && (at-c.want).Abs() > time.Second {
			t.Errorf("%s: %s %v, want %s", c.text, at, ok, c.want)
		}
		if ok && u.At(at, 1) <= 100 {
			t.Errorf("%s: %v at that time", c.text, u.At(at, 1))
		}
	}
}
