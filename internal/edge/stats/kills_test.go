package stats

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// webGroup is the control group of the pod web of hostV2.
const webGroup = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_aaaa_bbbb_cccc_000000000001.slice"

// groups is a node whose control groups and pods change during a test.
type groups struct {
	*testing.T
	*Stats
	root string
	pods pods
}

func newGroups(t *testing.T) *groups {
	g := &groups{T: t, root: hostV2(t), pods: onePod()}
	g.Stats = newStats(t, func(c *Config) {
		c.HostRoot, c.PodsGroup, c.Pods = g.root, "/kubepods.slice", podsFunc(func() []*pod.Observed { return g.pods })
	})
	return g
}

// dir returns the directory of a container's control group.
func (g *groups) dir(id string) string {
	return filepath.Join(g.root, mountPoint, webGroup, "cri-containerd-"+id+".scope")
}

// count makes the kernel count kills in the control group of a container.
func (g *groups) count(id string, kills int) {
	g.Helper()
	if err := os.MkdirAll(g.dir(id), 0o755); err != nil {
		g.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(g.dir(id), "memory.events"), fmt.Appendf(nil, "max 9\noom_kill %d\n", kills), 0o644); err != nil {
		g.Fatal(err)
	}
}

// kill reports that the kernel killed a process of the newest attempt of the container main.
func (g *groups) kill() {
	c := &g.pods[0].Containers[0]
	g.Killed(g.pods[0].Ref, c, webGroup+"/cri-containerd-"+c.ID+".scope")
}

// end ends the newest attempt of the container main, and starts another one with this ID.
func (g *groups) end(next string) {
	g.Helper()
	web := *g.pods[0]
	if err := os.RemoveAll(g.dir(web.Containers[0].ID)); err != nil {
		g.Fatal(err)
	}
	web.Containers = slices.Clone(web.Containers)
	web.Containers[0].State = pod.StateExited
	web.Containers = slices.Insert(web.Containers, 0, pod.Container{ID: next, Name: "main", Image: "web:1", Attempt: web.Containers[0].Attempt + 1, State: pod.StateRunning, StartedAt: at(-1)})
	g.pods = pods{&web, g.pods[1]}
	g.count(next, 0)
}

// want compares the series of the container main with the wanted ones, each as "ID value".
func (g *groups) want(want ...string) {
	g.Helper()
	var got []string
	for line := range strings.Lines(get(g.T, g.CAdvisor(), "/metrics/cadvisor")) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		_, id, _ := strings.Cut(series, `name="`)
		id, _, _ = strings.Cut(id, `"`)
		if !strings.HasPrefix(series, `container_oom_events_total{container="main"`) {
			continue
		}
		if labels := fmt.Sprintf(`id="%s/cri-containerd-%s.scope",image="web:1",name="%s",namespace="default",pod="web"`, webGroup, id, id); !strings.HasSuffix(series, labels) {
			g.Errorf("the labels are %s, want %s at their end", series, labels)
		}
		value, _, _ = strings.Cut(value, " ")
		got = append(got, id+" "+value)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		g.Errorf("series (-want +got):\n%s", diff)
	}
}

// A kill that ends the container is counted: the control group of the container goes, and its series stays until the pod is gone.
func TestAKillOutlivesItsContainer(t *testing.T) {
	t.Parallel()
	g := newGroups(t)
	g.count("ccc", 0)
	g.want("ccc 0")
	g.kill()
	g.end("c2")
	g.want("c2 0", "ccc 1")
	g.kill()
	g.end("c3")
	g.want("c2 1", "c3 0", "ccc 1")
	g.pods = g.pods[1:]
	g.want()
	if n := len(g.kills.of); n != 0 {
		t.Errorf("%d containers of a pod that is gone are remembered", n)
	}
}

// The counter of a container never becomes smaller. The kernel also counts kills from before the agent's start, and kills of which its log
// does not say the group.
func TestAKillCountNeverFalls(t *testing.T) {
	t.Parallel()
	g := newGroups(t)
	g.count("ccc", 5)
	g.want("ccc 5")
	g.kill()
	g.count("ccc", 6)
	g.want("ccc 6")
	g.count("ccc", 8)
	g.want("ccc 8")
	g.kill() // in a group below the container's, which the kernel does not count here in cgroup v1
	g.want("ccc 9")
	g.end("c2")
	g.want("c2 0", "ccc 9")
	g.count("c2", 2)
	g.want("c2 2", "ccc 9")
	g.end("c3")
	g.want("c2 2", "c3 0", "ccc 9")
}

// A pod whose containers are killed again and again, and a node with many such pods, need bounded memory. The newest kills stay.
func TestKillsAreBounded(t *testing.T) {
	t.Parallel()
	g := newGroups(t)
	const attempts = 3 * maxKilledAttempts
	var want []string
	for i := range attempts {
		g.kill()
		g.end(fmt.Sprintf("c%02d", i))
		if i < attempts-1 && i >= attempts-1-maxKilledAttempts {
			want = append(want, fmt.Sprintf("c%02d 1", i))
		}
	}
	g.want(append(want, fmt.Sprintf("c%02d 0", attempts-1))...)
	for i := range 2 * maxKilled {
		ref := pod.Ref{Namespace: "default", Name: "p", UID: types.UID(fmt.Sprint(i))}
		g.Killed(ref, &pod.Container{ID: fmt.Sprint("id", i), Name: "main"}, "/kubepods.slice/x")
	}
	if n := len(g.kills.of); n != maxKilled || g.kills.of[fmt.Sprint("id", 2*maxKilled-1)] == nil {
		t.Errorf("%d containers are remembered, want the newest %d", n, maxKilled)
	}
}

func TestContainerGroup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ group, pods, want string }{
		{"/kubepods/burstable/podu/0a1b", "/kubepods", "/kubepods/burstable/podu/0a1b"},
		{"/kubepods/podu/0a1b/init.scope/0a1b/x", "/kubepods", "/kubepods/podu/0a1b"},
		{"/kubepods.slice/kubepods-podu.slice/crio-0a1b.scope/container", "/kubepods.slice", "/kubepods.slice/kubepods-podu.slice/crio-0a1b.scope"},
		{"/docker/ff/kubepods/podu/0a1b", "/kubepods", "/kubepods/podu/0a1b"},
		{"/a/kubepods/podu/0a1b", "/a/kubepods", "/a/kubepods/podu/0a1b"},
		{"/kubepods/podu/0a1b", "", "/kubepods/podu/0a1b"},
		{"/kubepods/podu/other", "/kubepods", "/kubepods/podu/other"},
	} {
		if got := containerGroup(c.group, c.pods, "0a1b"); got != c.want {
			t.Errorf("%s below %s: %s, want %s", c.group, c.pods, got, c.want)
		}
	}
}
