package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The agent works with upstream's CSI mock driver, which this project did not write. The driver registers; the agent stages and publishes a
// persistent volume, and publishes an inline volume. When the persistent volume has grown, the agent expands it while a pod uses it, and
// updates the claim's status. When the pod is deleted, the agent unpublishes and unstages the volumes.
func TestUpstreamsMockDriver(t *testing.T) {
	s := newSpace(t)
	program := s.env.tool("csimock")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: run `make build`", err)
	}
	name, root := s.name+".example.com", filepath.Join(s.env.node.dir, "root")
	s.apply(fmt.Sprintf(csiDriver, name) + fmt.Sprintf(boundClaim, s.name, fmt.Sprintf("csi: {driver: %s, volumeHandle: \"1\"}", name)))
	t.Cleanup(func() { s.kubectl("delete", "pv/"+s.name, "csidriver/"+name, "--wait=false") })
	s.pod("user", fmt.Sprintf(`
volumes: [{name: v, persistentVolumeClaim: {claimName: data}}, {name: i, csi: {driver: %s}}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /data}, {name: i, mountPath: /inline}]}]`, name), onNode(s.env.node))
	for _, dir := range []string{"plugins", "plugins_registry"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	log := filepath.Join(s.TempDir(), "csimock.log")
	d, err := start(log, program, "--name="+name, "--socket="+filepath.Join(root, "plugins", s.name+".sock"),
		"--register="+filepath.Join(root, "plugins_registry", s.name+".sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.stop)
	called := func(what string) {
		t.Helper()
		s.eventually("the driver to get "+what, func() error {
			text, err := os.ReadFile(log)
			if err == nil && !strings.Contains(string(text), what) {
				err = errors.New(string(text))
			}
			return err
		})
	}
	called("Registered true")
	s.ready("user")
	s.sh("user", "echo kept > /data/file; ls /inline")
	called("NodeStageVolume 1 <nil>")
	called("NodePublishVolume csi-")

	s.kubectl("patch", "pvc", "data", "--subresource=status", "--type=merge", "-p",
		`{"status":{"allocatedResources":{"storage":"1Gi"},"allocatedResourceStatuses":{"storage":"NodeResizePending"},"capacity":{"storage":"512Mi"}}}`)
	s.kubectl("patch", "pv", s.name, "--type=merge", "-p", `{"spec":{"capacity":{"storage":"2Gi"}}}`)
	called("NodeExpandVolume 1 <nil>")
	s.event("user", "FileSystemResizeSuccessful", s.name)
	s.eventually("the claim to have its size", func() error {
		text := s.kubectl("get", "pvc", "data", "-o", "jsonpath={.status.capacity.storage} {.status.allocatedResourceStatuses}")
		if text != "1Gi " {
			return errors.New(text)
		}
		return nil
	})

	s.kubectl("delete", "pod", "user", "--wait=false", "--grace-period=1")
	s.gone("user")
	called("NodeUnpublishVolume 1 <nil>")
	called("NodeUnstageVolume 1 <nil>")
	s.eventually("the staged volume to be removed", func() error {
		if left, _ := filepath.Glob(filepath.Join(root, "plugins/kubernetes.io/csi", name, "*")); len(left) > 0 {
			return fmt.Errorf("left staged: %v", left)
		}
		return nil
	})
}
