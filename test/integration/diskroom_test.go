package integration

import (
	"fmt"
	"testing"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// leastRoom is how many bytes a run needs beside the hundredth of the disk that its nodes keep free (roomConfig); the tests write about 3 GiB.
const leastRoom = 4 << 30

// enoughRoom returns an error if the file system of the run's directory has so little space left that its nodes would report DiskPressure. They
// would refuse all pods, and each test would only say that it waited in vain.
func enoughRoom(dir string) error {
	capacity, available, _, _, err := hostfs.Host{}.DiskSpace(dir)
	if err != nil {
		return err
	}
	return roomIn(dir, capacity, available)
}

func roomIn(dir string, capacity, available uint64) error {
	need := leastRoom + capacity/100
	if available >= need {
		return nil
	}
	const gib = 1 << 30
	return fmt.Errorf("the disk of %s is too full: %.1f GiB are available, and the tests need %.1f. Free %.1f GiB, or set TMPDIR to a directory on another disk",
		dir, float64(available)/gib, float64(need)/gib, float64(need-available)/gib)
}

func TestFullDiskIsReported(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, c := range []struct {
		available uint64
		want      string
	}{
		{100 * gib, ""}, {5 * gib, ""}, {0, "Free 5.0 GiB"},
		{4 * gib, "the disk of /x is too full: 4.0 GiB are available, and the tests need 5.0. Free 1.0 GiB, or set TMPDIR to a directory on another disk"},
	} {
		err := roomIn("/x", 100*gib, c.available)
		if (err != nil) != (c.want != "") || err != nil && lacks(err.Error(), c.want) != nil {
			t.Errorf("%d bytes available: %v, want %q", c.available, err, c.want)
		}
	}
}
