package agent

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// The summary of a simulated node shows what the machine's processes use, also those outside its pods: the same memory, disk and processes that
// the eviction signals have.
func TestSummaryOfASimulatedMachine(t *testing.T) {
	t.Parallel()
	r := simcri.New(simcri.Config{})
	defer r.Close()
	deps := Deps{Log: slog.New(slog.DiscardHandler), Machine: SimulatedMachine(Shape{
		Memory: resource.MustParse("1Gi"), Storage: resource.MustParse("10Gi"),
		Used: func() Used { return Used{Memory: 700 << 20, Storage: 4 << 30, Processes: 77} },
	})}
	deps.Runtime, deps.Images = r.Clients()
	a, err := New(Config{NodeName: "n", Kubelet: DefaultConfiguration()}, deps)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.build(); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	a.stats.Summary().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/stats/summary", nil))
	var got statsapi.Summary
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	n := got.Node
	if n.Memory == nil || n.Fs == nil || n.Rlimit == nil {
		t.Fatalf("%s", answer.Body)
	}
	for what, pair := range map[string][2]uint64{
		"working set": {*n.Memory.WorkingSetBytes, 700 << 20}, "memory available": {*n.Memory.AvailableBytes, 324 << 20},
		"disk": {*n.Fs.CapacityBytes, 10 << 30}, "disk used": {*n.Fs.UsedBytes, 4 << 30}, "disk available": {*n.Fs.AvailableBytes, 6 << 30},
		"processes": {uint64(*n.Rlimit.NumOfRunningProcesses), 77},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %d, want %d", what, pair[0], pair[1])
		}
	}
	answer = httptest.NewRecorder()
	a.stats.CAdvisor().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil))
	if page := answer.Body.String(); !strings.Contains(page, "machine_memory_bytes") || strings.Contains(page, "container_fs_") {
		t.Errorf("the metrics of cAdvisor show a disk of the real machine: %s", page)
	}
}
