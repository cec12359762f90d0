package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// A pod waits until its PersistentVolumeClaim exists and is bound to a local volume; an event says so. The volume keeps its data for the
// next pod. The node reads claims and volumes with its own identity, so the API server checks its right to do so.
func TestLocalVolumeClaim(t *testing.T) {
	s := newSpace(t)
	disk := s.TempDir()
	s.pod("writer", claimingPod, onNode(s.env.node))
	s.event("writer", "FailedMount", `persistentvolumeclaim "data" not found`)
	s.apply(fmt.Sprintf(boundClaim, s.name, fmt.Sprintf(localSource, disk, s.env.node.Name)))
	t.Cleanup(func() { s.kubectl("delete", "pv", s.name, "--wait=false") })
	s.ready("writer")
	s.sh("writer", "echo kept > /data/file; stat -c %g /data > /data/group")
	proxy := "/api/v1/nodes/" + s.env.node.Name + "/proxy/"
	if text := s.kubectl("get", "--raw", proxy+"stats/summary"); !strings.Contains(text, `"pvcRef"`) {
		t.Errorf("/stats/summary does not have the claim: %s", text)
	}
	if text := s.kubectl("get", "--raw", proxy+"metrics"); !strings.Contains(text, `kubelet_volume_stats_capacity_bytes{namespace="`+s.name+`",persistentvolumeclaim="data"}`) {
		t.Error("/metrics does not have the claim")
	}
	s.kubectl("delete", "pod", "writer", "--wait=false", "--grace-period=1")
	s.gone("writer")
	s.pod("reader", strings.Replace(claimingPod, "claimName: data", "claimName: data, readOnly: true", 1), onNode(s.env.node))
	s.ready("reader")
	s.same("what the first pod wrote", s.sh("reader", "cat /data/file /data/group; touch /data/x 2>/dev/null || echo read-only"), "kept\n1234\nread-only\n")
	s.kubectl("delete", "pod", "reader", "--wait=false", "--grace-period=1")
	s.gone("reader")
	if text, err := os.ReadFile(filepath.Join(disk, "file")); err != nil || string(text) != "kept\n" {
		t.Errorf("the data after the pods: %q, %v", text, err)
	}
}

const claimingPod = `
securityContext: {fsGroup: 1234}
volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /data}]}]`

// boundClaim is a template of a PersistentVolume and the claim "data" that is bound to it. Its arguments are the name of the volume, which
// is also the namespace of the claim, and the fields with the volume's source.
const boundClaim = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {namespace: %[1]s, name: data}
  %[2]s
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: %[1]s, resources: {requests: {storage: 1Gi}}}
`

const localSource = `local: {path: %s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}`

// A CSI driver registers with the agent and appears in the node's CSINode. Persistent and inline volumes of the driver are mounted.
func TestCSIDriver(t *testing.T) {
	s := newSpace(t)
	name, disk, root := s.name+".example.com", s.TempDir(), filepath.Join(s.env.node.dir, "root")
	d := simcsi.New(simcsi.Config{
		Name: name, NodeID: "id", MaxVolumes: 7, Stage: true,
		Mount: func(volume, target string) error { return unix.Mount(disk, target, "", unix.MS_BIND, "") },
		Unmount: func(target string) error {
			if err := unix.Unmount(target, 0); !errors.Is(err, unix.EINVAL) {
				return err
			}
			return nil
		},
	})
	t.Cleanup(d.Close)
	s.apply(fmt.Sprintf(csiDriver, name) + fmt.Sprintf(boundClaim, s.name, fmt.Sprintf("csi: {driver: %s, volumeHandle: one}", name)))
	t.Cleanup(func() { s.kubectl("delete", "pv/"+s.name, "csidriver/"+name, "--wait=false") })
	spec := fmt.Sprintf(`
volumes: [{name: v, persistentVolumeClaim: {claimName: data}}, {name: i, csi: {driver: %s}}]
containers: [{name: main, image: $busybox, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /data}, {name: i, mountPath: /inline}, {name: v, mountPath: /sub, subPath: a/b}]}]`, name)
	s.pod("user", spec, onNode(s.env.node))
	s.event("user", "FailedMount", "waits for CSI driver "+name+" to register on this node")
	if err := errors.Join(d.Serve(filepath.Join(root, "plugins", s.name+".sock")), d.Announce(filepath.Join(root, "plugins_registry", s.name+".sock"))); err != nil {
		t.Fatal(err)
	}
	s.ready("user")
	s.sh("user", "echo kept > /sub/file; cat /data/a/b/file /inline/a/b/file")
	s.contains("CSINode", s.kubectl("get", "csinode", s.env.node.Name, "-o", "jsonpath={.spec.drivers}"), `"name":"`+name+`"`, `"nodeID":"id"`, `"count":7`)
	s.kubectl("delete", "pod", "user", "--wait=false", "--grace-period=1")
	s.gone("user")
	s.eventually("the driver to hold nothing", func() error {
		if staged, published := d.Holds(); staged+published > 0 {
			return fmt.Errorf("%d staged, %d published", staged, published)
		}
		return nil
	})
	if text, err := os.ReadFile(filepath.Join(disk, "a/b/file")); err != nil || string(text) != "kept\n" {
		t.Errorf("the data after the pod: %q, %v", text, err)
	}
	if broken := d.Broken(); len(broken) > 0 {
		t.Errorf("rules of CSI that were broken: %q", broken)
	}
	d.Close()
	s.eventually("the CSINode to lose the driver", func() error {
		if out := s.kubectl("get", "csinode", s.env.node.Name, "-o", "jsonpath={.spec.drivers}"); strings.Contains(out, name) {
			return errors.New(out)
		}
		return nil
	})
}

const csiDriver = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %s}
spec: {attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}
---`
