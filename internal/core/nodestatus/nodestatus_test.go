package nodestatus

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/internal/core/pressure"
)

const gi = 1 << 30

func at(seconds int64) time.Time { return time.Unix(1_700_000_000+seconds, 0).UTC() }

func settings(t *testing.T) Settings {
	t.Helper()
	thresholds, err := pressure.Parse(pressure.ParseInput{Hard: map[string]string{
		"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"}})
	if err != nil {
		t.Fatal(err)
	}
	return Settings{
		Name: "node1", Hostname: "node1.example", OS: "linux", Arch: "amd64", MaxPods: 110, MaxImages: 50, Port: 10250,
		KubeletVersion: "v1.36.3+wherry.0.1.0", LocalStorageIsolation: true, ControllerAttachDetach: true, Thresholds: thresholds,
		DeclaredFeatures: []string{"B", "A"},
	}
}

func condition(kind string, ok bool, reason, message string) *runtimeapi.RuntimeCondition {
	return &runtimeapi.RuntimeCondition{Type: kind, Status: ok, Reason: reason, Message: message}
}

func facts() Facts {
	ip := netip.MustParseAddr("192.0.2.10")
	return Facts{
		Now: at(0),
		Machine: Machine{
			MachineID: "m1", SystemUUID: "s1", BootID: "b1", KernelVersion: "6.1.0", OSImage: "Debian GNU/Linux 12 (bookworm)",
			CPUs: 4, MemoryBytes: 8 * gi, SwapBytes: gi, HugePages: map[int64]int64{2 << 20: 512, gi: 0},
		},
		EphemeralStorage: 100 * gi,
		Network:          Network{Interfaces: []netip.Addr{ip, netip.MustParseAddr("2001:db8::1")}, DefaultV4: ip, DefaultV6: netip.MustParseAddr("2001:db8::1")},
		Runtime: Runtime{
			Name: "containerd", Version: "2.4.2", LastReady: at(-1),
			Status: &runtimeapi.StatusResponse{
				Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{condition("RuntimeReady", true, "", ""), condition("NetworkReady", true, "", "")}},
				RuntimeHandlers: []*runtimeapi.RuntimeHandler{
					{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}}, {Name: ""},
				},
				Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
			},
		},
		Images: []*runtimeapi.Image{
			{Id: "2", RepoTags: []string{"small:1"}, Size: 10},
			{Id: "1", RepoTags: []string{"c:1", "b:1", "a:1"}, RepoDigests: []string{"z@sha256:1", "y@sha256:1", "x@sha256:1"}, Size: 20},
		},
		ImagesKnown: true, VolumesKnown: true,
		Pressure: pressure.Result{Memory: pressure.False, Disk: pressure.False, PID: pressure.False},
	}
}

var rewrite = flag.Bool("update", false, "rewrite the expected Nodes in testdata")

// TestBuild compares whole Nodes with testdata; -update rewrites them.
func TestBuild(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *Settings, f *Facts){
		"ready": func(*Settings, *Facts) {},
		"reserved": func(s *Settings, f *Facts) {
			var err error
			s.KubeReserved, s.SystemReserved, err = ParseReserved(map[string]string{"cpu": "200m", "memory": "1Gi", "ephemeral-storage": "5Gi", "pid": "100"},
				map[string]string{"memory": "512Mi"}, "0-1")
			if err != nil {
				t.Fatal(err)
			}
			s.PodsPerCore = 10
			s.Labels = map[string]string{"kubernetes.io/hostname": "other", "team": "boats"}
			s.Taints = []v1.Taint{{Key: "dedicated", Value: "x", Effect: v1.TaintEffectNoExecute}}
			s.ProviderID = "example://1"
		},
		"cloud": func(s *Settings, f *Facts) {
			s.ExternalCloudProvider, s.ControllerAttachDetach = true, false
			s.NodeIPs = []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::1")}
		},
		"nothing-measured": func(s *Settings, f *Facts) { *f = Facts{Now: at(0)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f := settings(t), facts()
			change(&s, &f)
			res := Build(s, f)
			out, err := yaml.Marshal(map[string]any{"node": res.Node, "events": res.Events, "problems": res.Problems})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".yaml")
			if *rewrite {
				if err := os.WriteFile(file, out, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(out)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func ready(node *v1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return "none"
}

func TestNotReadyMessages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(f *Facts)
		want   string
	}{
		"ready":           {func(*Facts) {}, "True KubeletReady: kubelet is posting ready status"},
		"a short silence": {func(f *Facts) { f.Runtime.LastReady, f.Runtime.Err = at(-29), "timeout" }, "True KubeletReady: kubelet is posting ready status"},
		"a long silence": {func(f *Facts) { f.Runtime.LastReady, f.Runtime.Err = at(-30), "dial unix /run/x.sock: no such file" },
			"False KubeletNotReady: container runtime is down: dial unix /run/x.sock: no such file"},
		"never answered": {func(f *Facts) { f.Runtime = Runtime{} },
			"False KubeletNotReady: [container runtime status check may not have completed yet, network state unknown]"},
		"no CNI": {func(f *Facts) {
			f.Runtime.Status.Status.Conditions[1] = condition("NetworkReady", false, "NetworkPluginNotReady", "Network plugin returns error: cni plugin not initialized")
		}, "False KubeletNotReady: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"},
		"runtime says no": {func(f *Facts) {
			f.Runtime.Status.Status.Conditions[0] = condition("RuntimeReady", false, "R", "m")
		}, "False KubeletNotReady: container runtime not ready: RuntimeReady=false reason:R message:m"},
		"network not reported": {func(f *Facts) { f.Runtime.Status.Status.Conditions = f.Runtime.Status.Status.Conditions[:1] },
			"False KubeletNotReady: container runtime network not ready: the runtime does not report NetworkReady"},
		"problems, each once": {func(f *Facts) { f.Problems = []string{"PLEG is not healthy: x", "cgroup y", "cgroup y"} },
			"False KubeletNotReady: [PLEG is not healthy: x, cgroup y]"},
		"no capacity": {func(f *Facts) { f.Machine, f.EphemeralStorage = Machine{}, 0 },
			"False KubeletNotReady: missing node capacity for resources: cpu, memory, ephemeral-storage"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts()
			tc.change(&f)
			if diff := cmp.Diff(tc.want, ready(Build(settings(t), f).Node)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func reasons(events []Event) string {
	var out []string
	for _, e := range events {
		out = append(out, e.Reason)
	}
	return strings.Join(out, " ")
}

func TestUpdateEventsAndTransitions(t *testing.T) {
	t.Parallel()
	s, f := settings(t), facts()
	first := Build(s, f)
	if got, want := reasons(first.Events), "NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID NodeReady"; got != want {
		t.Errorf("events of a new node: %s, want %s", got, want)
	}
	before := first.Node.DeepCopy()

	f.Now, f.Runtime.LastReady = at(10), at(10)
	quiet := Update(s, f, first.Node)
	if len(quiet.Events) != 0 || Changed(&first.Node.Status, &quiet.Node.Status) {
		t.Errorf("the same facts changed the status: %v\n%s", quiet.Events, cmp.Diff(first.Node.Status, quiet.Node.Status))
	}
	for _, c := range quiet.Node.Status.Conditions {
		if !c.LastHeartbeatTime.Time.Equal(at(10)) || !c.LastTransitionTime.Time.Equal(at(0)) {
			t.Errorf("%s: heartbeat %v transition %v", c.Type, c.LastHeartbeatTime, c.LastTransitionTime)
		}
	}

	f.Now, f.Machine.BootID, f.Problems = at(20), "b2", []string{"PLEG is not healthy: x"}
	f.Pressure.Memory, f.Pressure.Disk, f.Pressure.PID = pressure.True, pressure.True, pressure.Unknown
	bad := Update(s, f, quiet.Node)
	if got, want := reasons(bad.Events), "Rebooted NodeHasInsufficientMemory NodeHasDiskPressure NodeNotReady"; got != want {
		t.Errorf("events: %s, want %s", got, want)
	}
	if got, want := bad.Events[3].Message, "Node node1 status is now: NodeNotReady"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
	if !Changed(&quiet.Node.Status, &bad.Node.Status) || Ready(bad.Node) {
		t.Error("a node that became not ready has not changed")
	}
	if diff := cmp.Diff(before, first.Node); diff != "" {
		t.Errorf("Update wrote to the Node it was given:\n%s", diff)
	}
}

func TestUpdateKeepsWhatOthersOwn(t *testing.T) {
	t.Parallel()
	s, f := settings(t), facts()
	node := Build(s, f).Node
	node.Labels = map[string]string{"mine": "1", v1.LabelArchStable: "wrong"}
	node.Status.VolumesAttached = []v1.AttachedVolume{{Name: "v"}}
	node.Status.Conditions = append(node.Status.Conditions, v1.NodeCondition{Type: "NetworkUnavailable", Status: v1.ConditionFalse})
	node.Status.Capacity["example.com/dongle"] = resource.MustParse("3")
	node.Status.Capacity["hugepages-64Ki"] = resource.MustParse("64Ki")
	node.Status.Allocatable["example.com/gone"] = resource.MustParse("1")
	f.ImagesKnown, f.Images, f.Runtime.Status = false, nil, nil
	got := Update(s, f, node).Node
	dongle := got.Status.Allocatable["example.com/dongle"]
	facts := map[string]any{
		"labels": got.Labels, "attached": len(got.Status.VolumesAttached), "conditions": len(got.Status.Conditions),
		"dongle": dongle.String(), "images": len(got.Status.Images), "handlers": len(got.Status.RuntimeHandlers),
	}
	_, facts["64Ki"] = got.Status.Capacity["hugepages-64Ki"]
	_, facts["gone"] = got.Status.Allocatable["example.com/gone"]
	want := map[string]any{
		"labels":   map[string]string{"mine": "1", v1.LabelArchStable: "amd64", v1.LabelOSStable: "linux"},
		"attached": 1, "conditions": 5, "dongle": "3", "images": 2, "handlers": 2, "64Ki": false, "gone": false,
	}
	if diff := cmp.Diff(want, facts); diff != "" {
		t.Error(diff)
	}
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	wanted := Build(settings(t), facts()).Node
	same := wanted.DeepCopy()
	if _, changed := Reconcile(wanted, same, true); changed {
		t.Error("a Node that is right is changed")
	}
	existing := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "u", Labels: map[string]string{"theirs": "1", v1.LabelHostname: "old"}},
		Spec:       v1.NodeSpec{ProviderID: "theirs://1", PodCIDRs: []string{"10.0.0.0/24"}, Unschedulable: true},
		Status: v1.NodeStatus{
			Capacity:    v1.ResourceList{"example.com/dongle": resource.MustParse("3"), "hugepages-64Ki": resource.MustParse("1Mi"), "cpu": resource.MustParse("1")},
			Allocatable: v1.ResourceList{"example.com/dongle": resource.MustParse("2")},
		},
	}
	spec := existing.Spec.DeepCopy()
	got, changed := Reconcile(wanted, existing, true)
	if !changed {
		t.Fatal("nothing changed")
	}
	lists := map[string]string{}
	for name, q := range got.Status.Capacity {
		lists["capacity "+string(name)] = q.String()
	}
	for name, q := range got.Status.Allocatable {
		lists["allocatable "+string(name)] = q.String()
	}
	want := map[string]string{
		"capacity example.com/dongle": "0", "capacity cpu": "1", "capacity hugepages-1Gi": "0", "capacity hugepages-2Mi": "1Gi",
		"allocatable example.com/dongle": "0", "allocatable hugepages-1Gi": "0", "allocatable hugepages-2Mi": "1Gi",
	}
	if diff := cmp.Diff(want, lists); diff != "" {
		t.Error(diff)
	}
	if got.Labels["theirs"] != "1" || got.Labels[v1.LabelHostname] != "node1.example" || got.Annotations[AnnotationControllerAttach] != "true" {
		t.Errorf("labels %v annotations %v", got.Labels, got.Annotations)
	}
	if !equality.Semantic.DeepEqual(spec, &got.Spec) || got.UID != "u" {
		t.Error("spec or identity was touched")
	}
	without := settings(t)
	without.ControllerAttachDetach = false
	off, changed := Reconcile(Build(without, facts()).Node, got, false)
	if _, ok := off.Annotations[AnnotationControllerAttach]; ok || !changed {
		t.Error("the attach annotation outlived its setting")
	}
}

func TestChanged(t *testing.T) {
	t.Parallel()
	base := Build(settings(t), facts()).Node.Status
	for name, tc := range map[string]struct {
		change func(*v1.NodeStatus)
		want   bool
	}{
		"nothing":            {func(*v1.NodeStatus) {}, false},
		"heartbeat":          {func(s *v1.NodeStatus) { s.Conditions[0].LastHeartbeatTime = metav1.NewTime(at(99)) }, false},
		"order":              {func(s *v1.NodeStatus) { slices.Reverse(s.Conditions) }, false},
		"quantity rewritten": {func(s *v1.NodeStatus) { s.Capacity["memory"] = resource.MustParse("8192Mi") }, false},
		"message":            {func(s *v1.NodeStatus) { s.Conditions[3].Message = "x" }, true},
		"transition":         {func(s *v1.NodeStatus) { s.Conditions[3].LastTransitionTime = metav1.NewTime(at(99)) }, true},
		"condition gone":     {func(s *v1.NodeStatus) { s.Conditions = s.Conditions[1:] }, true},
		"other condition":    {func(s *v1.NodeStatus) { s.Conditions[0].Type = "X" }, true},
		"image":              {func(s *v1.NodeStatus) { s.Images = s.Images[1:] }, true},
		"address":            {func(s *v1.NodeStatus) { s.Addresses[0].Address = "192.0.2.11" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := base.DeepCopy()
			tc.change(now)
			if got := Changed(&base, now); got != tc.want {
				t.Errorf("Changed = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	ip := netip.MustParseAddr
	for name, tc := range map[string]struct {
		change func(s *Settings, f *Facts)
		want   string // addresses, or the problem
	}{
		"default route": {func(*Settings, *Facts) {}, "InternalIP=192.0.2.10 Hostname=node1.example"},
		"v6 wanted":     {func(s *Settings, f *Facts) { s.NodeIPs = []netip.Addr{ip("::")} }, "InternalIP=2001:db8::1 Hostname=node1.example"},
		"only v6 there": {func(s *Settings, f *Facts) { f.Network.DefaultV4 = netip.Addr{} }, "InternalIP=2001:db8::1 Hostname=node1.example"},
		"name resolves": {func(s *Settings, f *Facts) {
			f.Network.DefaultV4 = netip.Addr{}
			f.Network.Resolved = []netip.Addr{ip("127.0.1.1"), ip("2001:db8::1"), ip("192.0.2.10")}
		}, "InternalIP=192.0.2.10 Hostname=node1.example"},
		"hostname is address":   {func(s *Settings, f *Facts) { s.Hostname = "198.51.100.1" }, "InternalIP=198.51.100.1 Hostname=198.51.100.1"},
		"dual stack":            {func(s *Settings, f *Facts) { s.NodeIPs = []netip.Addr{ip("192.0.2.10"), ip("2001:db8::1")} }, "InternalIP=192.0.2.10 InternalIP=2001:db8::1 Hostname=node1.example"},
		"loopback":              {func(s *Settings, f *Facts) { s.NodeIPs = []netip.Addr{ip("127.0.0.1")} }, "problem: node IP 127.0.0.1: a loopback address"},
		"simulated":             {func(s *Settings, f *Facts) { s.NodeIPs, s.TrustNodeIPs = []netip.Addr{ip("127.1.2.3")}, true }, "InternalIP=127.1.2.3 Hostname=node1.example"},
		"not ours":              {func(s *Settings, f *Facts) { s.NodeIPs = []netip.Addr{ip("192.0.2.99")} }, "problem: node IP 192.0.2.99: no network interface"},
		"none":                  {func(s *Settings, f *Facts) { f.Network = Network{} }, "problem: find an address for node node1"},
		"cloud without address": {func(s *Settings, f *Facts) { s.ExternalCloudProvider = true }, "Hostname=node1.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f := settings(t), facts()
			tc.change(&s, &f)
			res := Build(s, f)
			var got []string
			for _, p := range res.Problems {
				got = append(got, "problem: "+p)
			}
			for _, a := range res.Node.Status.Addresses {
				got = append(got, string(a.Type)+"="+a.Address)
			}
			if text := strings.Join(got, " "); !strings.HasPrefix(text, tc.want) || (!strings.HasPrefix(tc.want, "problem") && text != tc.want) {
				t.Errorf("%s\nwant %s", text, tc.want)
			}
		})
	}
}

func TestValidateLabels(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"team=boats": "", "kubernetes.io/hostname=x": "", "node.kubernetes.io/pool=a": "", "x.kubelet.kubernetes.io/y=1": "",
		"topology.kubernetes.io/zone=z": "", "node-role.kubernetes.io/worker=": "may not give itself", "k8s.io/x=1": "may not give itself",
		"example.com/x=": "", "bad key=1": "key", "x=bad value": "value",
	} {
		key, value, _ := strings.Cut(label, "=")
		err := ValidateLabels(map[string]string{key: value})
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", label, err, want)
		}
	}
}

func TestParseReserved(t *testing.T) {
	t.Parallel()
	_, _, err := ParseReserved(map[string]string{"cpu": "-1", "gpu": "1"}, map[string]string{"memory": "x"}, "0-")
	for _, want := range []string{`kubeReserved[cpu]: "-1"`, "kubeReserved[gpu]", `systemReserved[memory]: "x"`, "reservedSystemCPUs"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// The test checks that the message of the Ready condition names a part of the agent that fails and tries again. Such a part alone does not
// make the node not ready. If the node is not ready for other reasons, the message names these first.
func TestCheckReservations(t *testing.T) {
	t.Parallel()
	thresholds, err := pressure.Parse(pressure.ParseInput{Hard: map[string]string{"memory.available": "1Gi"}})
	if err != nil {
		t.Fatal(err)
	}
	s := Settings{Thresholds: thresholds}
	s.KubeReserved, s.SystemReserved, _ = ParseReserved(map[string]string{"memory": "3Gi", "pid": "100"}, map[string]string{"cpu": "500m"}, "")
	memory := func(q string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceMemory: resource.MustParse(q), v1.ResourceCPU: resource.MustParse("1")}
	}
	if err := CheckReservations(&s, memory("4Gi")); err != nil {
		t.Errorf("all of the memory is reserved, but not more: %v", err)
	}
	if err := CheckReservations(&s, memory("3Gi")); err == nil || err.Error() != "memory: kubeReserved, systemReserved and evictionHard reserve 4Gi, and the machine has 3Gi" {
		t.Errorf("got %v", err)
	}
}

func TestFailingPartsAreNamedInTheReadyCondition(t *testing.T) {
	t.Parallel()
	const disk = "renew client certificate: no space left on device"
	for want, problems := range map[string][]string{
		"True KubeletReady: kubelet is posting ready status; failing and tried again: " + disk: nil,
		"False KubeletNotReady: [PLEG is not healthy, " + disk + "]":                           {"PLEG is not healthy"},
	} {
		s, f := settings(t), facts()
		f.Failing, f.Problems = []string{disk}, problems
		if got := ready(Build(s, f).Node); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
