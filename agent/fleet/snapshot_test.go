package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// secretText is in every field of the test's cluster that a snapshot leaves out.
const secretText = "s3cr3t"

// realNode returns a node as a cluster in a cloud has it.
func realNode(i int, kind, zone, memory string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ip-10-0-0-%d.internal", i), Annotations: map[string]string{"a": secretText}, Labels: map[string]string{
			v1.LabelHostname: fmt.Sprintf("ip-10-0-0-%d", i), v1.LabelInstanceTypeStable: kind, v1.LabelTopologyZone: zone, v1.LabelTopologyRegion: "eu-1",
			v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64", "tier": "web", "machine-id": fmt.Sprint("m", i), "node-role.kubernetes.io/worker": "",
		}},
		Spec: v1.NodeSpec{ProviderID: "aws:///" + secretText, Taints: []v1.Taint{
			{Key: "node.kubernetes.io/not-ready", Effect: v1.TaintEffectNoSchedule}, {Key: "spot", Value: "yes", Effect: v1.TaintEffectNoSchedule},
		}},
		Status: v1.NodeStatus{
			Capacity: v1.ResourceList{
				"cpu": resource.MustParse("4"), "memory": resource.MustParse(memory), "ephemeral-storage": resource.MustParse("100Gi"), "pods": resource.MustParse("58"),
			},
			Allocatable:     v1.ResourceList{"cpu": resource.MustParse("3920m"), "memory": resource.MustParse("15Gi"), "pods": resource.MustParse("58")},
			RuntimeHandlers: []v1.NodeRuntimeHandler{{Name: ""}, {Name: "gvisor"}},
		},
	}
}

// realPod returns a running pod of a controller.
func realPod(name, kind, owner string, change func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, Labels: map[string]string{"app": "web", "pod-template-hash": "abc"}, Annotations: map[string]string{"a": secretText},
		},
		Spec: v1.PodSpec{
			NodeName: "ip-10-0-0-1.internal", NodeSelector: map[string]string{"tier": "web"}, PriorityClassName: "shop-" + secretText,
			Volumes:        []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: secretText}}}},
			InitContainers: []v1.Container{{Name: "init", Image: "registry.example/init:1", Args: []string{secretText}}},
			Containers: []v1.Container{{
				Name: "web", Image: "registry.example/web:1", Command: []string{secretText}, Env: []v1.EnvVar{{Name: "PASSWORD", Value: secretText}},
				VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/" + secretText}}, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("100m")}},
				LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{secretText}}}},
			}},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
	if kind != "" {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner, UID: "u", Controller: new(true)}}
	}
	if change != nil {
		change(p)
	}
	return p
}

// ended makes a pod one that has ended after the time ran, with this exit code.
func ended(phase v1.PodPhase, ran time.Duration, code int32) func(*v1.Pod) {
	return func(p *v1.Pod) {
		began := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		p.Spec.RestartPolicy = v1.RestartPolicyNever
		p.Status.Phase = phase
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "web", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			StartedAt: began, FinishedAt: metav1.NewTime(began.Add(ran)), ExitCode: code,
		}}}}
	}
}

// realCluster returns a cluster with nodes and pods of several kinds.
func realCluster(t *testing.T) *simkube.Kube {
	t.Helper()
	k := simkube.New(simkube.Config{})
	client, err := kubernetes.NewForConfig(k.RESTConfig("admin"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for i := range 3 {
		createNode(t, client, realNode(i, "m5.large", []string{"a", "b"}[i%2], "16Gi"))
	}
	createNode(t, client, realNode(3, "r5.large", "a", "64Gi"))
	if _, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*v1.Pod{
		realPod("web-abc-1", "ReplicaSet", "web-abc", nil),
		realPod("web-abc-2", "ReplicaSet", "web-abc", nil),
		realPod("web-abc-3", "ReplicaSet", "web-abc", func(p *v1.Pod) { p.Status.Phase = v1.PodPending }),
		realPod("web-abc-evicted", "ReplicaSet", "web-abc", ended(v1.PodFailed, time.Minute, 1)),
		realPod("db-0", "StatefulSet", "db", func(p *v1.Pod) { p.Labels["apps.kubernetes.io/pod-index"] = "0" }),
		realPod("db-1", "StatefulSet", "db", func(p *v1.Pod) { p.Labels["apps.kubernetes.io/pod-index"] = "1" }),
		realPod("agent-x", "DaemonSet", "agent", func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
				{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"ip-10-0-0-1.internal"}}}},
			}}}}
			p.Spec.PriorityClassName = "system-node-critical"
		}),
		realPod("sum-1", "Job", "sum", ended(v1.PodSucceeded, 20*time.Second, 0)),
		realPod("sum-2", "Job", "sum", ended(v1.PodSucceeded, 40*time.Second, 0)),
		realPod("sum-3", "Job", "sum", ended(v1.PodFailed, 30*time.Second, 3)),
		realPod("alone", "", "", nil),
		realPod("alone-too", "", "", nil),
		realPod("pinned", "", "", func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{"tier": "web", v1.LabelHostname: "ip-10-0-0-1", "node-role.kubernetes.io/worker": "", LabelFleet: "f", v1.LabelTopologyZone: "a"}
			require := func(terms ...v1.NodeSelectorTerm) *v1.NodeAffinity {
				return &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}
			}
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: require(v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: "machine-id", Operator: v1.NodeSelectorOpIn, Values: []string{"m1"}}, {Key: v1.LabelInstanceTypeStable, Operator: v1.NodeSelectorOpExists},
			}})}
		}),
		realPod("pinned-by-name", "", "", func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
				{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "tier", Operator: v1.NodeSelectorOpExists}}},
				{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{"ip-10-0-0-1.internal"}}}},
			}}}}
		}),
	} {
		created, err := client.CoreV1().Pods("shop").Create(ctx, p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		created.Status = p.Status
		if _, err := client.CoreV1().Pods("shop").UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

func createNode(t *testing.T, client kubernetes.Interface, n *v1.Node) {
	t.Helper()
	status := n.Status
	created, err := client.CoreV1().Nodes().Create(context.Background(), n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Status = status
	if _, err := client.CoreV1().Nodes().UpdateStatus(context.Background(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// takeReal returns the snapshot of realCluster, as a file and parsed.
func takeReal(t *testing.T) (string, *Snapshot) {
	t.Helper()
	data, taken, err := TakeSnapshot(t.Context(), realCluster(t).RESTConfig("snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Taken{Nodes: 4, Groups: 2, Pods: 13, Workloads: 6}); taken != want {
		t.Errorf("taken %+v, want %+v", taken, want)
	}
	s, err := ParseSnapshot("cluster.yaml", data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return string(data), s
}

// A snapshot has the nodes by their sizes and the pods by their owners, and nothing that may be confidential.
func TestTakeSnapshot(t *testing.T) {
	t.Parallel()
	data, s := takeReal(t)
	for _, left := range []string{secretText, "ip-10-0-0", "machine-id", "not-ready", "pod-template-hash", "node-role"} {
		if strings.Contains(data, left) {
			t.Errorf("the snapshot has %q:\n%s", left, data)
		}
	}
	g := &s.Groups[0]
	got := fmt.Sprint(g.Name, " ", g.Count, " ", g.CPUs, " ", g.Memory.String(), " ", g.Storage.String(), " ", g.Labels, " ", g.Taints[0].Key, " ", g.Region, " ", g.Zones, " ",
		g.RuntimeHandlers, " ", g.Kubelet.MaxPods, " ", g.Kubelet.SystemReserved)
	want := "m5-large 3 4 16Gi 100Gi map[node.kubernetes.io/instance-type:m5.large tier:web] spot eu-1 [a b] [gvisor] 58 map[cpu:80m memory:1Gi]"
	if got != want {
		t.Errorf("group\n got %s\nwant %s", got, want)
	}
	var all []string
	for i := range s.Workloads {
		w := &s.Workloads[i]
		all = append(all, fmt.Sprintf("%s %s/%s %d, %d running, for %s, exit %d", w.Kind, w.Namespace, w.Name, w.Count, w.Running, w.RunFor, w.ExitCode))
	}
	if diff := cmp.Diff([]string{
		"DaemonSet shop/agent 1, 1 running, for 0s, exit 0", "Pod shop/alone 3, 3 running, for 0s, exit 0", "StatefulSet shop/db 2, 2 running, for 0s, exit 0", "Pod shop/pinned 1, 1 running, for 0s, exit 0",
		"Job shop/sum 3, 0 running, for 30s, exit 0", "Deployment shop/web 3, 2 running, for 0s, exit 0",
	}, all); diff != "" {
		t.Errorf("workloads, -want +got:\n%s", diff)
	}
	agent := s.Workloads[0].Template.Spec
	if agent.Affinity != nil || agent.PriorityClassName != "system-node-critical" {
		t.Errorf("the template of the DaemonSet: %+v", agent)
	}
	pinned := s.Workloads[3].Template.Spec // only what it requires of labels that the copy's nodes have, so that a node fits
	if got := fmt.Sprint(pinned.NodeSelector, pinned.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms); got !=
		"map[tier:web topology.kubernetes.io/zone:a] [{[{node.kubernetes.io/instance-type Exists []}] []}]" {
		t.Errorf("what a pod requires of its node: %s", got)
	}
	if n := s.Running(10); n != 90 {
		t.Errorf("ten times the cluster has %d running pods, want 90", n)
	}
	if groups := s.Scaled(10); groups[0].Count != 30 || s.Groups[0].Count != 3 {
		t.Errorf("ten times the first group has %d nodes", groups[0].Count)
	}
}

// A cluster whose pods all differ cannot fill the memory of the command: it ends as soon as the pods are larger than a snapshot may be.
func TestTooManyDifferentPods(t *testing.T) {
	t.Parallel()
	pods := podsTaken{byShape: map[string]*podsAlike{}, limit: 10_000}
	for i := range 1000 {
		err := pods.add(realPod(fmt.Sprint("p", i), "", "", func(p *v1.Pod) { p.Labels["app"] = fmt.Sprint(i) }))
		if err != nil {
			if !strings.Contains(err.Error(), "too many different pods") || len(pods.byShape) > 100 {
				t.Errorf("after %d pods: %v", len(pods.byShape), err)
			}
			return
		}
	}
	t.Error("1000 different pods are taken")
}

// Each workload becomes an object of its kind, whose pods are simulated as those of the cluster were.
func TestRequestsOfWorkloads(t *testing.T) {
	t.Parallel()
	_, s := takeReal(t)
	got := map[string]string{}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		path, body, err := w.request("copy", 4, 0)
		if err != nil {
			t.Fatal(err)
		}
		var o struct {
			Metadata metav1.ObjectMeta
			Spec     struct {
				Replicas, Completions, Parallelism int
				Selector                           metav1.LabelSelector
				Template                           v1.PodTemplateSpec
			}
		}
		if err := json.Unmarshal(body, &o); err != nil {
			t.Fatal(err)
		}
		got[w.Name] = fmt.Sprintf("%d at %s: %s %d %d/%d %v %v", w.objects(4), path, o.Metadata.Name, o.Spec.Replicas, o.Spec.Parallelism, o.Spec.Completions,
			o.Spec.Selector.MatchLabels, o.Spec.Template.Annotations)
		if labels := o.Spec.Template.Labels; w.Kind != KindPod && (labels[LabelWorkload] != strings.ToLower(string(w.Kind))+"-"+w.Name || labels[LabelFleet] != "copy" || labels["app"] != "web") {
			t.Errorf("labels of the pods of %s: %v", w.Name, labels)
		}
	}
	init := simulated.AnnotationRunFor + ".init:1s"
	if diff := cmp.Diff(map[string]string{
		"agent": "1 at /apis/apps/v1/namespaces/shop/daemonsets: agent 0 0/0 map[" + LabelWorkload + ":daemonset-agent] map[" + init + "]",
		"alone": "12 at /api/v1/namespaces/shop/pods: alone-1 0 0/0 map[] map[]", "pinned": "4 at /api/v1/namespaces/shop/pods: pinned-1 0 0/0 map[] map[]",
		"db": "1 at /apis/apps/v1/namespaces/shop/statefulsets: db 8 0/0 map[" + LabelWorkload + ":statefulset-db] map[" + init + "]",
		"sum": "1 at /apis/batch/v1/namespaces/shop/jobs: sum 0 12/12 map[] map[" + simulated.AnnotationExitCode + ".web:0 " + init + " " +
			simulated.AnnotationRunFor + ".web:30s]",
		"web": "1 at /apis/apps/v1/namespaces/shop/deployments: web 12 0/0 map[" + LabelWorkload + ":deployment-web] map[" + init + "]",
	}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The error for each invalid snapshot names the file, the line and the field.
func TestBadSnapshots(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: wherry.dev/v1alpha1\nkind: FleetSnapshot\n"
	const group = head + "groups: [{name: a}]\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", " \n", "s.yaml"},
		{"another kind", "apiVersion: wherry.dev/v1alpha1\nkind: FleetTemplate\n", "s.yaml"},
		{"no groups", head, "s.yaml:1: groups: a fleet needs at least one group"},
		{"a bad group", head + "groups:\n- cpus: -1\n", "s.yaml:4: groups[0].cpus"},
		{"unknown field", group + "workloads:\n- kinds: Pod\n", "s.yaml:5: workloads[0].kinds: unknown field"},
		{"kind", group + "workloads:\n- kind: CronJob\n", `s.yaml:5: workloads[0].kind: "CronJob": use one of`},
		{"namespace", group + "workloads:\n- namespace: a/b\n", `s.yaml:5: workloads[0].namespace: "a/b"`},
		{"name", group + "workloads:\n- name: ../x\n", `s.yaml:5: workloads[0].name: "../x"`},
		{"count", group + "workloads:\n- count: -1\n", "s.yaml:5: workloads[0].count: -1"},
		{"running", group + "workloads:\n- count: 1\n  running: 2\n", "s.yaml:5: workloads[0].count: 1, of which 2 are Running"},
		{"time", group + "workloads:\n- runFor: -5s\n", "s.yaml:5: workloads[0].runFor: -5s"},
		{"containers", group + "workloads:\n- template: {}\n", "s.yaml:5: workloads[0].template: a pod needs at least one container"},
	} {
		_, err := ParseSnapshot("s.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := ParseSnapshot("s.yaml", make([]byte, MaxSnapshot+1)); err == nil {
		t.Error("a snapshot of any size is read")
	}
	big := &Snapshot{Groups: []Group{{Count: 100}}, Workloads: []Workload{{Count: 1000}}}
	for scale, ok := range map[int]bool{0: false, 1: true, 1000: true, 1001: false, MaxScale + 1: false} {
		if err := big.Check(scale); (err == nil) != ok {
			t.Errorf("scale %d: %v", scale, err)
		}
	}
}

func FuzzParseSnapshot(f *testing.F) {
	f.Add([]byte("apiVersion: wherry.dev/v1alpha1\nkind: FleetSnapshot\ngroups: [{name: a}]\nworkloads: [{kind: Job, namespace: a, name: b, count: 2, runFor: 1s, template: {spec: {containers: [{name: c}]}}}]\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		s, err := ParseSnapshot("s.yaml", data)
		if err != nil || s.Check(2) != nil {
			return
		}
		_ = s.Scaled(2)
		for i := range s.Workloads {
			if w := &s.Workloads[i]; w.Count < 10 {
				for i := range w.objects(2) {
					_, _, _ = w.request("f", 2, i)
				}
			}
		}
	})
}
