package integration

import (
	"fmt"
	"testing"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// leastRoom is how many bytes a run needs: what the tests write (about 3 GiB) and what its nodes keep free (roomConfig).
const leastRoom = 5 << 30

// enoughRoom returns an error if the file system of the run's directory has so little space left that its nodes would report DiskPressure. They
// would refuse all pods, and each test would only say that it waited in vain.
func enoughRoom(dir string) error {
	_, available, _, _, err := hostfs.Host{}.DiskSpace(dir)
	if err != nil {
		return err
	}
	return roomIn(dir, available)
}

func roomIn(dir string, available uint64) error {
	if available >= leastRoom {
		return nil
	}
	const gib = 1 << 30
	return fmt.Errorf("the disk of %s is too full: %.1f GiB are available, and the tests need %d. Free %.1f GiB, or set TMPDIR to a directory on another disk",
		dir, float64(available)/gib, leastRoom/gib, float64(leastRoom-available)/gib)
}

func TestFullDiskIsReported(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, c := range []struct {
		available uint64
		want      string
	}{
		{100 * gib, ""}, {5 * gib, ""}, {0, "Free 5.0 GiB"},
		{4 * gib, "the disk of /x is too full: 4.0 GiB are available, and the tests need 5. Free 1.0 GiB, or set TMPDIR to a directory on another disk"},
	} {
		err := roomIn("/x", c.available)
		if (err != nil) != (c.want != "") || err != nil && lacks(err.Error(), c.want) != nil {
			t.Errorf("%d bytes available: %v, want %q", c.available, err, c.want)
		}
	}
}
