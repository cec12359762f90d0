package agent_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent"
)

// changingPods is how many pods change on the node of BenchmarkConsoleStream.
const changingPods = 100

// streamFor is how long BenchmarkConsoleStream measures with a viewer, and as long without one, again and again.
const streamFor = 15 * time.Second

// BenchmarkConsoleStream measures the processor time that one viewer of the console costs on a node whose 100 pods all change: each runs for
// a second, crashes, and starts again three seconds later. The viewer also sees the details of one pod. The benchmark measures the process
// with the viewer, and in turn without, so the result stream-%core includes the viewer's own reads. Its results are in docs/console.md.
func BenchmarkConsoleStream(b *testing.B) {
	kubelet := agent.DefaultConfiguration()
	kubelet.MaxPods = changingPods
	kubelet.FeatureGates = map[string]bool{"KubeletCrashLoopBackOffMax": true}
	kubelet.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: 3 * time.Second}
	n := startFullNode(b, kubelet, func(i int) string {
		return fmt.Sprintf("metadata: {name: web-%03d, annotations: {wherry.dev/sim-run-for: 1s, wherry.dev/sim-exit-code: '3'}}\nspec: {containers: [{name: main, image: registry.example/app:1}]}\n", i)
	})
	var with, without, seconds, got float64
	for b.Loop() {
		began := processorTime(b)
		await(b, streamFor)
		without += processorTime(b) - began
		began = processorTime(b)
		got += float64(n.watch(b, "/console/stream?detail=default/web-001", streamFor))
		with += processorTime(b) - began
		seconds += streamFor.Seconds()
	}
	b.ReportMetric(100*(with-without)/seconds, "stream-%core")
	b.ReportMetric(100*without/seconds, "node-%core")
	b.ReportMetric(got/seconds/1e3, "kB/s")
	b.ReportMetric(0, "ns/op") // the time of an iteration is fixed
}

// watch reads the stream at path for the time d and returns how many bytes it got.
func (n *fullNode) watch(b *testing.B, path string, d time.Duration) int64 {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.dial}} // bufconn can break a connection that was used before
	resp, err := client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK || got == 0 || ctx.Err() == nil {
		b.Fatalf("%s: %s, %d bytes, ended too soon with %v", path, resp.Status, got, err)
	}
	return got
}

// processorTime returns the seconds of processor time that the process has used.
func processorTime(b *testing.B) float64 {
	b.Helper()
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return float64(use.Utime.Nano()+use.Stime.Nano()) / 1e9
}

// await lets the time d pass.
func await(b *testing.B, d time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	<-ctx.Done()
}
