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

The node serves its metrics on the port of its API (10250) to clients with the right to ` + "`get nodes/metrics`" + `, and on the read-only port if
it is open. ` + "`kubectl get --raw /api/v1/nodes/NODE/proxy/metrics`" + ` shows them. A metric that upstream's kubelet has too has the same name and
labels; the names of Wherry's own metrics begin with ` + "`wherry_`" + `. A histogram has one row; its series end with ` + "`_bucket`, `_count` and `_sum`" + `.

The column "mixin" names the dashboards, alerts and groups of recording rules of [kubernetes-mixin](https://github.com/kubernetes-monitoring/kubernetes-mixin)
that use the metric. They read the metrics that begin with ` + "`container_`" + ` from /metrics/cadvisor.
`

// metricsPage returns the content of docs/metrics.md.
func metricsPage(t *testing.T) string {
	t.Helper()
	probed := stats.NewProbed()
	used, found := mixinUses(t), map[string]bool{}
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, s := range []struct {
		title, about string
		list         []metric
		containers   bool
	}{
		{"/metrics: the agent", "The agent's counts and measurements of its own work.", ownMetrics(t), false},
		{"/metrics: the process", "The Prometheus library measures the process and Go's runtime; the help texts of these metrics say more. An agent that is embedded in another program does not serve them.", processMetrics(t), false},
		{"/metrics/cadvisor: containers, pods and the machine", "The agent measures at each request. It leaves out values that the kernel or the runtime does not report.",
			familyMetrics(stats.CAdvisorFamilies()), true},
		{"/metrics/resource: what metrics-server reads", "The agent measures at each request. `kubectl top` and horizontal autoscaling use these metrics.", familyMetrics(stats.ResourceFamilies()), false},
		{"/metrics/probes: probes", "When a pod is gone, so are its series.", sorted(metricsOf(t, probed.Collectors())), false},
		{"/metrics/slis: health checks", "The results of the agent's own health checks.", healthMetrics(t), false},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| name | type | labels | mixin | what it says |\n|---|---|---|---|---|\n", s.title, s.about)
		for _, m := range s.list {
			uses := ""
			if s.containers || !strings.HasPrefix(m.name, "container_") {
				uses = strings.Join(used[m.name], "; ")
				found[m.name] = true
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, m.labels, uses, strings.ReplaceAll(m.help, "|", "\\|"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !found[name] {
			t.Errorf("kubernetes-mixin uses %s, and no page of the node has it", name)
		}
	}
	b.WriteString("\n## Metrics that upstream's kubelet serves and Wherry does not\n\nThese metrics are in the documentation or in the source of Kubernetes 1.36. The verdict \"later\" names the area of work in which Wherry will get the metric; \"none\" says why the metric has no meaning in Wherry.\n\n| path | name | stability | verdict |\n|---|---|---|---|\n")
	for _, u := range upstreamMetrics(t) {
		if u.verdict != "have" {
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", u.path, u.name, u.stability, u.verdict)
		}
	}
	return b.String()
}

// mixinUses returns for each metric that kubernetes-mixin uses what uses it (testdata/mixin.txt).
func mixinUses(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "mixin.txt"))
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		name, by, ok := strings.Cut(strings.TrimSpace(line), " ")
		if name == "#" {
			continue
		}
		if !ok {
			t.Fatalf("testdata/mixin.txt does not say what uses %s", name)
		}
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			name = strings.TrimSuffix(name, part)
		}
		for use := range strings.SplitSeq(by, "; ") {
			if !slices.Contains(uses[name], use) {
				uses[name] = append(uses[name], use)
			}
		}
	}
	if len(uses) < 40 {
		t.Fatalf("testdata/mixin.txt has %d names only", len(uses))
	}
	return uses
}
