package stats

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

func TestProbed(t *testing.T) {
	t.Parallel()
	p := NewProbed()
	a, b := pod.Ref{Namespace: "default", Name: "a", UID: "u-a"}, pod.Ref{Namespace: "default", Name: "b", UID: "u-b"}
	p.Ran(a, "main", "Readiness", "failed", 20*time.Millisecond)
	p.Ran(a, "main", "Readiness", "successful", 20*time.Millisecond)
	p.Ran(b, "main", "Liveness", "successful", time.Second)
	read := func() string {
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics/probes", nil))
		return w.Body.String()
	}
	for _, want := range []string{
		`prober_probe_total{container="main",namespace="default",pod="a",pod_uid="u-a",probe_type="Readiness",result="failed"} 1`,
		`prober_probe_duration_seconds_count{container="main",namespace="default",pod="a",probe_type="Readiness"} 2`,
		`prober_probe_total{container="main",namespace="default",pod="b",pod_uid="u-b",probe_type="Liveness",result="successful"} 1`,
	} {
		if got := read(); !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	p.Forget("u-a")
	if got := read(); strings.Contains(got, "u-a") || !strings.Contains(got, "u-b") {
		t.Errorf("after pod a is gone:\n%s", got)
	}
}
