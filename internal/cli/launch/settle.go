package launch

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settleAfter is how long a node has to be at rest, after its start or its last action on a pod, until Kubelet calls settle. A start takes less than
	// a second.
	settleAfter = 5 * time.Second
	// settleAgain is the time between two calls of settle while the node stays at rest. What a node does at rest leaves garbage, too, and some of it
	// uses code that nothing else uses.
	settleAgain = 5 * time.Minute
)

// atRest calls do when nobody has called acted for settleAfter, and from then on every settleAgain until somebody calls acted again. acted may be called
// concurrently. After stop, do is no longer begun.
func atRest(do func()) (acted, stop func()) {
	var mu sync.Mutex
	over := false
	var timer *time.Timer
	again := func(after time.Duration) bool {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			timer.Reset(after)
		}
		return !over
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(settleAfter, func() {
		if again(settleAgain) { // before do, so that an action during do counts
			do()
		}
	})
	return func() { again(settleAfter) }, func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}

// settle returns memory to the kernel that a node at rest does not need. The garbage is, after the start, certificates, lists and the first status, and
// after actions on pods the messages of the runtime and the API server; Go alone would collect such a small heap only every two minutes, and would return
// its memory even later. The code and the constants that only the start uses are half of the program. A call takes about 10 ms of processor time.
func settle() {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return // the memory stays
	}
	for _, m := range unchanged(string(text), os.Getpagesize()) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED) // an error means that the memory stays
	}
}

// mapping is a range of addresses.
type mapping struct{ begin, end uintptr }

// unchanged returns the private mappings of files in an smaps file (proc_pid_smaps(5)) that are read-only and of which the process has changed no page: a
// page that it has changed is anonymous. The kernel can drop the others at any time, because it finds the same content in the file. Pages are dirty, too,
// while the file itself is new and not yet on the disk, as a program is that was just installed; they stay in the page cache.
func unchanged(smaps string, pageSize int) (out []mapping) {
	var now mapping
	file, same := false, false
	keep := func() {
		if file && same && now.end > now.begin && now.begin%uintptr(pageSize) == 0 {
			out = append(out, now)
		}
	}
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		if len(fields) >= 5 && !strings.HasSuffix(fields[0], ":") { // the first line of a mapping; the sixth field is the file, if there is one
			keep()
			begin, end, _ := strings.Cut(fields[0], "-")
			b, err1 := strconv.ParseUint(begin, 16, 64)
			e, err2 := strconv.ParseUint(end, 16, 64)
			now = mapping{uintptr(b), uintptr(e)}
			file = err1 == nil && err2 == nil && len(fields) > 5 && (fields[1] == "r-xp" || fields[1] == "r--p") && strings.HasPrefix(fields[5], "/")
			same = true
			continue
		}
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "Anonymous:", "Locked:", "Swap:":
			same = same && fields[1] == "0"
		}
	}
	keep()
	return out
}
