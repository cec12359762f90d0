package dev

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/template"

	"github.com/wherry-node/wherry/tools/internal/proc"
	"github.com/wherry-node/wherry/tools/internal/unit"
)

// nodeConfig is a template for the node's KubeletConfiguration: upstream's defaults, with every path below .wherry.
// The fields of moreConfig follow.
var nodeConfig = template.Must(template.New("kubelet").Parse(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: "{{.Endpoint}}"
address: 0.0.0.0
port: {{.Port}}
healthzBindAddress: 127.0.0.1
healthzPort: {{.HealthPort}}
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: "{{.ClientCA}}"}
authorization: {mode: Webhook}
rotateCertificates: true
clusterDomain: cluster.local
{{- if .DNS}}
clusterDNS: [{{.DNS}}]
{{- end}}
resolvConf: {{.ResolvConf}}
podLogsDir: "{{.PodLogs}}"
volumePluginDir: "{{.VolumePlugins}}"
staticPodPath: "{{.Manifests}}"
makeIPTablesUtilChains: false
{{- if .Simulated}}
enforceNodeAllocatable: []
cgroupsPerQOS: false
{{- else}}
cgroupDriver: cgroupfs
cgroupRoot: "{{.CgroupRoot}}"
failCgroupV1: false
{{- end}}
{{- range $field, $value := .More}}
{{$field}}: {{$value}}
{{- end}}
`))

// unitName is the name of the node agent as a unit (package unit). Upstream's tests look for a name of the form kubelet-WORD.
const unitName = "kubelet-node"

// UnitFile returns the file that describes the node agent of the environment in dir as a unit (package unit).
func UnitFile(dir string) string { return filepath.Join(dir, "run", "node.json") }

func (e *Env) startNode(s *state) error {
	if _, running := proc.Find(e.pidFile("node")); running {
		return nil
	}
	for _, dir := range []string{"root", "pki", "pod-logs", "volume-plugins", "manifests"} {
		if err := os.MkdirAll(e.path("node", dir), 0o755); err != nil {
			return err
		}
	}
	var err error
	for i, want := range []int{10250, 10248} {
		if s.NodePorts[i], err = freePort(want); err != nil {
			return err
		}
	}
	if err := e.writeState(s); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := nodeConfig.Execute(&b, map[string]any{
		"Endpoint": e.endpoint(s), "Port": s.NodePorts[0], "HealthPort": s.NodePorts[1],
		"ClientCA": e.path("controlplane", "ca.crt"), "PodLogs": cmp.Or(e.PodLogs, e.path("node", "pod-logs")),
		"VolumePlugins": e.path("node", "volume-plugins"), "CgroupRoot": e.cgroupParent(),
		"Manifests": e.path("node", "manifests"),
		"Simulated": s.Runtime == runtimeSimulated,
		"More":      moreConfig(e.NodeConfig), "DNS": e.nodeDNS(), "ResolvConf": resolvConf(),
	}); err != nil {
		return err
	}
	config := e.path("node", "config.yaml")
	if err := os.WriteFile(config, b.Bytes(), 0o644); err != nil {
		return err
	}
	spec := proc.Spec{
		PIDFile: e.pidFile("node"), Log: e.path("logs", "node.log"), Path: e.Agent[0], Dir: e.path("node"),
		Args: slices.Concat(e.Agent[1:], []string{
			"--config=" + config,
			"--bootstrap-kubeconfig=" + e.path("controlplane", "bootstrap.kubeconfig"),
			"--kubeconfig=" + e.path("node", "kubeconfig"),
			"--cert-dir=" + e.path("node", "pki"),
			"--root-dir=" + e.path("node", "root"),
			"--hostname-override=" + s.NodeName,
			"--node-ip=" + s.NodeIP,
			"--v=2",
		}, e.NodeFlags),
	}
	if err := unit.Write(UnitFile(e.Dir), unit.Unit{Name: unitName, Spec: spec}); err != nil {
		return err
	}
	if _, err := proc.Start(spec); err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	return nil
}

// moreConfig returns fields of the node's KubeletConfiguration, name to value in JSON: those given, and thresholds that leave the disk of the
// machine to its owner. With upstream's defaults a node on a disk that is more than 85 % full refuses all pods and removes its images.
func moreConfig(given map[string]string) map[string]string {
	fields := map[string]string{
		"evictionHard":                `{"memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%", "imagefs.inodesFree": "1%"}`,
		"imageGCHighThresholdPercent": "100",
	}
	maps.Copy(fields, given)
	return fields
}

// endpoint returns the node's containerRuntimeEndpoint.
func (e *Env) endpoint(s *state) string {
	switch s.Runtime {
	case runtimeSimulated:
		return "simulated://"
	case runtimeContainerd2, runtimeDebian:
		return "unix://" + e.containerd(s.Runtime).Socket()
	}
	return "unix://" + s.Runtime
}
