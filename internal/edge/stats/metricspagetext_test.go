package stats_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/stats"
)

const metricsHead = `# Metrics

<!-- Made of what the agent registers: go test ./internal/edge/stats -run TestMetricsPage -update -->

The node serves its metrics on the port of its API (10250), to whoever may ` + "`get nodes/metrics`" + `, and on the read-only port where
there is one. ` + "`kubectl get --raw /api/v1/nodes/NODE/proxy/metrics`" + ` shows them. Names and labels are upstream's wherever it has such a
metric; those that begin with ` + "`wherry_`" + ` are Wherry's own. A histogram stands here once: its series end with ` + "`_bucket`, `_count` and `_sum`" + `.

The column "mixin" says whether the dashboards, alerts or recording rules of [kubernetes-mixin](https://github.com/kubernetes-monitoring/kubernetes-mixin)
use the metric. They read what begins with ` + "`container_`" + ` from /metrics/cadvisor.
`

// metricsPage returns the content of docs/metrics.md.
func metricsPage(t *testing.T) string {
	t.Helper()
	probed, err := stats.NewProbed()
	if err != nil {
		t.Fatal(err)
	}
	used := mixinNames(t)
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, s := range []struct {
		title, about string
		list         []metric
		containers   bool
	}{
		{"/metrics: the agent", "What the agent counts and measures of its own work.", ownMetrics(t), false},
		{"/metrics: the process", "What the Prometheus library measures of the process and of Go's runtime; their help texts say more. An agent that is embedded leaves them to its program.", processMetrics(t), false},
		{"/metrics/cadvisor: containers, pods and the machine", "Measured when somebody asks. A value that the kernel or the runtime does not give is left out.",
			familyMetrics(stats.CAdvisorFamilies()), true},
		{"/metrics/resource: what metrics-server reads", "Measured when somebody asks. `kubectl top` and horizontal autoscaling work with these.", familyMetrics(stats.ResourceFamilies()), false},
		{"/metrics/probes: probes", "The series of a pod go with the pod.", sorted(metricsOf(t, probed.Collectors())), false},
		{"/metrics/slis: health checks", "How the health checks of the agent went.", healthMetrics(t), false},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| name | type | labels | mixin | what it says |\n|---|---|---|---|---|\n", s.title, s.about)
		for _, m := range s.list {
			uses := ""
			if _, ok := used[m.name]; ok && (s.containers || !strings.HasPrefix(m.name, "container_")) {
				uses, used[m.name] = "yes", true
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, m.labels, uses, strings.ReplaceAll(m.help, "|", "\\|"))
		}
	}
	b.WriteString("\n## What the mixin asks for and Wherry does not serve\n\nPanels and alerts that are made of these show nothing.\n\n")
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !used[name] {
			fmt.Fprintf(&b, "- `%s`\n", name)
		}
	}
	b.WriteString("\n## What upstream's kubelet serves and Wherry does not\n\nIts 1.36 documents these, too. \"later\" says with what they come, \"none\" why they have no meaning here.\n\n| path | name | stability | verdict |\n|---|---|---|---|\n")
	for _, u := range upstreamMetrics(t) {
		if u.verdict != "have" {
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", u.path, u.name, u.stability, u.verdict)
		}
	}
	return b.String()
}

// mixinNames returns the names of the metrics in testdata/mixin.txt, all marked as not found yet.
func mixinNames(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "mixin.txt"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			line = strings.TrimSuffix(line, part)
		}
		names[line] = false
	}
	if len(names) < 40 {
		t.Fatalf("testdata/mixin.txt has %d names only", len(names))
	}
	return names
}
