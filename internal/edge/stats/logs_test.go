package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// logDisk is a disk on which every directory of logs has this size. It counts the measurements of such directories.
type logDisk struct {
	Disk
	bytes  uint64
	err    error
	walked int
}

func (d *logDisk) UntrustedDiskUsage(context.Context, string, int) (bytes, inodes uint64, err error) {
	d.walked++
	return d.bytes, 1, d.err
}

// LogSizes shows what the last complete measurement of a container's logs found, whichever part of the agent asked for it, and walks no
// directory itself. A measurement that fails leaves the one before it, which ends when it is 10 minutes old. Logs that are gone are not shown.
func TestLogSizes(t *testing.T) {
	t.Parallel()
	d := &logDisk{Disk: disk{}}
	now := at(0)
	stub := (&runtimeStub{}).main(1, at(0))
	s := newStats(t, func(c *Config) {
		c.Disk, c.HostRoot, c.Runtime, c.Images, c.Now = d, hostV1(t), stub, stub, func() time.Time { return now }
	})
	summary := func() error { get(t, s.Summary(), "/stats/summary"); return nil }
	short := func() error { get(t, s.Summary(), "/stats/summary?only_cpu_and_memory=true"); return nil }
	disks := func() error { _, err := s.PodDisks(t.Context(), webUID); return err }
	for i, step := range []struct {
		measure func() error
		bytes   uint64
		err     error
		after   time.Duration
		want    uint64 // 0: LogSizes shows nothing
	}{
		{short, 1, nil, 0, 0},
		{summary, 2, nil, 0, 2},
		{disks, 3, nil, 9 * time.Minute, 3},
		{disks, 4, errors.New("input/output error"), 0, 3},
		{short, 5, nil, time.Minute, 0},
		{disks, 6, nil, 0, 6},
		{disks, 0, fs.ErrNotExist, 0, 0},
		{summary, 7, nil, 0, 7},
		{summary, 0, fs.ErrNotExist, 0, 0},
	} {
		d.bytes, d.err = step.bytes, step.err
		if err := step.measure(); err != nil {
			t.Fatal(err)
		}
		now = now.Add(step.after)
		var want []ContainerLogs
		if step.want != 0 {
			want = []ContainerLogs{{pod.Ref{Namespace: "default", Name: "web", UID: webUID}, "main", step.want}}
		}
		walked := d.walked
		if diff := cmp.Diff(want, s.LogSizes()); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
		if d.walked != walked {
			t.Errorf("step %d: LogSizes walked %d directories", i, d.walked-walked)
		}
	}
}

// However many pods come and go, no more measurements are kept than twice the number of containers on the node, and those of the containers
// on the node are all kept. A container that has ended is not shown.
func TestLogSizesOfPodsThatAreGoneAreDropped(t *testing.T) {
	t.Parallel()
	const alive = 100
	now := pods{}
	s := newStats(t, func(c *Config) {
		c.Pods, c.Disk = podsNow{&now}, &logDisk{Disk: disk{}, bytes: 5}
	})
	most := 0
	for i := range 20 * alive {
		uid := types.UID(fmt.Sprint("pod-", i))
		now = append(now, &pod.Observed{Ref: pod.Ref{UID: uid}, Containers: []pod.Container{
			{ID: fmt.Sprint("c-", i), Name: "c", State: pod.StateRunning}, {ID: fmt.Sprint("d-", i), Name: "d", State: pod.StateExited},
		}})
		for _, name := range []string{"c", "d"} {
			if _, err := s.measureLogs(t.Context(), uid, &containerReading{name: name}); err != nil {
				t.Fatal(err)
			}
		}
		if len(now) > alive {
			now = slices.Delete(now, 0, 1)
		}
		most = max(most, len(s.logs.last))
	}
	if limit := 2 * 2 * (alive + 1); most > limit {
		t.Errorf("%d measurements were kept for %d containers, want at most %d", most, 2*alive, limit)
	}
	got := s.LogSizes()
	if len(got) != alive || slices.ContainsFunc(got, func(l ContainerLogs) bool { return l.Container != "c" || l.Bytes != 5 }) {
		t.Errorf("%d sizes are shown, want one for each of the %d running containers: %v", len(got), alive, got)
	}
}

// podsNow returns pods that change.
type podsNow struct{ of *pods }

func (p podsNow) Observed() []*pod.Observed { return *p.of }

// Where nobody measures the logs for another reason, a scrape lets Run measure them for the next one: at most once a minute, and only those that
// were not measured within the last minute.
func TestAScrapeLetsTheLogsBeMeasured(t *testing.T) {
	t.Parallel()
	root := hostV1(t)
	synctest.Test(t, func(t *testing.T) {
		d, now := &logDisk{Disk: disk{}, bytes: 1}, onePod()
		now[0].Containers = append(now[0].Containers, pod.Container{ID: "side", Name: "side", State: pod.StateRunning})
		stub := (&runtimeStub{}).main(1, at(0))
		s := newStats(t, func(c *Config) {
			c.Disk, c.HostRoot, c.Runtime, c.Images, c.Now, c.Pods = d, root, stub, stub, time.Now, podsNow{&now}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		scrape := func(sizes, walked int) {
			t.Helper()
			before := d.walked
			if got := s.LogSizes(); len(got) != sizes {
				t.Errorf("a scrape shows %v, want %d sizes", got, sizes)
			}
			synctest.Wait()
			if d.walked-before != walked {
				t.Errorf("a scrape let %d directories be walked, want %d", d.walked-before, walked)
			}
		}
		scrape(0, 2)
		scrape(2, 0)
		time.Sleep(59 * time.Second)
		scrape(2, 0)
		if _, err := s.PodDisks(ctx, webUID); err != nil { // measures the logs of both
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		now[0].Containers = append(now[0].Containers, pod.Container{ID: "new", Name: "new", State: pod.StateRunning})
		scrape(2, 1)
		scrape(3, 0)
		time.Sleep(time.Hour)
		scrape(0, 3)
		scrape(3, 0)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// silentFs is a runtime that does not say where its images are until answers is set. It counts how often it is asked.
type silentFs struct {
	*runtimeStub
	answers bool
	asked   int
}

func (s *silentFs) ImageFsInfo(ctx context.Context, r *runtimeapi.ImageFsInfoRequest, opts ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	if s.asked++; !s.answers {
		return nil, errors.New("not ready")
	}
	return s.runtimeStub.ImageFsInfo(ctx, r, opts...)
}

// lazyDisk is a disk on which it takes a moment to find out that there are no logs.
type lazyDisk struct{ disk }

func (lazyDisk) UntrustedDiskUsage(context.Context, string, int) (bytes, inodes uint64, err error) {
	time.Sleep(200 * time.Millisecond)
	return 0, 0, fs.ErrNotExist
}

// Scrapes that let the logs be measured once a minute do not keep Run from asking the runtime again, once a minute, where images and layers are.
func TestScrapesDoNotPutOffTheQuestionAboutLayers(t *testing.T) {
	t.Parallel()
	root := hostV1(t)
	synctest.Test(t, func(t *testing.T) {
		stub := &silentFs{runtimeStub: (&runtimeStub{}).main(1, at(0))}
		s := newStats(t, func(c *Config) {
			c.Disk, c.HostRoot, c.Runtime, c.Images, c.Now = lazyDisk{}, root, stub, stub, time.Now
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		scrape := func(times int) {
			for range times {
				s.LogSizes()
				time.Sleep(15 * time.Second)
			}
		}
		scrape(20)
		before := stub.asked
		scrape(40)
		if n := stub.asked - before; n < 8 {
			t.Errorf("in 10 minutes, the runtime was asked %d times", n)
		}
		stub.answers = true
		scrape(8)
		if s.LayerDir() == "" {
			t.Error("two minutes after the runtime began to answer, the directory of the layers is not known")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
