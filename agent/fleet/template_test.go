package fleet

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/agent/simulated"
)

const goodTemplate = `apiVersion: wherry.dev/v1alpha1
kind: FleetTemplate
groups:
- name: small
  count: 3
  nodeName: "{fleet}-s{index:3}"
  cpus: 4
  memory: 16Gi
  labels: {tier: small}
  taints: [{key: spot, value: "yes", effect: NoSchedule}]
  region: r1
  zones: [a, b]
  providerID: sim://{region}/{zone}/{node}
  devices: [{resource: example.com/gpu, count: 8}]
  csiDrivers:
  - {name: ebs.csi.example, maxVolumes: 25, topology: {topology.ebs.csi.example/zone: "{zone}"}}
  resourceSlices:
  - {driver: gpu.example.com, devices: 2, attributes: {model: a100, cores: 64, ecc: true}, capacity: {memory: 80Gi}}
  latency: {RunPodSandbox: {mean: 100ms, jitter: 20ms}}
  kubelet: {maxPods: 250, evictionHard: {memory.available: 5%}}
- name: big
  count: 1
`

func TestParseTemplate(t *testing.T) {
	t.Parallel()
	groups, err := ParseTemplate("t.yaml", []byte(goodTemplate))
	if err != nil {
		t.Fatal(err)
	}
	g := &groups[0]
	got := []any{g.nodeName("f", 2), g.labels("f", 2), g.providerID("f", "f-s002", 2), g.Kubelet.MaxPods, g.Memory.String(), g.Latency["RunPodSandbox"].Mean.String(),
		g.Devices, g.drivers("f", "f-s002", 2), deviceText(t, &g.ResourceSlices[0]),
	}
	want := []any{
		"f-s002", map[string]string{LabelFleet: "f", LabelGroup: "small", "tier": "small", v1.LabelTopologyRegion: "r1", v1.LabelTopologyZone: "b"},
		"sim://r1/b/f-s002", int32(250), "16Gi", "100ms",
		[]simulated.Devices{{Resource: "example.com/gpu", Count: 8}},
		[]simulated.CSIDriver{{Name: "ebs.csi.example", NodeID: "f-s002", MaxVolumes: 25, Topology: map[string]string{"topology.ebs.csi.example/zone": "b"}}},
		`{"attributes":{"cores":{"int":64},"ecc":{"bool":true},"model":{"string":"a100"}},"capacity":{"memory":{"value":"80Gi"}},"name":"device-1"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	groups[1].setDefaults()
	if name := groups[1].nodeName("f", 1); name != "f-big-1" {
		t.Errorf("the default name is %q", name)
	}
}

// deviceText returns the last device of a driver as JSON.
func deviceText(t *testing.T, s *ResourceSlices) string {
	t.Helper()
	all := s.devices()
	text, err := json.Marshal(all[len(all)-1])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The error for each invalid template names the file, the line and the field.
func TestBadTemplates(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: wherry.dev/v1alpha1\nkind: FleetTemplate\n"
	for _, c := range []struct{ name, text, want string }{
		{"empty", " \n", "t.yaml: the template is empty"},
		{"no YAML", "a: [", "t.yaml:1: not valid YAML"},
		{"another kind", "apiVersion: v1\nkind: Pod\n", "t.yaml: apiVersion v1, kind Pod: must be"},
		{"no groups", head, "t.yaml:1: groups: a fleet needs at least one group"},
		{"unknown field", head + "groups:\n- name: a\n  cpu: 4\n", `t.yaml:5: groups[0].cpu: unknown field; did you mean "cpus"?`},
		{"wrong type", head + "groups:\n- name: a\n  count: many\n", `t.yaml:5: groups[0].count: expected a whole number`},
		{"quantity", head + "groups:\n- memory: lots\n", "t.yaml:4: groups[0].memory: "},
		{"negative", head + "groups:\n- name: a\n  count: -1\n", "t.yaml:5: groups[0].count: -1: use 0 to"},
		{"name twice", head + "groups:\n- name: a\n- name: a\n", `t.yaml:5: groups[1].name: another group has the name "a"`},
		{"placeholder", head + "groups:\n- nodeName: n-{indx}\n", "t.yaml:4: groups[0].nodeName: {indx} is unknown"},
		{"names alike", head + "groups:\n- nodeName: node\n", "t.yaml:4: groups[0].nodeName: \"node\": the names of the nodes must differ"},
		{"name", head + "groups:\n- nodeName: N_{index}\n", "t.yaml:4: groups[0].nodeName: the name \"N_1\""},
		{"own label", head + "groups:\n- name: a\n  labels:\n    x: z\n    wherry.dev/fleet: b\n", "t.yaml:7: groups[0].labels[wherry.dev/fleet]: the fleet sets this label"},
		{"no label", head + "groups:\n- labels: {a b: c}\n", `t.yaml:4: groups[0].labels[a b]: key "a b": name part must`},
		{"label", head + "groups:\n- labels: {node-role.kubernetes.io/x: y}\n", "t.yaml:4: groups[0].labels[node-role.kubernetes.io/x]: "},
		{"taint", head + "groups:\n- taints:\n  - key: a\n    effect: Never\n", "t.yaml:5: groups[0].taints[0]: taint effect \"Never\""},
		{"latency of no method", head + "groups:\n- latency:\n    \"\": {mean: 1s}\n    RunPodSandox: {mean: 1s}\n", `t.yaml:6: groups[0].latency[RunPodSandox]: method "RunPodSandox": CRI v1 has no such method; did you mean RunPodSandbox?`},
		{"latency", head + "groups:\n- latency:\n    Version: {mean: 1s, jitter: 2s}\n", "t.yaml:5: groups[0].latency[Version]: "},
		{"kubelet unknown", head + "groups:\n- kubelet:\n    maxPod: 5\n", "t.yaml:5: groups[0].kubelet.maxPod: unknown field"},
		{"kubelet value", head + "groups:\n- kubelet:\n    maxPods: -5\n", "t.yaml:5: groups[0].kubelet.maxPods: "},
		{"kubelet map", head + "groups:\n- kubelet:\n    evictionHard:\n      memory.available: much\n", "t.yaml:6: groups[0].kubelet.evictionHard[memory.available]: "},
		{"the fleet's field", head + "groups:\n- kubelet:\n    port: 5\n", "t.yaml:5: groups[0].kubelet.port: the fleet chooses the port"},
		{"driver", head + "groups:\n- csiDrivers:\n  - name: Disks\n", "t.yaml:5: groups[0].csiDrivers[0].name: \"Disks\""},
		{"driver twice", head + "groups:\n- csiDrivers:\n  - name: a\n  - name: a\n", "t.yaml:6: groups[0].csiDrivers[1].name: another driver"},
		{"volumes", head + "groups:\n- csiDrivers:\n  - name: a\n    maxVolumes: -1\n", "t.yaml:6: groups[0].csiDrivers[0].maxVolumes: -1: use 1 to"},
		{"topology", head + "groups:\n- csiDrivers:\n  - name: a\n    topology:\n      a/zone: \"{zon}\"\n", "t.yaml:7: groups[0].csiDrivers[0].topology[a/zone]: {zon} is unknown"},
		{"topology without zones", head + "groups:\n- csiDrivers:\n  - name: a\n    topology: {a/zone: \"{zone}\"}\n", "t.yaml:6: groups[0].csiDrivers[0].topology[a/zone]: \"\" is no value"},
		{"topology of the node", head + "groups:\n- zones: [b]\n  csiDrivers:\n  - name: a\n    topology: {topology.kubernetes.io/zone: c}\n", "t.yaml:7: groups[0].csiDrivers[0].topology[topology.kubernetes.io/zone]: \"c\": the group gives"},
		{"devices", head + "groups:\n- devices:\n  - resource: cpu\n    count: 1\n", "t.yaml:5: groups[0].devices[0].resource: \"cpu\": use a name with a domain"},
		{"no devices", head + "groups:\n- devices:\n  - resource: a.b/c\n", "t.yaml:5: groups[0].devices[0].count: 0: use 1 to"},
		{"DRA driver", head + "groups:\n- resourceSlices:\n  - driver: GPU\n    devices: 1\n", "t.yaml:5: groups[0].resourceSlices[0].driver: \"GPU\""},
		{"no DRA devices", head + "groups:\n- resourceSlices:\n  - driver: a.b\n", "t.yaml:5: groups[0].resourceSlices[0].devices: 0: use 1 to"},
		{"attribute", head + "groups:\n- resourceSlices:\n  - driver: a.b\n    devices: 1\n    attributes:\n      share: 0.5\n", "t.yaml:8: groups[0].resourceSlices[0].attributes[share]: use a text, a whole number"},
		{"attribute's name", head + "groups:\n- resourceSlices:\n  - driver: a.b\n    devices: 1\n    attributes: {a-b: x}\n", "t.yaml:7: groups[0].resourceSlices[0].attributes[a-b]: use a name"},
		{"too many", head + "groups:\n- {name: a, count: 60000}\n- {name: b, count: 60000}\n", "t.yaml: the groups have more than 100000 nodes together"},
	} {
		_, err := ParseTemplate("t.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := ParseTemplate("t.yaml", make([]byte, MaxTemplate+1)); err == nil {
		t.Error("a template of any size is read")
	}
}

func FuzzParseTemplate(f *testing.F) {
	f.Add([]byte(goodTemplate))
	f.Fuzz(func(_ *testing.T, data []byte) {
		groups, err := ParseTemplate("t.yaml", data)
		if err != nil {
			return
		}
		for i := range groups {
			groups[i].setDefaults()
			_ = groups[i].nodeName("f", 1)
		}
	})
}
