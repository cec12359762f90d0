package fleetctl

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

const (
	// gcRest is GOGC of a fleet at rest, unless the user sets another. Most of the heap are nodes and pods that stay, so Go's default of 100
	// would let the process use twice their memory.
	gcRest = 50
	// gcMost is the greatest GOGC of a fleet whose nodes join, or whose pods start or end.
	gcMost = 300
	// gcWanted is the time between two collections for which a busy fleet uses more memory. Each collection looks at all nodes and pods, which
	// takes a second of processor time for some thousands of nodes.
	gcWanted = 10 * time.Second
	// gcOften is the time between two collections with gcRest below which a fleet is busy. At rest, it collects every four to six seconds, whatever
	// its number of nodes.
	gcOften = 2500 * time.Millisecond
	// gcLook is the time between two looks at how much memory the fleet allocates.
	gcLook = 2 * time.Second
	// gcQuiet is how many looks in succession must find the fleet at rest before it gives memory back.
	gcQuiet = 5
)

// percentOf returns GOGC for a process with live bytes of heap that stay, which allocates rate bytes a second, on a machine with this many bytes of
// free memory. Of the free memory, garbage gets at most a quarter.
func percentOf(live, rate, free uint64) int {
	if live == 0 || rate*uint64(gcOften/time.Millisecond)/1000 < live*gcRest/100 {
		return gcRest
	}
	garbage := min(rate*uint64(gcWanted/time.Second), free/4)
	return int(min(max(garbage*100/live, gcRest), gcMost))
}

// paceGC sets GOGC of the process from time to time, until ctx ends: a busy fleet may use more memory, so that it spends less time on collections. If the user
// has set GOGC, paceGC does nothing. At the end it sets what was set before.
func paceGC(ctx context.Context) {
	if os.Getenv("GOGC") != "" {
		return
	}
	now := gcRest
	defer debug.SetGCPercent(debug.SetGCPercent(now))
	look := time.NewTicker(gcLook)
	defer look.Stop()
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	allocated, quiet := samples[0].Value.Uint64(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		mem, err := (hostfs.Machine{}).Memory()
		if err != nil {
			continue
		}
		metrics.Read(samples)
		rate := (samples[0].Value.Uint64() - allocated) / uint64(gcLook/time.Second)
		allocated = samples[0].Value.Uint64()
		live, limit := samples[1].Value.Uint64(), uint64(debug.SetMemoryLimit(-1)) // the limit is GOMEMLIMIT
		want := percentOf(live, rate, min(mem.AvailableBytes, limit-min(live, limit)))
		if quiet++; want > gcRest {
			quiet = 0
		}
		switch {
		case want > now: // the greatest value of a busy time stays until its end
			now = want
			debug.SetGCPercent(now)
		case now > gcRest && quiet >= gcQuiet:
			now = gcRest
			debug.SetGCPercent(now)
			debug.FreeOSMemory()
		}
	}
}
