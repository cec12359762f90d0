package integration

import (
	"fmt"
	"testing"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// imageRoom is how much of the file system of its images, in percent, a node keeps free: the default of imagefs.available.
const imageRoom = 15

// enoughRoom returns an error if the file system of the run's directory has so little space left that real nodes report DiskPressure. They would
// refuse all pods, and each test would only say that it waited in vain.
func enoughRoom(dir string) error {
	capacity, available, _, _, err := hostfs.Host{}.DiskSpace(dir)
	if err != nil {
		return err
	}
	return roomIn(dir, capacity, available)
}

func roomIn(dir string, capacity, available uint64) error {
	if available*100 >= capacity*imageRoom {
		return nil
	}
	const gib = 1 << 30
	return fmt.Errorf("the disk of %s is too full: %.1f of %.1f GiB are available, which is %d %%, and below %d %% (imagefs.available) real nodes report DiskPressure and refuse pods. Free %.1f GiB",
		dir, float64(available)/gib, float64(capacity)/gib, available*100/capacity, imageRoom, (float64(capacity)*imageRoom/100-float64(available))/gib)
}

func TestFullDiskIsReported(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, c := range []struct {
		available uint64
		want      string
	}{
		{100 * gib, ""}, {15 * gib, ""}, {0, "Free 15.0 GiB"},
		{14 * gib, "the disk of /x is too full: 14.0 of 100.0 GiB are available, which is 14 %, and below 15 % (imagefs.available) real nodes report DiskPressure and refuse pods. Free 1.0 GiB"},
	} {
		err := roomIn("/x", 100*gib, c.available)
		if (err != nil) != (c.want != "") || err != nil && lacks(err.Error(), c.want) != nil {
			t.Errorf("%d GiB available: %v, want %q", c.available/gib, err, c.want)
		}
	}
}
