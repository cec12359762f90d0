package volume_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// PersistentUsage returns what a driver with the capability GET_VOLUME_STATS answers, with 0 for negative numbers. After the pod's end, no
// result of its volumes is kept.
func TestUsageOfACSIVolume(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Stage: true, Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: 100, Used: 30, Available: 70},
		{Unit: csi.VolumeUsage_INODES, Total: 10, Used: 3, Available: -1},
	}})
	f.disk("c")
	p := podOf("u1", claim("v", "c", false))
	setUp(t, f.fixture, p)
	list, err := f.Volumes.PersistentUsage(t.Context(), p)
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	u := list[0]
	if u.Time.IsZero() {
		t.Error("no time")
	}
	u.Time = time.Time{}
	want := volume.Usage{Name: "v", Claim: "c", CapacityBytes: 100, UsedBytes: 30, AvailableBytes: 70, Inodes: 10, InodesUsed: 3}
	if u != want {
		t.Errorf("%+v, want %+v", u, want)
	}
	asked := count(f.driver.Calls(), "NodeGetVolumeStats")
	if _, err := f.Volumes.PersistentUsage(t.Context(), p); err != nil || count(f.driver.Calls(), "NodeGetVolumeStats") != asked || asked != 1 {
		t.Errorf("%d questions for two scrapes within a minute, %v", count(f.driver.Calls(), "NodeGetVolumeStats"), err)
	}
	f.mu.Lock()
	if !slices.Equal(f.measured, []string{driverName}) {
		t.Errorf("measured by %q, want by the driver", f.measured)
	}
	f.mu.Unlock()
	if err := f.Volumes.TearDown(t.Context(), pod.RefOf(p)); err != nil {
		t.Fatal(err)
	}
	if list, err := f.Volumes.PersistentUsage(t.Context(), p); len(list) != 0 || err != nil {
		t.Errorf("of a pod that is gone: %+v, %v", list, err)
	}
}

func count(calls []string, method string) (n int) {
	for _, c := range calls {
		if strings.HasPrefix(c, method+" ") {
			n++
		}
	}
	return n
}

// PersistentUsage does not call a driver without the capability GET_VOLUME_STATS, and returns no usage of its volumes.
func TestUsageThatNobodyKnows(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{})
	f.disk("c")
	p := podOf("u1", claim("v", "c", false))
	setUp(t, f.fixture, p)
	if list, err := f.Volumes.PersistentUsage(t.Context(), p); len(list) != 0 || err != nil || count(f.driver.Calls(), "NodeGetVolumeStats") != 0 {
		t.Errorf("%+v, %v, calls %q", list, err, f.driver.Calls())
	}
}

// The usage of a local volume is that of its file system.
func TestUsageOfALocalVolume(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	f.claims.bind("c", local(t.TempDir()))
	p := aPod(claim("v", "c", false))
	setUp(t, f, p)
	var measured []string
	v := volume.New(volume.Config{RootDir: f.root, Host: host(t), Claims: f.claims, Measured: func(source string, _ time.Duration) { measured = append(measured, source) }})
	list, err := v.PersistentUsage(t.Context(), p)
	if !slices.Equal(measured, []string{"statfs"}) {
		t.Errorf("measured by %q", measured)
	}
	if err != nil || len(list) != 1 || list[0].Claim != "c" || list[0].CapacityBytes == 0 || list[0].CapacityBytes != list[0].UsedBytes+list[0].AvailableBytes {
		t.Errorf("%+v, %v", list, err)
	}
}

// deadDisk is a host on which measuring a file system hangs.
type deadDisk struct {
	hostfs.Host
	asked   chan struct{} // receives a value for each measurement
	release chan struct{}
}

func (d *deadDisk) DiskSpace(string) (capacity, available, inodes, inodesFree uint64, err error) {
	d.asked <- struct{}{}
	<-d.release
	return 8, 4, 2, 1, nil
}

// A dead mount delays a caller once, and no more than one measurement of it is ever in flight. When the mount answers again,
// PersistentUsage returns its usage.
func TestUsageOfADeadMount(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	f.claims.bind("c", local(t.TempDir()))
	p := aPod(claim("v", "c", false))
	setUp(t, f, p)
	d := &deadDisk{asked: make(chan struct{}, 10), release: make(chan struct{})}
	v := volume.New(volume.Config{RootDir: f.root, Host: d, Claims: f.claims})
	for range 3 {
		if list, err := v.PersistentUsage(t.Context(), p); len(list) != 0 || err != nil {
			t.Fatalf("%+v, %v", list, err)
		}
	}
	if n := len(d.asked); n != 1 {
		t.Errorf("%d measurements in flight", n)
	}
	close(d.release)
	for {
		list, err := v.PersistentUsage(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 {
			if list[0].UsedBytes != 4 {
				t.Errorf("%+v", list[0])
			}
			return
		}
	}
}

// lyingDisk is a host on which a file server reports more free space than it has.
type lyingDisk struct{ hostfs.Host }

func (lyingDisk) DiskSpace(string) (capacity, available, inodes, inodesFree uint64, err error) {
	return 8, 9, 2, 1 << 63, nil
}

// The usage of a file system with more free space than space, as a file server may report it, is 0 and not a huge number.
func TestUsageOfAFileServerThatLies(t *testing.T) {
	t.Parallel()
	needRoot(t)
	f := newFixture(t)
	f.claims.bind("c", local(t.TempDir()))
	p := aPod(claim("v", "c", false))
	setUp(t, f, p)
	list, err := volume.New(volume.Config{RootDir: f.root, Host: lyingDisk{}, Claims: f.claims}).PersistentUsage(t.Context(), p)
	if err != nil || len(list) != 1 || list[0].UsedBytes != 0 || list[0].InodesUsed != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// A driver may answer with any numbers, any number of them and any text. None of them gets far: the usage is what the last usable part says, and the text is
// short and printable.
func TestUsageOfADriverThatAnswersAnything(t *testing.T) {
	t.Parallel()
	parts := []*csi.VolumeUsage{{}, {Unit: 77, Total: 1}, {Unit: csi.VolumeUsage_BYTES, Total: math.MinInt64, Used: math.MinInt64, Available: -1}}
	for range 20_000 {
		parts = append(parts, &csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: math.MaxInt64, Used: math.MaxInt64, Available: math.MaxInt64})
	}
	f := newCSI(t, simcsi.Config{Usage: parts, Condition: &csi.VolumeCondition{Abnormal: true, Message: "\x00\x1b[31m\n" + strings.Repeat("x", 100_000)}})
	f.health = true
	f.Volumes = f.restart()
	f.disk("c")
	p := podOf("u1", claim("v", "c", false))
	setUp(t, f.fixture, p)
	list, err := f.PersistentUsage(t.Context(), p)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d results, %v", len(list), err)
	}
	u := list[0]
	if u.CapacityBytes != 0 || u.UsedBytes != 0 || u.AvailableBytes != 0 || u.Inodes != math.MaxInt64 || u.InodesUsed != math.MaxInt64 {
		t.Errorf("usage %+v", u)
	}
	if u.Health == nil || !u.Health.Abnormal || len(u.Health.Message) > pod.TextBytes || strings.ContainsAny(u.Health.Message, "\x00\x1b") {
		t.Errorf("condition %+v", u.Health)
	}
}

// A server that does not answer keeps as many measurements as are in flight at the same time. The volumes of a driver are measured all the same.
func TestDeadMountsDelayNoOtherSource(t *testing.T) {
	t.Parallel()
	f := newCSI(t, simcsi.Config{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: 100}}})
	f.disk("d")
	alive := podOf("alive", claim("v", "d", false))
	var volumes []v1.Volume
	for i := range 70 {
		name := fmt.Sprint("c", i)
		f.claims.bind(name, local(t.TempDir()))
		volumes = append(volumes, claim("v"+name, name, false))
	}
	dead := podOf("dead", volumes...)
	setUp(t, f.fixture, alive)
	setUp(t, f.fixture, dead)
	d := &deadDisk{asked: make(chan struct{}, 100), release: make(chan struct{})}
	t.Cleanup(func() { close(d.release) })
	v := volume.New(volume.Config{RootDir: f.root, Host: d, Claims: f.claims, Driver: func(string) volume.Driver { return f.registeredDriver() }})
	if list, err := v.PersistentUsage(t.Context(), dead); len(list) != 0 || err != nil {
		t.Errorf("of dead mounts: %+v, %v", list, err)
	}
	if n := len(d.asked); n != 64 {
		t.Errorf("%d measurements of dead mounts in flight, want 64", n)
	}
	if list, err := v.PersistentUsage(t.Context(), alive); len(list) != 1 || err != nil {
		t.Errorf("of a driver that answers: %+v, %v", list, err)
	}
}

// deadRecords is a disk on which reading a record hangs.
type deadRecords struct {
	volume.Disk
	asked   chan struct{}
	release chan struct{}
}

func (d deadRecords) ReadFile(path string) ([]byte, error) {
	d.asked <- struct{}{}
	<-d.release
	return d.Disk.ReadFile(path)
}

// If the disk of the records hangs, a scrape waits a second, as for a dead mount, and not for ever.
func TestUsageWhenTheDiskOfTheRecordsHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := deadRecords{Disk: &volume.MemoryDisk{}, asked: make(chan struct{}, 10), release: make(chan struct{})}
		v := volume.New(volume.Config{RootDir: "/root", Host: hostfs.Host{}, Disk: d})
		p := aPod(claim("v", "c", false))
		for range 3 {
			began := time.Now()
			if list, err := v.PersistentUsage(t.Context(), p); len(list) != 0 || err != nil {
				t.Errorf("%+v, %v", list, err)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("the caller waited %s", took)
			}
		}
		if n := len(d.asked); n != 1 {
			t.Errorf("the record was read %d times at once", n)
		}
		close(d.release)
		synctest.Wait()
	})
}
