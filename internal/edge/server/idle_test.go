package server

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A stream is cut when it has been idle for the limit, counted from its last use.
func TestIdleCountsFromTheLastUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		began := time.Now()
		i, stop := watchIdle(4*time.Hour, func() { ended.Store(true) })
		defer stop()
		for range 10 {
			time.Sleep(3 * time.Hour)
			i.touch()
		}
		synctest.Wait()
		if ended.Load() {
			t.Fatalf("it was cut after %s, though it is used", time.Since(began))
		}
		time.Sleep(4*time.Hour - time.Second)
		synctest.Wait()
		if ended.Load() {
			t.Fatal("it was cut too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !ended.Load() {
			t.Fatal("it was not cut")
		}
	})
}

// Pings do not keep a stream alive: only other frames count, whatever pieces the bytes arrive in.
func TestPingsAreNoUse(t *testing.T) {
	t.Parallel()
	spdyPing := []byte{0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1}
	spdyData := []byte{0, 0, 0, 1, 0, 0, 0, 3, 'a', 'b', 'c'}
	wsPing := []byte{0x89, 0x84, 1, 2, 3, 4, 0x80, 3, 0, 6}
	wsData := append([]byte{0x82, 0xfe, 0, 200, 1, 2, 3, 4}, make([]byte, 200)...)
	wsLong := append([]byte{0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0}, make([]byte, 1<<16)...)
	for _, c := range []struct {
		name   string
		socket bool
		frames [][]byte
		counts bool
	}{
		{"SPDY pings", false, [][]byte{spdyPing, spdyPing, spdyPing}, false},
		{"SPDY data between pings", false, [][]byte{spdyPing, spdyData, spdyPing}, true},
		{"WebSocket pings", true, [][]byte{wsPing, wsPing}, false},
		{"WebSocket data after a ping", true, [][]byte{wsPing, wsData}, true},
		{"a long WebSocket message", true, [][]byte{wsPing, wsLong}, true},
	} {
		for _, piece := range []int{1, 3, 7, 1 << 20} {
			m := meterOf(c.socket)
			counts := 0
			var all []byte
			for range 3 {
				for _, f := range c.frames {
					all = append(all, f...)
				}
			}
			for len(all) > 0 {
				n := min(piece, len(all))
				if m.carries(all[:n]) {
					counts++
				}
				all = all[n:]
			}
			if c.counts != (counts > 0) {
				t.Errorf("%s in pieces of %d: counted %d times, want %t", c.name, piece, counts, c.counts)
			}
			if len(m.header) > 0 || m.follow > 0 {
				t.Errorf("%s in pieces of %d: it is out of step", c.name, piece)
			}
		}
	}
}
