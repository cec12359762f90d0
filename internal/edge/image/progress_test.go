package image

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// slowStore is an image service whose pulls take until end is closed. While they run, arrives returns what is being downloaded at a time
// after the begin.
type slowStore struct {
	store
	end     chan struct{}
	began   time.Time
	arrives func(time.Duration) []Download
}

func (s *slowStore) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest, o ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	select {
	case <-s.end:
	case <-ctx.Done():
	}
	return s.store.PullImage(ctx, r, o...)
}

func (s *slowStore) downloads(context.Context) ([]Download, error) {
	if s.arrives == nil {
		return nil, errors.New("no answer")
	}
	return s.arrives(time.Since(s.began)), nil
}

// A pull in which nothing happens is reported once, to each pod that waits for it, with what is known about it, and goes on. A pull in which
// data arrives is never reported, however long it takes.
func TestAPullThatStalls(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20 // in this test not the function
	for _, c := range []struct {
		name    string
		arrives func(time.Duration) []Download
		silent  bool // the runtime does not report downloads
		want    string
		after   time.Duration
	}{
		{
			name:  "data arrives slowly",
			after: time.Hour,
			arrives: func(d time.Duration) []Download {
				return []Download{{"layer", int64(d / time.Minute), 1000}}
			},
		},
		{
			name:  "one layer after another",
			after: time.Hour,
			arrives: func(d time.Duration) []Download {
				return []Download{{fmt.Sprint("layer ", int(d/time.Minute)), 0, 0}}
			},
		},
		{
			name:  "the registry stops in the middle of a layer",
			after: 130 * time.Second,
			arrives: func(time.Duration) []Download {
				return []Download{{"layer", 12 * mib, 340 * mib}}
			},
			want: "no data has arrived for 2m0s; 12.0 of 340.0 MiB are here",
		},
		{
			name:    "a layer of unknown size",
			after:   130 * time.Second,
			arrives: func(time.Duration) []Download { return []Download{{"layer", 7 * mib, 0}} },
			want:    "no data has arrived for 2m0s; 7.0 MiB are here",
		},
		{
			name:    "the registry does not answer",
			after:   2 * time.Minute,
			arrives: func(time.Duration) []Download { return nil },
			want:    "nothing has been downloaded for 2m0s: the registry does not answer",
		},
		{
			name:  "the runtime unpacks for very long",
			after: 10*time.Minute + 30*time.Second,
			arrives: func(d time.Duration) []Download {
				if d < 30*time.Second {
					return []Download{{"layer", 1, mib}}
				}
				return nil
			},
			want: "nothing has been downloaded for 10m0s; the container runtime may be unpacking 1.0 MiB",
		},
		{name: "a runtime that does not report downloads", silent: true, after: 10 * time.Minute, want: "it has taken 10m0s so far, and the container runtime does not report whether data arrives"},
		{name: "a runtime that fails to report downloads", after: 10 * time.Minute, want: "it has taken 10m0s so far, and the container runtime does not report whether data arrives"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &slowStore{store: store{present: map[string]string{}}, end: make(chan struct{}), began: time.Now(), arrives: c.arrives}
				cfg := Config{Client: s, Downloads: s.downloads}
				if c.silent {
					cfg.Downloads = nil
				}
				m := New(cfg)
				var mu sync.Mutex
				var said []string
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						_, err := m.Ensure(t.Context(), Request{Image: "app:1", Stalled: func(text string) {
							mu.Lock()
							defer mu.Unlock()
							said = append(said, text)
						}})
						if err != nil {
							t.Error(err)
						}
					})
				}
				time.Sleep(c.after - time.Second)
				synctest.Wait()
				if len(said) > 0 {
					t.Errorf("too early: %q", said)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				var want []string
				if c.want != "" {
					want = []string{c.want, c.want} // each of the two pods
				}
				if d := cmp.Diff(want, said); d != "" {
					t.Errorf("said (-want +got):\n%s", d)
				}
				if p := m.Pulls(); len(p) != 1 || p[0].Image != "app:1" || p[0].Stalled != c.want || p[0].Queued || p[0].Running != 1 || p[0].Reported != (c.arrives != nil) {
					t.Errorf("pulls %+v", p)
				}
				time.Sleep(time.Hour)
				close(s.end)
				wg.Wait()
				if len(said) != len(want) {
					t.Errorf("said again: %q", said)
				}
				if p := m.Pulls(); len(p) != 0 {
					t.Errorf("after the end: %+v", p)
				}
			})
		})
	}
}

// The bytes of parts that have arrived count, although the runtime no longer lists these parts. A pull that waits for its turn is listed as
// one that waits, and is not reported as stalled. Ordinary pulls cost no call.
func TestProgressOfPulls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s := &slowStore{store: store{present: map[string]string{}}, end: make(chan struct{}), began: time.Now()}
		m := New(Config{Client: s, MaxParallel: 1, Downloads: func(context.Context) ([]Download, error) {
			asked++
			if time.Since(s.began) < 12*time.Second {
				return []Download{{"first", 60, 100}, {"second", 5, 50}}, nil
			}
			return []Download{{"second", 7 + int64(asked), 50}}, nil
		}})
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				_, _ = m.Ensure(t.Context(), Request{Image: fmt.Sprint("app:", i), Stalled: func(text string) { t.Errorf("stalled: %s", text) }})
			})
			time.Sleep(time.Second)
		}
		time.Sleep(8500 * time.Millisecond)
		if asked != 1 { // lookAfter has passed
			t.Errorf("%d calls", asked)
		}
		time.Sleep(5 * time.Second)
		p := m.Pulls()
		if len(p) != 2 || p[0].Received != 109 || p[0].Total != 150 || p[0].Queued || !p[1].Queued || p[1].Received != 0 || p[1].Running != 1 {
			t.Errorf("%+v", p)
		}
		time.Sleep(5 * time.Minute)
		close(s.end)
		wg.Wait()
		before := asked
		if _, err := m.Ensure(t.Context(), Request{Image: "quick:1"}); err != nil || asked != before {
			t.Errorf("a pull of a second made %d calls, %v", asked-before, err)
		}
	})
}

// The parts that are remembered are bounded.
func TestPartsAreBounded(t *testing.T) {
	t.Parallel()
	s := sight{began: time.Now(), moved: time.Now(), say: make(chan struct{})}
	var many []Download
	for i := range 3 * maxParts {
		many = append(many, Download{Ref: fmt.Sprint(i), Received: 1, Total: 2})
	}
	for range 3 {
		s.look(time.Now(), many, true)
		many = many[maxParts/2:]
	}
	if len(s.parts) > maxParts {
		t.Errorf("%d parts", len(s.parts))
	}
}
