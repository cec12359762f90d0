package vm

import (
	"strings"
	"testing"
	"time"
)

// An iSCSI target that the guest serves and uses: a disk of 256 MiB, behind a name and a password.
const (
	iscsiTarget = "iqn.2026-11.com.example:vm"
	iscsiSource = "{targetPortal: 127.0.0.1, iqn: '" + iscsiTarget + "', lun: 1, fsType: ext4, chapAuthSession: true, secretRef: {name: iscsi-chap}}"
	iscsiVolume = "  volumes: [{name: data, iscsi: " + iscsiSource + "}]\n"
	iscsiPod    = idle + `, volumeMounts: [{name: data, mountPath: /data}]`
	iscsiSecret = `
apiVersion: v1
kind: Secret
metadata: {name: iscsi-chap}
type: kubernetes.io/iscsi-chap
stringData: {node.session.auth.username: user, node.session.auth.password: secret-of-the-disk}
`
	iscsiClaim = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: iscsi-block}
spec:
  capacity: {storage: 256Mi}
  accessModes: [ReadWriteOnce]
  volumeMode: Block
  storageClassName: ""
  claimRef: {namespace: default, name: iscsi-block}
  iscsi: {targetPortal: "127.0.0.1:3260", iqn: "` + iscsiTarget + `", lun: 1, chapAuthSession: true, secretRef: {namespace: default, name: iscsi-chap}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: iscsi-block}
spec: {accessModes: [ReadWriteOnce], volumeMode: Block, storageClassName: "", volumeName: iscsi-block, resources: {requests: {storage: 256Mi}}}
`
)

// Two pods share an iSCSI disk, which the node formats, and the agent restarts meanwhile. After the last pod, the node has no session, no disk and no
// directory of it. The next pod finds the data. A claim of the same disk with volumeMode Block is the disk itself.
func TestISCSI(t *testing.T) {
	n := newNode(t)
	n.sh(`systemctl start tgt && mkdir -p /srv/iscsi && truncate -s 256M /srv/iscsi/disk
tgtadm --lld iscsi --op new --mode target --tid 1 -T ` + iscsiTarget + `
tgtadm --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b /srv/iscsi/disk
tgtadm --lld iscsi --op new --mode account --user user --password secret-of-the-disk
tgtadm --lld iscsi --op bind --mode account --tid 1 --user user
tgtadm --lld iscsi --op bind --mode target --tid 1 -I ALL`)
	defer n.sh("systemctl stop tgt; rm -rf /srv/iscsi")
	n.apply(iscsiSecret)

	n.create("iscsi-1", iscsiPod, iscsiVolume)
	n.awaitReady("iscsi-1")
	n.create("iscsi-2", iscsiPod, iscsiVolume)
	n.awaitReady("iscsi-2")
	n.kubectl("exec", "iscsi-1", "--", "sh", "-c", "echo kept > /data/file && sync")
	if got := n.kubectl("exec", "iscsi-2", "--", "cat", "/data/file"); strings.TrimSpace(got) != "kept" {
		t.Errorf("the second pod reads %q", got)
	}
	if got := n.sh("grep -c ' /data ext4' /proc/$(pgrep -f 'echo up' | head -n 1)/mounts; iscsiadm -m session | wc -l"); got != "1\n1" {
		t.Errorf("file systems and sessions: %q", got)
	}
	n.kubectl("delete", "pod", "iscsi-1")
	n.sh("systemctl restart kubelet")
	if got := n.kubectl("exec", "iscsi-2", "--", "cat", "/data/file"); strings.TrimSpace(got) != "kept" {
		t.Errorf("after the first pod: %q", got)
	}
	n.kubectl("delete", "pod", "iscsi-2")
	n.noPods()
	n.noDisk()

	n.create("iscsi-3", iscsiPod, iscsiVolume)
	n.awaitReady("iscsi-3")
	if got := n.kubectl("exec", "iscsi-3", "--", "cat", "/data/file"); strings.TrimSpace(got) != "kept" {
		t.Errorf("the next pod reads %q", got)
	}
	n.kubectl("delete", "pod", "iscsi-3")
	n.noPods()
	n.noDisk()

	n.apply(iscsiClaim)
	n.create("iscsi-4", idle+`, volumeDevices: [{name: data, devicePath: /dev/data}]`, "  volumes: [{name: data, persistentVolumeClaim: {claimName: iscsi-block}}]\n")
	n.awaitReady("iscsi-4")
	// Bytes 1080 and 1081 of a disk with ext4 are 53 ef.
	if got := n.kubectl("exec", "iscsi-4", "--", "sh", "-c", "dd if=/dev/data bs=1 skip=1080 count=2 2>/dev/null | od -An -tx1"); strings.TrimSpace(got) != "53 ef" {
		t.Errorf("the disk has %q", got)
	}
	n.kubectl("delete", "pod", "iscsi-4")
	n.kubectl("delete", "pvc", "iscsi-block")
	n.kubectl("delete", "pv", "iscsi-block")
	n.noPods()
	n.noDisk()
	n.kubectl("delete", "secret", "iscsi-chap")
}

// noDisk waits until nothing of the iSCSI disk is left on the node, which disconnects it after the last pod has ended.
func (n *node) noDisk() {
	n.Helper()
	n.await("nothing of the disk is left", time.Minute, func() (bool, string) {
		// Each command fails if it finds nothing.
		left := n.sh(`set +e
iscsiadm -m session 2>/dev/null
iscsiadm -m node 2>/dev/null
ls /sys/block | grep ^sd
find /var/lib/kubelet/plugins/kubernetes.io/iscsi -name 'iface-*'
losetup -n -l
true`)
		return left == "", left
	})
}
