package stats

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// slowDisk is a disk whose walks over the logs of containers last until the test ends them.
type slowDisk struct {
	disk
	walk chan struct{} // closed: walks end

	mu    sync.Mutex
	began int
	ended int
}

func (d *slowDisk) UntrustedDiskUsage(ctx context.Context, dir string, depth int) (uint64, uint64, error) {
	d.mu.Lock()
	d.began++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ended++
	}()
	select {
	case <-d.walk:
		return d.disk.UntrustedDiskUsage(ctx, dir, depth)
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
}

// Requests for the summary at the same time share one measurement, so that many clients cannot make the node walk the same directories many times at
// once. The measurement ends early when all of them have gone, and only then.
func TestRequestsShareAMeasurement(t *testing.T) {
	t.Parallel()
	root := hostV2(t)
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{walk: make(chan struct{})}
		s := newStats(t, func(c *Config) { c.HostRoot, c.PodsGroup, c.Disk = root, "/kubepods.slice", d })
		get := func(ctx context.Context) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.Summary().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/stats/summary", nil))
			return w
		}
		ctx, cancel := context.WithCancel(t.Context())
		var gone, group sync.WaitGroup
		for range 5 {
			gone.Go(func() { get(ctx) })
		}
		synctest.Wait()
		cancel()
		gone.Wait()
		if d.began != 1 || d.ended != 1 {
			t.Errorf("%d walks have begun and %d ended for clients that are gone, want 1 and 1", d.began, d.ended)
		}
		ctx, cancel = context.WithCancel(t.Context())
		gone.Go(func() { get(ctx) })
		synctest.Wait()
		answers := make(chan string, 20)
		for range cap(answers) {
			group.Go(func() {
				w := get(t.Context())
				answers <- http.StatusText(w.Code) + w.Body.String()
			})
		}
		synctest.Wait()
		cancel() // the client that has begun the measurement goes; the others need it
		gone.Wait()
		close(d.walk)
		group.Wait()
		if d.began != 2 {
			t.Errorf("%d walks for %d requests at the same time, want one more", d.began-1, cap(answers))
		}
		first := <-answers
		for range cap(answers) - 1 {
			if other := <-answers; other != first || len(first) < 1000 {
				t.Errorf("two answers differ, or are empty:\n%s\n%s", first, other)
			}
		}
		get(t.Context())
		if d.began != 3 {
			t.Error("a later request got the old measurement")
		}
	})
}

// A measurement that panics ends only the requests that wait for it, as a panic in the request itself would, and not the program. The next request
// measures again.
func TestAPanicOfAMeasurementEndsOnlyItsRequests(t *testing.T) {
	t.Parallel()
	var s shared
	synctest.Test(t, func(t *testing.T) {
		begin := make(chan struct{})
		var waiters sync.WaitGroup
		var mu sync.Mutex
		panics := 0
		for range 3 {
			waiters.Go(func() {
				defer func() {
					if v, _ := recover().(string); strings.HasPrefix(v, "no such pod\n") {
						mu.Lock()
						panics++
						mu.Unlock()
					}
				}()
				_, _ = s.do(t.Context(), func(context.Context) ([]byte, error) {
					<-begin
					panic("no such pod")
				})
			})
		}
		synctest.Wait()
		close(begin)
		waiters.Wait()
		if panics != 3 {
			t.Errorf("%d of 3 requests ended with the panic", panics)
		}
	})
	if body, err := s.do(t.Context(), func(context.Context) ([]byte, error) { return []byte("ok"), nil }); string(body) != "ok" || err != nil {
		t.Errorf("the next request: %q, %v", body, err)
	}
}
