package fleet_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/wherry-node/wherry/agent/fleet"
)

// The metrics are valid, and say what the status says.
func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 3}}})
		b.until(t, "all join", settled)
		b.createPod(t, "p", "f-node-1")
		b.until(t, "it runs", func(s fleet.Status) bool { return s.Pods.Running == 1 })
		if _, err := b.fleet.Inject(only("f-node-2"), fleet.Fault{Kind: fleet.FaultCrash}); err != nil {
			t.Fatal(err)
		}
		before := b.fleet.Status().Requests
		time.Sleep(time.Minute)
		metrics := prometheus.NewPedanticRegistry()
		metrics.MustRegister(b.fleet)
		gathered, err := metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		for _, family := range gathered {
			if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
				t.Fatal(err)
			}
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(text.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`wherry_fleet_nodes_wanted{group="node"} 3`, `wherry_fleet_nodes{group="node",state="crashed"} 1`, `wherry_fleet_pods{phase="Running"} 1`,
			"wherry_fleet_pod_starts_total 1", "wherry_fleet_lease_failures_total 0",
		} {
			if !strings.Contains(text.String(), want+"\n") {
				t.Errorf("%s is missing:\n%s", want, &text)
			}
		}
		// In a minute two nodes renew their leases at least every ten seconds.
		after := b.fleet.Status().Requests
		if n := after.ByVerb["PUT"] + after.ByVerb["PATCH"] - before.ByVerb["PUT"] - before.ByVerb["PATCH"]; n < 12 || after.Failed != 0 || after.Waited <= before.Waited {
			t.Errorf("%+v, before %+v", after, before)
		}
		if got := families["wherry_fleet_api_requests_total"]; got == nil || len(got.Metric) != 6 {
			t.Errorf("%v", got)
		}
		b.end(t)
	})
}
